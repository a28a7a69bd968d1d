// BRRR_REPORT: the watch of a process, whose report is written when the process ends.
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/watch.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

std::string report_path() { return setting("BRRR_REPORT"); }

void require_report_path() {
  const std::string path = report_path();
  if (path.empty() || path == "-") return;
  if (!path.ends_with(".html") && !path.ends_with(".json")) {
    fail("[environment] expected BRRR_REPORT to be -, or a file ending in .html or .json, got {}",
         path);
  }
  try {
    require_writable("BRRR_REPORT", path);
  } catch (const Error& error) {
    fail("[environment] expected BRRR_REPORT to be a file that can be written, got {}",
         error.what());
  }
}

// The command line of this process.
std::string own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  while (text.ends_with('\0')) text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  return text;
}

void write_report(const std::vector<WatchedStep>& steps) {
  const std::string path = report_path();
  if (path == "-") {
    std::fputs(to_text(steps).c_str(), stdout);
    std::fflush(stdout);
    return;
  }
  const Machine machine = describe_machine();
  const std::string text = path.ends_with(".json")
                               ? to_json(steps, machine)
                               : to_html(to_report(steps, machine, own_command()), {});
  write_file("BRRR_REPORT", path, [&](const ByteSink& sink) { sink(text.data(), text.size()); });
}

// The watch of the process, which is never destroyed.
Watch* own_watch = nullptr;

// Whoever comes second waits for the first.
void report_at_exit() {
  static std::mutex mutex;
  static bool written = false;
  const std::lock_guard lock(mutex);
  if (std::exchange(written, true)) return;
  try {
    write_report(own_watch->steps());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "brrr: no report: %s\n", error.what());
  }
}

// SIGINT and SIGTERM, where the program leaves them to the system: the report is written by a
// thread of its own, since the program may be anywhere, and the signal ends the program then.
struct Signals {
  sem_t arrived;
  volatile std::sig_atomic_t last = 0;

  static Signals& instance() {
    static Signals* const signals = new Signals;
    return *signals;
  }

 private:
  Signals() { sem_init(&arrived, 0, 0); }
};

extern "C" void report_and_end(int signal) {
  std::signal(signal, SIG_DFL);  // a second one ends the program at once
  Signals::instance().last = signal;
  sem_post(&Signals::instance().arrived);
}

void report_on_signals() {
  bool listens = false;
  Signals& signals = Signals::instance();
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before = {}, action = {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;
    action.sa_handler = report_and_end;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
    listens = true;
  }
  if (!listens) return;
  std::thread([&signals] {
    while (sem_wait(&signals.arrived) != 0) {
    }
    report_at_exit();
    ::kill(::getpid(), signals.last);
  }).detach();
}

}  // namespace

void watch_from_environment() {
  if (report_path().empty()) return;
  add_environment_check(require_report_path);
  // What is registered last runs first: before the objects end that a step's plan made.
  own_watch = new Watch({.looked = [] { std::atexit(report_at_exit); }});
  std::atexit(report_at_exit);
  report_on_signals();
}

}  // namespace brrr::measure
