// Owns the runs of the system's compiler and the shared objects that come of them.
#include "ops/jit/cpu_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "ops/jit/disk_cache.h"
#include "ops/jit/render.h"
#include "ops/jit/text.h"
#include "tensor/error.h"

extern char** environ;

namespace brrr::jit {
namespace {

const char* op_name() { return current_op ? current_op : "jit"; }

// The compiler and its options; $CXX may hold several words.
std::vector<std::string> compiler_command() {
  const char* chosen = std::getenv("CXX");
  std::istringstream words(chosen && *chosen ? chosen : "c++");
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  for (const char* flag : {"-std=c++17", "-O3", "-fPIC", "-shared", "-w", "-fno-math-errno",
                           "-fwrapv", "-fno-trapping-math", "-ffp-contract=off"}) {
    command.push_back(flag);
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    command.push_back("-march=x86-64-v3");
#endif
  return command;
}

// A directory for one run of the compiler, gone with everything in it afterwards.
class WorkPlace {
 public:
  WorkPlace() {
    const char* base = std::getenv("TMPDIR");
    path_ = fmt::format("{}/brrr-XXXXXX", base && *base ? base : "/tmp");
    if (!::mkdtemp(path_.data())) {
      fail(fmt::format("[{}] expected a directory to compile in, got \"{}\" from {}", op_name(),
                       std::strerror(errno), path_));
    }
  }
  ~WorkPlace() {
    for (const char* name : {"kernel.cpp", "kernel.so", "log"}) ::unlink(file(name).c_str());
    ::rmdir(path_.c_str());
  }
  WorkPlace(const WorkPlace&) = delete;
  WorkPlace& operator=(const WorkPlace&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string run_compiler(const std::string& text) {
  WorkPlace place;
  std::ofstream(place.file("kernel.cpp"), std::ios::binary) << text;
  std::vector<std::string> command = compiler_command();
  for (const std::string& word :
       {std::string("-o"), place.file("kernel.so"), place.file("kernel.cpp"), std::string("-lm")}) {
    command.push_back(word);
  }
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, place.file("log").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int problem =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) {
    fail(
        fmt::format("[{}] needs a C++ compiler for its CPU kernel, but \"{}\" cannot be run: {}; "
                    "install one or set CXX",
                    op_name(), command[0], std::strerror(problem)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string object = contents_of(place.file("kernel.so"));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || object.empty()) {
    fail(fmt::format("[{}] expected a kernel that compiles, got from {}:\n{}\nThe kernel:\n{}",
                     op_name(), command[0], contents_of(place.file("log")),
                     text.substr(text.rfind("#line 1"))));
  }
  return object;
}

// Loaded from a private file of a new name: dlopen takes one name twice for one library.
void* open_object(const std::string& object) {
  WorkPlace place;
  const std::string path = place.file("kernel.so");
  std::ofstream(path, std::ios::binary)
      .write(object.data(), static_cast<std::streamsize>(object.size()));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    fail(fmt::format("[{}] its compiled CPU kernel cannot be loaded: {}", op_name(),
                     reason ? reason : "no reason given"));
  }
  return library;
}

struct Less {
  bool operator()(const Hash128& a, const Hash128& b) const {
    return std::tie(a.low, a.high) < std::tie(b.low, b.high);
  }
};

}  // namespace

void* load_cpu_function(const char* entry, std::string_view source) {
  static std::mutex* mutex = new std::mutex;
  static auto* loaded = new std::map<Hash128, void*, Less>;

  std::string text = text::cpu_prelude_inl;
  text += text::scalar_inl;
  text += "\n#line 1 \"kernel\"\n";
  text += source;
  text += "\n}  // namespace brrr\n";
  std::string key_text = "shared object";
  for (const std::string& word : compiler_command()) key_text += " " + word;
  const Hash128 key = hash_of(key_text + "\n" + text);

  std::lock_guard lock(*mutex);
  void*& library = (*loaded)[key];
  if (!library) {
    std::string object;
    if (disk_cache::read(key, "so", object) != disk_cache::Found::yes) {
      object = run_compiler(text);
      disk_cache::write(key, "so", object);
    }
    library = open_object(object);
  }
  void* function = ::dlsym(library, entry);
  if (!function)
    fail(fmt::format("[{}] expected the entry {} in a compiled CPU kernel", op_name(), entry));
  return function;
}

on_cpu::Loop pointwise_loop(const OpInfo& op, DType computed_in) {
  std::vector<DType> inputs(static_cast<std::size_t>(op.arity), computed_in);
  if (op.rule == DTypeRule::select) inputs[0] = boolean;
  const DType output = op.rule == DTypeRule::predicate ? boolean : computed_in;
  const KernelSpec spec = pointwise_spec(op, computed_in, 0, inputs, output);
  return reinterpret_cast<on_cpu::Loop>(load_cpu_function(spec.name.c_str(), render_cpu(spec)));
}

}  // namespace brrr::jit
