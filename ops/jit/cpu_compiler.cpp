// Owns the runs of the system's compiler and the shared objects that come of them.
#include "brrr/ops/jit/cpu_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/vector_math.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/text.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

extern char** environ;

#if BRRR_VECTOR_MATH
// Of ops/cpu/vector_math.cpp: known by their addresses here, their types are vectors.
using VectorFunction = void (*)();
extern "C" {
#define BRRR_FUNCTIONS(name)      \
  void _ZGVbN4v_brrr_##name##f(); \
  void _ZGVbN2v_brrr_##name();    \
  void _ZGVdN8v_brrr_##name##f(); \
  void _ZGVdN4v_brrr_##name();
BRRR_FUNCTIONS(exp)
BRRR_FUNCTIONS(expm1)
BRRR_FUNCTIONS(log)
}
#endif

namespace brrr::jit {
namespace {

// The level of the instruction set is that of stamped loops, whose bits generated ones have.
bool uses_v3() { return std::strcmp(on_cpu::loops->isa, "v3") == 0; }

// The compiler and its options; $CXX may be several words.
std::vector<std::string> compiler_command() {
  const char* chosen = std::getenv("CXX");
  std::istringstream words(chosen && *chosen ? chosen : "c++");
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  for (const char* flag : {"-std=c++17", "-O3", "-fPIC", "-shared", "-w", "-fno-math-errno",
                           "-fwrapv", "-fno-trapping-math", "-ffp-contract=off"}) {
    command.push_back(flag);
  }
  if (uses_v3()) command.push_back("-march=x86-64-v3");
  return command;
}

// A directory for one run of the compiler, gone with everything in it afterwards.
class WorkPlace {
 public:
  WorkPlace() {
    const char* base = std::getenv("TMPDIR");
    path_ = fmt::format("{}/brrr-XXXXXX", base && *base ? base : "/tmp");
    if (!::mkdtemp(path_.data())) {
      fail("[{}] expected a directory to compile in, got \"{}\" from {}", op_or("jit"),
           std::strerror(errno), path_);
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
        "[{}] needs a C++ compiler for its CPU kernel, but \"{}\" cannot be run: {}; install one "
        "or set CXX",
        op_or("jit"), command[0], std::strerror(problem));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string object = contents_of(place.file("kernel.so"));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || object.empty()) {
    fail("[{}] expected a kernel that compiles, got from {}:\n{}\nThe kernel:\n{}", op_or("jit"),
         command[0], contents_of(place.file("log")), text.substr(text.rfind("#line 1")));
  }
  return object;
}

// dlopen maps what the headers promise, and dies where the file ends before: the table of sections
// is the last thing in it.
bool is_whole(const std::string& object) {
  ElfW(Ehdr) header;
  if (object.size() < sizeof header) return false;
  std::memcpy(&header, object.data(), sizeof header);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_shoff <= object.size() &&
         object.size() - header.e_shoff >=
             std::size_t{header.e_shnum} * std::size_t{header.e_shentsize};
}

// Loaded from a private file of a new name: dlopen takes one name twice for one library. Null, and
// why, when the system refuses it.
void* open_object(const std::string& object, std::string& why) {
  if (!is_whole(object)) {
    why = "it is no whole shared object";
    return nullptr;
  }
  WorkPlace place;
  const std::string path = place.file("kernel.so");
  std::ofstream(path, std::ios::binary)
      .write(object.data(), static_cast<std::streamsize>(object.size()));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    why = reason ? reason : "no reason given";
  }
  return library;
}

// A cached object may come from another machine: one that does not load is compiled again.
void* open_from_disk(const Hash128& key) {
  std::string object, why;
  if (disk_cache::read(key, "so", object) != disk_cache::Found::yes) return nullptr;
  return open_object(object, why);
}

// Gives a library the functions of ops/cpu/vector_math.cpp.
void connect(void* library) {
#if BRRR_VECTOR_MATH
  auto* functions = static_cast<VectorFunction*>(::dlsym(library, "brrr_vector_functions"));
  if (!functions) return;
  const VectorFunction baseline[] = {_ZGVbN4v_brrr_expf,  _ZGVbN2v_brrr_exp,  _ZGVbN4v_brrr_expm1f,
                                     _ZGVbN2v_brrr_expm1, _ZGVbN4v_brrr_logf, _ZGVbN2v_brrr_log};
  std::copy(std::begin(baseline), std::end(baseline), functions);
#if BRRR_HAS_ISA_V3
  const VectorFunction v3[] = {_ZGVdN8v_brrr_expf,  _ZGVdN4v_brrr_exp,  _ZGVdN8v_brrr_expm1f,
                               _ZGVdN4v_brrr_expm1, _ZGVdN8v_brrr_logf, _ZGVdN4v_brrr_log};
  if (uses_v3()) std::copy(std::begin(v3), std::end(v3), functions);
#endif
#else
  (void)library;
#endif
}

void* compile_and_open(const Hash128& key, const std::string& text) {
  const std::string object = run_compiler(text);
  std::string why;
  void* library = open_object(object, why);
  if (!library) fail("[{}] its compiled CPU kernel cannot be loaded: {}", op_or("jit"), why);
  disk_cache::write(key, "so", object);
  return library;
}

struct Less {
  bool operator()(const Hash128& a, const Hash128& b) const {
    return std::tie(a.low, a.high) < std::tie(b.low, b.high);
  }
};

std::string whole_text(std::string_view source) {
  std::string text;
  text.reserve(65536 + source.size());
#if BRRR_VECTOR_MATH
  text += "#define BRRR_VECTOR_MATH 1\n";
#endif
  for (const char* part : {text::cpu_prelude_inl, text::strided_space_inl, text::functions_def,
                           text::scalar_math_inl, text::philox_inl, text::scalar_inl,
                           text::convert_inl, text::lanes_inl, text::cpu_tiles_inl}) {
    text += part;
  }
  text += "\n#line 1 \"kernel\"\n";
  text += source;
  text += "\n}  // namespace brrr::generated\n";
  return text;
}

Hash128 key_of(const std::string& text) {
  std::string key = "shared object";
  for (const std::string& word : compiler_command()) key += " " + word;
  return hash_of(key + "\n" + text);
}

}  // namespace

Hash128 cpu_object_key(std::string_view source) { return key_of(whole_text(source)); }

void* load_cpu_function(const char* entry, std::string_view source) {
  static std::mutex* mutex = new std::mutex;
  static auto* loaded = new std::map<Hash128, void*, Less>;
  const std::string text = whole_text(source);
  const Hash128 key = key_of(text);
  std::lock_guard lock(*mutex);
  void*& library = (*loaded)[key];
  if (!library) {
    library = open_from_disk(key);
    if (!library) library = compile_and_open(key, text);
    connect(library);
  }
  void* function = ::dlsym(library, entry);
  if (!function) fail("[{}] expected the entry {} in a compiled CPU kernel", op_or("jit"), entry);
  return function;
}

on_cpu::Loop pointwise_loop(const OpInfo& op, DType computed_in) {
  std::vector<DType> inputs(static_cast<std::size_t>(op.arity), computed_in);
  if (op.rule == DTypeRule::select) inputs[0] = boolean;
  const DType output = op.rule == DTypeRule::predicate ? boolean : computed_in;
  const Body body = pointwise_body(op, computed_in, 0, inputs, output);
  const std::string text = render_cpu(body) + fmt::format(R"(
extern "C" void {0}_loop(void* out, const void* const* in, i64 n) {{
  if (n == 0) return;
  StridedSpace space;
  space.operands = {1};
  space.add_dim(n);
  for (int k = 0; k < {1}; ++k) space.stride[k][0] = 1;
  Arguments a{{}};
  a.outputs = &out;
  a.inputs = in;
  a.space = &space;
  of_{0}::{0}(a, 0, n);
}}
)",
                                                          body.name, body.operands());
  return reinterpret_cast<on_cpu::Loop>(load_cpu_function((body.name + "_loop").c_str(), text));
}

}  // namespace brrr::jit
