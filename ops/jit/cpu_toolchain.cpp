// Owns the processes of the system's compiler: how they are started, awaited and ended.
#include "brrr/ops/jit/cpu_toolchain.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "brrr/ops/cpu/isa.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/file_size_signal.h"
#include "brrr/tensor/thread_context.h"

extern char** environ;

namespace brrr::jit {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Between what the compiler said and the source of the kernel.
constexpr std::string_view kKernelHeading = "\nThe kernel:";
constexpr std::string_view kWorkPlace = "/brrr-";  // before six random characters

double most_seconds() { return positive_setting("BRRR_COMPILE_SECONDS", 300); }

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The environment of a compiler, whose temporary files are gone with its WorkPlace.
class Environment {
 public:
  explicit Environment(const std::string& folder) : folder_("TMPDIR=" + folder) {
    for (char** each = environ; *each; ++each) {
      if (!std::string_view(*each).starts_with("TMPDIR=")) pointers_.push_back(*each);
    }
    pointers_.push_back(folder_.data());
    pointers_.push_back(nullptr);
  }
  char** get() { return pointers_.data(); }

 private:
  std::string folder_;
  std::vector<char*> pointers_;
};

// One process of the compiler, in a process group of its own: the driver has children.
class CompilerRun {
 public:
  explicit CompilerRun(const std::string& text) : text_(text) {
    write_file(place_.file("kernel.cpp"), text);
    std::vector<std::string> command = compiler_command();
    for (const std::string& word : {std::string("-o"), place_.file("kernel.so"),
                                    place_.file("kernel.cpp"), std::string("-lm")}) {
      command.push_back(word);
    }
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, place_.file("log").c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int problem = ::posix_spawnp(&process_, arguments[0], &actions, &attributes,
                                       arguments.data(), Environment(place_.path()).get());
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (problem != 0) {
      process_ = -1;
      fail(
          fmt::format("[{}] needs a C++ compiler for its CPU kernel, but \"{}\" cannot be run: "
                      "{}; install one or set CXX",
                      op_or("jit"), command[0], std::strerror(problem)));
    }
  }
  ~CompilerRun() {
    if (process_ < 0) return;
    ::kill(-process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  CompilerRun(const CompilerRun&) = delete;
  CompilerRun& operator=(const CompilerRun&) = delete;

  bool has_ended() {
    if (process_ < 0) return true;
    const pid_t ended = ::waitpid(process_, &status_, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    process_ = -1;
    return true;
  }
  // The compiler's result; throws unless it succeeded.
  std::string object() const {
    std::string made = contents_of(place_.file("kernel.so"));
    if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0 || made.empty()) {
      const std::string log = contents_of(place_.file("log"));
      const bool names_kernel = log.find("kernel:") != std::string::npos;  // as the text's #line
      fail("[{}] expected a kernel that compiles, got {} from {}{}{}", op_or("jit"), outcome(),
           compiler_command()[0], log.empty() ? ", which printed nothing" : ":\n" + shortened(log),
           names_kernel
               ? fmt::format("{}\n{}", kKernelHeading, text_.substr(text_.rfind("#line 1")))
               : "; install a C++ compiler or set CXX");
    }
    return made;
  }

 private:
  std::string outcome() const {
    if (WIFSIGNALED(status_)) return fmt::format("signal {}", WTERMSIG(status_));
    return fmt::format("exit status {}{}", WEXITSTATUS(status_),
                       WEXITSTATUS(status_) == 0 ? " and no shared object" : "");
  }

  const std::string& text_;
  WorkPlace place_;
  pid_t process_ = -1;
  int status_ = 0;
};

// A line on a terminal, from the first second on.
class Progress {
 public:
  explicit Progress(std::size_t kernels) : kernels_(kernels), shown_(::isatty(STDERR_FILENO)) {}
  ~Progress() {
    if (last_ > 0) std::fputs("\r\033[K", stderr);
  }
  void show(double seconds) {
    if (!shown_ || static_cast<int>(seconds) <= last_) return;
    last_ = static_cast<int>(seconds);
    std::fprintf(stderr, "\r[jit] compiling %zu CPU kernel%s, %d s", kernels_,
                 kernels_ == 1 ? "" : "s", last_);
    std::fflush(stderr);
  }

 private:
  std::size_t kernels_;
  bool shown_;
  int last_ = 0;
};

}  // namespace

namespace {

std::mutex signals_mutex;
int signal_scopes = 0;
volatile std::sig_atomic_t signal_received = 0;

struct Delayed {
  int signal;
  bool if_handled;  // also where the program has a handler for it
  bool installed = false;
  struct sigaction before = {};
};
Delayed delayed[] = {{SIGINT, true}, {SIGTERM, true}, {SIGHUP, false}, {SIGQUIT, false}};

extern "C" void brrr_record_signal(int signal) { signal_received = signal; }

}  // namespace

DelayedSignals::DelayedSignals() {
  const std::lock_guard lock(signals_mutex);
  if (signal_scopes++ > 0) return;
  signal_received = 0;
  for (Delayed& each : delayed) {
    ::sigaction(each.signal, nullptr, &each.before);
    const bool by_default =
        !(each.before.sa_flags & SA_SIGINFO) && each.before.sa_handler == SIG_DFL;
    const bool ignored = !(each.before.sa_flags & SA_SIGINFO) && each.before.sa_handler == SIG_IGN;
    if (ignored || (!by_default && !each.if_handled)) continue;
    struct sigaction mine = {};
    mine.sa_handler = brrr_record_signal;
    mine.sa_flags = SA_RESTART;
    each.installed = ::sigaction(each.signal, &mine, nullptr) == 0;
  }
}

DelayedSignals::~DelayedSignals() {
  const std::lock_guard lock(signals_mutex);
  if (--signal_scopes > 0) return;
  for (Delayed& each : delayed) {
    if (!std::exchange(each.installed, false)) continue;
    struct sigaction now = {};
    ::sigaction(each.signal, nullptr, &now);
    if (now.sa_handler == brrr_record_signal) ::sigaction(each.signal, &each.before, nullptr);
  }
  if (const int signal = std::exchange(signal_received, 0)) ::raise(signal);
}

int DelayedSignals::received() const { return signal_received; }

std::string shortened(std::string message) {
  constexpr std::size_t kMost = 4096;
  if (message.size() > kMost) message.replace(kMost, std::string::npos, "...");
  return message;
}

std::string in_one_line(std::string error) {
  error.resize(std::min(error.find(kKernelHeading), error.size()));
  const std::size_t first = error.find('\n');
  if (first != std::string::npos) {
    error.resize(std::min(error.find('\n', first + 1), error.size()));
    error[first] = ' ';
  }
  constexpr std::size_t kRandom = 6;
  for (std::size_t at = 0; (at = error.find(kWorkPlace, at)) != std::string::npos;) {
    at += kWorkPlace.size();
    if (error.size() > at + kRandom && error[at + kRandom] == '/') error.erase(at, kRandom);
  }
  return error;
}

WorkPlace::WorkPlace() {
  const char* base = std::getenv("TMPDIR");
  if (!base || !*base) base = "/tmp";
  path_ = fmt::format("{}{}XXXXXX", base, kWorkPlace);
  // What is made here is executed.
  if (const std::string why = disk_cache::why_replaceable(path_); !why.empty())
    fail("[{}] expected a directory to compile in, but {}; set TMPDIR", op_or("jit"), why);
  if (!::mkdtemp(path_.data())) {
    fail("[{}] expected a directory to compile in, got \"{}\" from {}", op_or("jit"),
         std::strerror(errno), base);
  }
}

WorkPlace::~WorkPlace() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::string& path, const std::string& content) {
  const FileSizeSignalBlocked blocked;
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) {
    fail("[{}] cannot write {} of {} bytes: {}", op_or("jit"), path, content.size(),
         std::strerror(errno));
  }
}

std::vector<std::string> compiler_command() {
  const char* chosen = std::getenv("CXX");
  std::string line = chosen && *chosen ? chosen : "c++";
  std::vector<std::string> command;
  // The longest start of it that is a program's path; it may have blanks.
  for (std::size_t end = line.size(); end != std::string::npos && end > 0;
       end = line.rfind(' ', end - 1)) {
    const std::string path = line.substr(0, end);
    std::error_code unknown;
    if (path.find('/') == std::string::npos || path.ends_with(' ') ||
        !std::filesystem::is_regular_file(path, unknown) || ::access(path.c_str(), X_OK) != 0)
      continue;
    command.push_back(path);
    line.erase(0, end);
    break;
  }
  std::istringstream words(line);
  for (std::string word; words >> word;) command.push_back(word);
  for (const char* flag : {"-std=c++17", "-O3", "-fPIC", "-shared", "-w", "-fno-math-errno",
                           "-fwrapv", "-fno-trapping-math", "-ffp-contract=off"}) {
    command.push_back(flag);
  }
  const std::string_view isa = on_cpu::generated_isa();
  if (isa != "baseline") command.push_back(fmt::format("-march=x86-64-{}", isa));
  // With vectors of 64 bytes fused f32 steps with matrix products take longer.
  if (isa == "v4") command.push_back("-mprefer-vector-width=256");
  return command;
}

std::vector<std::string> compile_objects(std::span<const std::string> sources,
                                         std::size_t kernels) {
  const double most = most_seconds();
  const auto start = Clock::now();
  const DelayedSignals signals;  // ends last
  std::deque<CompilerRun> runs;
  Progress progress(kernels);
  for (const std::string& source : sources) runs.emplace_back(source);
  std::vector<std::string> objects;
  auto pause = std::chrono::microseconds(500);
  for (CompilerRun& run : runs) {
    while (!run.has_ended()) {
      if (const int signal = signals.received())
        throw Interrupted(fmt::format("[{}] the compilation of CPU kernels was ended by signal {}",
                                      op_or("jit"), signal));
      const double seconds = seconds_since(start);
      if (seconds > most) {
        fail("[{}] expected its CPU kernels to compile within {} s, but {} still runs",
             op_or("jit"), most, compiler_command()[0]);
      }
      progress.show(seconds);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(4000));
    }
    objects.push_back(run.object());
  }
  return objects;
}

}  // namespace brrr::jit
