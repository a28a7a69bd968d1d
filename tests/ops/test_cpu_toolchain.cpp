// Runs of the C++ compiler that end otherwise: by a signal, at a limit, with much to say.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "brrr/io/safetensors.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/cpu_compiler.h"
#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/tensor/error.h"
#include "tests/harness/catch.h"
#include "tests/harness/environment.h"
#include "tests/harness/jit_rows.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;
namespace fs = std::filesystem;

namespace {

// A folder with a blank in its name, and a compiler in it: a shell script.
struct ScriptedCompiler {
  CacheDirectory cache;
  std::string folder = cache.path().string() + " of one";
  std::string path = folder + "/my compiler";
  test::EnvironmentVariable temporary{"TMPDIR", folder + "/tmp"};
  test::EnvironmentVariable chosen{"CXX", path + " --option"};

  explicit ScriptedCompiler(const std::string& script) {
    fs::remove_all(folder);
    fs::create_directories(folder + "/tmp");
    std::ofstream(path) << "#!/bin/sh\n" << script;
    ::chmod(path.c_str(), 0700);
  }
  ~ScriptedCompiler() { fs::remove_all(folder); }
  bool left_nothing() const { return fs::is_empty(folder + "/tmp"); }
};

// A compiler with a child, that leaves a temporary file and says when both run.
const std::string kEndless =
    "touch \"$TMPDIR/left\"; sleep 600 & echo $! > \"$(dirname \"$0\")/child\"; wait\n";

template <class Ready>
bool within_seconds(int seconds, Ready ready) {
  for (int i = 0; i < 100 * seconds; ++i) {
    if (ready()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

pid_t number_in(const std::string& path) {
  pid_t number = 0;
  std::ifstream(path) >> number;
  return number;
}

bool is_running(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/stat");
  std::string id, name, state;
  return status >> id >> name >> state && state != "Z";
}

volatile std::sig_atomic_t handled = 0;

// The status of a process that compiles and is sent a signal meanwhile.
int status_after(int signal, const ScriptedCompiler& compiler, bool with_handler) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(signal, with_handler ? [](int number) { handled = number; } : SIG_DFL);
    try {
      load_cpu_function("f", "extern \"C\" void f() {}  // endless\n");
    } catch (const Interrupted&) {
      ::_exit(handled == signal ? 7 : 8);
    } catch (...) {
      ::_exit(9);
    }
    ::_exit(10);
  }
  const std::string file = compiler.folder + "/child";
  CHECK(within_seconds(60, [&] { return number_in(file) > 0; }));
  ::kill(child, signal);
  int status = 0;
  CHECK(within_seconds(10, [&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  CHECK(within_seconds(10, [&] { return !is_running(number_in(file)); }));
  CHECK(compiler.left_nothing());
  return status;
}

}  // namespace

TEST_CASE("a signal during a compilation ends the compiler and leaves no folder", "[jit]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    INFO("signal " << signal);
    const ScriptedCompiler compiler(kEndless);
    const int status = status_after(signal, compiler, false);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
  }
  for (const int signal : {SIGINT, SIGTERM}) {
    INFO("signal " << signal << ", which the program handles");
    const ScriptedCompiler compiler(kEndless);
    const int status = status_after(signal, compiler, true);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
  }
}

TEST_CASE("signals have the program's handlers again after a compilation", "[jit]") {
  struct sigaction before = {}, after = {};
  ::sigaction(SIGTERM, nullptr, &before);
  {
    const DelayedSignals outer, inner;
    ::sigaction(SIGTERM, nullptr, &after);
    CHECK(after.sa_handler != before.sa_handler);
  }
  ::sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == before.sa_handler);
  const auto ignored = std::signal(SIGTERM, SIG_IGN);
  {
    const DelayedSignals scope;
    ::raise(SIGTERM);
    CHECK(scope.received() == 0);
  }
  std::signal(SIGTERM, ignored);
}

TEST_CASE("a compiler whose path has blanks runs, with the options after it", "[jit]") {
  const ScriptedCompiler compiler("[ \"$1\" = --option ] && shift && exec c++ \"$@\"\n");
  CHECK(compiler_command()[0] == compiler.path);
  CHECK(compiler_command()[1] == "--option");
  CHECK(load_cpu_function("f", "extern \"C\" void f() {}  // blanks\n"));
  CHECK(compiler.left_nothing());
}

TEST_CASE("what a compiler says is cut", "[jit]") {
  const ScriptedCompiler compiler(
      "echo kernel:1: error: >&2; i=0; while [ $i -lt 400 ]; do i=$((i + 1)); "
      "echo \"@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\"; done >&2; exit 1\n");
  std::string message;
  try {
    load_cpu_function("f", "extern \"C\" void f() {}  // cut\n");
  } catch (const Error& error) {
    message = error.what();
  }
  const auto said = std::count(message.begin(), message.end(), '@');
  CHECK(said > 3800);
  CHECK(said <= 4096);
  CHECK_THAT(message, Catch::Contains("...\nThe kernel:"));
}

TEST_CASE("a file beyond ulimit -f is an error and no signal", "[jit][io]") {
  const CacheDirectory directory;
  fs::create_directory(directory.path());
  const std::string cached = disk_cache::path_of(hash_of("k"), "so");
  const std::string saved = directory.path().string() + "/saved.safetensors";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit most{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &most);
    int problems = 0;
    disk_cache::write(hash_of("k"), "so", std::string(10000, 'x'));
    try {
      save_safetensors(saved, {.tensors = {{"x", zeros({10000})}}, .metadata = {}});
    } catch (const Error& error) {
      problems += std::string(error.what()).find("File too large") != std::string::npos;
    }
    try {
      jit::write_file(directory.path().string() + "/source", std::string(10000, 'x'));
    } catch (const Error& error) {
      problems += std::string(error.what()).find("File too large") != std::string::npos;
    }
    ::_exit(problems);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 2);
  CHECK_FALSE(fs::exists(cached));
  CHECK_FALSE(fs::exists(saved));
}
