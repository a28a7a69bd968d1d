#include "brrr/measure/watch.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "brrr/dispatch/observe.h"
#include "brrr/io/file_bytes.h"
#include "brrr/measure/kernel_clock.h"
#include "brrr/measure/replays.h"
#include "brrr/measure/report_file.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

// Replays before a step is looked at: the second one is captured.
constexpr std::int64_t kWarm = 3;
// Replays whose kernels are timed.
constexpr std::int64_t kFirstTimed = 8, kTimed = 24;

// The most recent samples.
class Recent {
 public:
  void add(double seconds) {
    sum_ += seconds;
    ++count_;
    constexpr std::size_t kMost = 4096;
    if (samples_.size() < kMost) {
      samples_.push_back(seconds);
    } else {
      samples_[next_++ % kMost] = seconds;
    }
  }
  // Where the host runs ahead of a device, most intervals are short and few wait: their mean is
  // what a call takes.
  Timing timing(bool runs_ahead) const {
    if (samples_.empty()) return {};
    Timing timing = summarize(samples_);
    if (runs_ahead) {
      timing.median = timing.least = timing.most = sum_ / static_cast<double>(count_);
      timing.spread = 0;
    }
    return timing;
  }

 private:
  std::vector<double> samples_;
  std::size_t next_ = 0;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

// Of a thread: when the last call of a compiled step returned, and the calls that it is in.
struct Thread {
  double returned = 0;
  std::vector<double> called;
};

// Device times of calls, by events: read when they are over.
class DeviceTimes {
 public:
  explicit DeviceTimes(Device device) : device_(device) {}

  void begin() {
    pairs_.emplace_back(Event(device_, true), Event(device_, true));
    pairs_.back().first.record(Stream::current(device_));
  }
  void end() { pairs_.back().second.record(Stream::current(device_)); }
  Timing timing() {
    std::vector<double> seconds;
    for (auto& [start, end] : pairs_) {
      end.synchronize();
      seconds.push_back(end.milliseconds_since(start) * 1e-3);
    }
    return summarize(std::move(seconds));
  }

 private:
  Device device_;
  std::vector<std::pair<Event, Event>> pairs_;
};

// What is to be done once a step was looked at, if anything.
void (*after_first_look)() = nullptr;

}  // namespace

class Watch::State final : public core::ReplayListener {
 public:
  void called(core::CompiledStep& step) override {
    const std::lock_guard lock(mutex_);
    Thread& thread = threads_[std::this_thread::get_id()];
    if (thread.called.empty()) {
      Entry* const entry = last_of(step);
      if (entry && entry->is_timed_now()) begin(*entry);
    }
    thread.called.push_back(host_seconds());
  }

  void returned(core::CompiledStep& step, int index) override {
    const double now = host_seconds();
    const std::lock_guard lock(mutex_);
    Thread& thread = threads_[std::this_thread::get_id()];
    if (thread.called.empty()) return;  // it was called before the watch began
    const double called = thread.called.back();
    thread.called.pop_back();
    if (!thread.called.empty()) return;  // a part of another step's call
    if (Entry* const timed = last_of(step)) end(*timed, index);
    if (index < 0) {
      ++eager_calls_[&step];
    } else {
      last_[&step] = index;
      add(entry_of(step, index), step, index, called, now, thread.returned);
    }
    thread.returned = host_seconds();
  }

  void destroyed(core::CompiledStep& step) override {
    const std::lock_guard lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
      if (at->first.first != &step) {
        ++at;
        continue;
      }
      at->second->step.eager_calls = eager_calls_[&step];
      finished_.push_back(std::move(at->second));
      at = entries_.erase(at);
    }
    last_.erase(&step);
    eager_calls_.erase(&step);
  }

  std::vector<WatchedStep> steps();

 private:
  struct Entry {
    WatchedStep step;
    double last_called = 0;
    Recent periods, calls, outside;
    std::optional<KernelClock> clock;
    std::vector<double> in_kernels;
    std::optional<DeviceTimes> device_times;
    std::optional<core::Observing> observing;
    double before = 0;  // of the clock
    bool timing = false;

    bool is_timed_now() const {
      return step.entry && step.calls >= kFirstTimed && step.calls < kFirstTimed + kTimed;
    }
  };

  Entry& entry_of(core::CompiledStep& step, int index) {
    std::unique_ptr<Entry>& entry = entries_[{&step, index}];
    if (!entry) entry = std::make_unique<Entry>();
    return *entry;
  }
  Entry* last_of(core::CompiledStep& step) {
    const auto index = last_.find(&step);
    return index == last_.end() ? nullptr : &entry_of(step, index->second);
  }

  void begin(Entry& entry) {
    entry.timing = true;
    const Device device = entry.step.entry->device;
    if (device.is_cuda()) {
      if (!entry.device_times) entry.device_times.emplace(device);
      entry.device_times->begin();
      return;
    }
    if (!entry.clock) entry.clock.emplace();
    entry.before = entry.clock->seconds();
    entry.observing.emplace(*entry.clock);
  }

  void end(Entry& entry, int index) {
    if (!std::exchange(entry.timing, false)) return;
    entry.observing.reset();
    if (entry.device_times) entry.device_times->end();
    const bool same = entry.clock && index >= 0;
    if (same) entry.in_kernels.push_back(entry.clock->seconds() - entry.before);
  }

  // A call of the entry that took from `called` to `now`.
  void add(Entry& entry, core::CompiledStep& step, int index, double called, double now,
           double returned) {
    const bool disturbed = entry.is_timed_now() || entry.step.calls < kWarm;
    if (++entry.step.calls == kWarm) look_at(entry, step, index);
    if (!disturbed) {
      entry.calls.add(now - called);
      if (returned > 0) entry.outside.add(called - returned);
      if (entry.last_called > 0) entry.periods.add(called - entry.last_called);
    }
    entry.last_called = called;
  }

  void look_at(Entry& entry, core::CompiledStep& step, int index) {
    const CompileReport report = step.report();
    entry.step.name = report.name;
    entry.step.entry = report.entries.at(static_cast<std::size_t>(index));
    entry.step.launches = step.launches(index);
    entry.step.peak_bytes = memory_stats(entry.step.entry->device).peak;
    if (after_first_look) std::exchange(after_first_look, nullptr)();
  }

  void judge_call(Entry& entry) const;
  void add_to(std::vector<WatchedStep>& steps, Entry& entry) const;

  std::mutex mutex_;
  std::map<std::thread::id, Thread> threads_;
  std::map<std::pair<core::CompiledStep*, int>, std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Entry>> finished_;  // of steps that are destroyed
  std::map<core::CompiledStep*, int> last_;
  std::map<core::CompiledStep*, std::int64_t> eager_calls_;
  ListeningToReplays listening_{*this};  // the last: it listens when all is there
};

// On the CPU the call is judged; on CUDA the time between calls, since the device works on.
void Watch::State::judge_call(Entry& entry) const {
  WatchedStep& step = entry.step;
  const CompiledEntry& compiled = *step.entry;
  const Device device = compiled.device;
  Evidence evidence{.device = device,
                    .mode = compiled.mode,
                    .step = device.is_cpu() ? step.in_call : step.period,
                    .cost = cost_of_entry(compiled, step.launches)};
  if (!(evidence.step.median > 0)) return;
  if (device.is_cuda()) {
    evidence.host = step.in_call;
    if (entry.device_times) evidence.queued = entry.device_times->timing();
  } else if (!entry.in_kernels.empty()) {
    evidence.in_kernels = summarize(entry.in_kernels);
  }
  step.diagnosis = judge(evidence);
}

void Watch::State::add_to(std::vector<WatchedStep>& steps, Entry& entry) const {
  if (!entry.step.entry) return;
  const bool runs_ahead = entry.step.entry->device.is_cuda();
  entry.step.period = entry.periods.timing(runs_ahead);
  entry.step.in_call = entry.calls.timing(runs_ahead);
  entry.step.outside = entry.outside.timing(runs_ahead);
  judge_call(entry);
  steps.push_back(entry.step);
}

std::vector<WatchedStep> Watch::State::steps() {
  const std::lock_guard lock(mutex_);
  std::vector<WatchedStep> steps;
  for (const auto& [key, entry] : entries_) {
    entry->step.eager_calls = eager_calls_[key.first];
    add_to(steps, *entry);
  }
  for (const auto& entry : finished_) add_to(steps, *entry);
  std::ranges::stable_sort(steps, std::ranges::greater(), [](const WatchedStep& each) {
    return static_cast<double>(each.calls) * each.period.median;
  });
  return steps;
}

Watch::Watch() : state_(std::make_unique<State>()) {}
Watch::~Watch() = default;
std::vector<WatchedStep> Watch::steps() const { return state_->steps(); }

double WatchedStep::outside_share() const {
  if (!(period.median > 0)) return 0;
  const double device =
      diagnosis && diagnosis->device_time && entry->device.is_cuda() ? *diagnosis->device_time : 0;
  return std::clamp(std::min(outside.median, period.median - device) / period.median, 0.0, 1.0);
}

// --- BRRR_REPORT ---

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

// What is registered last runs first: from the first look on, before the library's objects end.
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
  own_watch = new Watch;
  after_first_look = [] { std::atexit(report_at_exit); };
  std::atexit(report_at_exit);
  report_on_signals();
}

}  // namespace brrr::measure
