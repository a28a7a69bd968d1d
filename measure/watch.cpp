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
#include "brrr/measure/mode_predictions.h"
#include "brrr/measure/modes.h"
#include "brrr/measure/replays.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/watch_eager.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

// A call of a compiled step.
struct StepCall {
  core::CompiledStep* step = nullptr;
  double time = 0;
};

// Of a thread: when the last call of a compiled step returned, the last one that replayed, and the
// last update; and the calls that it is in, the outermost first.
struct Thread {
  double returned = 0, replayed = 0, updated = 0;
  std::vector<StepCall> calls;
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

// The part of a run, or the seconds, in which steps are planned in other modes.
constexpr double kPlanningShare = 0.02, kPlanningSeconds = 0.5;
// Traces that are kept until they are planned.
constexpr int kTraces = 256;

}  // namespace

class Watch::State final : public core::ReplayListener {
 public:
  explicit State(std::function<void()> looked) : looked_(std::move(looked)) {}

  void called(core::CompiledStep& step) override {
    const std::lock_guard lock(mutex_);
    Thread& thread = this_thread();
    if (thread.calls.empty()) {
      if (Entry* const entry = of(step).last) {
        const SampleRange samples = end_interval(thread);
        if (samples.first < samples.second) entry->samples.push_back(samples);
        if (entry->is_timed_now()) begin(*entry);
      }
    }
    thread.calls.push_back({&step, host_seconds()});
  }

  void traced(core::CompiledStep& step, const graph::Graph& calls,
              const CompileOptions& options) override {
    const std::lock_guard lock(mutex_);
    if (kept_traces_ == kTraces) return;
    ++kept_traces_;
    of(step).traced = std::make_shared<const TracedStep>(calls, options);
    if (looked_) looked_();
  }

  void returned(core::CompiledStep& step, int index) override {
    const double now = host_seconds();
    const std::lock_guard lock(mutex_);
    Thread& thread = this_thread();
    if (thread.calls.empty()) return;  // it was called before the watch began
    const StepCall call = thread.calls.back();
    thread.calls.pop_back();
    Step& of_step = of(step);
    if (auto traced = std::exchange(of_step.traced, nullptr); traced && index >= 0)
      of_step.entry(index).keep(std::move(traced));
    if (!thread.calls.empty()) return;  // a part of another step's call
    if (of_step.last) end(*of_step.last, index);
    if (index < 0) {
      ++of_step.eager_calls;
    } else {
      if (&thread == eager_thread_) eager_.interrupted();
      of_step.last = &of_step.entry(index);
      add(*of_step.last, step, index, call.time, now, thread.returned);
      if (of_step.last->step.calls == kWarmCalls && !sampler_) sample(thread);
    }
    if (is_sampled(thread)) sampler_->begin();
    thread.returned = host_seconds();
    if (index >= 0) thread.replayed = thread.returned;
  }

  void destroyed(core::CompiledStep& step) override {
    const std::lock_guard lock(mutex_);
    const auto at = steps_.find(&step);
    if (at == steps_.end()) return;
    for (std::unique_ptr<Entry>& entry : at->second.entries) {
      if (!entry || !entry->step.entry) continue;
      entry->step.eager_calls = at->second.eager_calls;
      finished_.push_back(std::move(entry));
    }
    steps_.erase(at);
    recent_step_ = {};
  }

  void updated(const void* optimizer, Device device) override {
    const double now = host_seconds();
    const std::lock_guard lock(mutex_);
    Thread& thread = this_thread();
    if (!eager_thread_) eager_thread_ = &thread;
    if (&thread != eager_thread_) return;
    const SampleRange samples = end_interval(thread);
    if (thread.updated > thread.replayed) {
      EagerSteps::Entry& entry = eager_.ended(optimizer, device, now - thread.updated, samples);
      if (entry.step.name.empty())  // of a compiled step that runs eagerly
        entry.step.name =
            thread.calls.empty() ? "eager step" : thread.calls.front().step->report().name;
      if (entry.step.calls == kWarmCalls && !sampler_) sample(thread);
      if (entry.step.calls == kWarmCalls + 1 && looked_) looked_();
    }
    if (is_sampled(thread)) sampler_->begin();
    thread.updated = host_seconds();
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
    std::vector<SampleRange> samples;
    double before = 0;  // of the clock
    bool timing = false;
    std::shared_ptr<const TracedStep> traced;  // until its other modes are predicted

    void keep(std::shared_ptr<const TracedStep> of) {
      traced = std::move(of);
      step.others.clear();
    }
    double total_seconds() const { return static_cast<double>(step.calls) * step.period.median; }
    bool is_timed_now() const {
      return step.entry && step.calls >= kFirstTimedCall &&
             step.calls < kFirstTimedCall + kTimedCalls;
    }
  };

  // A compiled step.
  struct Step {
    std::vector<std::unique_ptr<Entry>> entries;  // by index; null: none was replayed
    Entry* last = nullptr;                        // that was replayed
    std::shared_ptr<const TracedStep> traced;     // in a call that is not over
    std::int64_t eager_calls = 0;

    Entry& entry(int index) {
      const auto at = static_cast<std::size_t>(index);
      if (entries.size() <= at) entries.resize(at + 1);
      if (!entries[at]) entries[at] = std::make_unique<Entry>();
      return *entries[at];
    }
  };

  // Most calls are of the step, and on the thread, of the call before.
  Step& of(core::CompiledStep& step) {
    if (recent_step_.first != &step) recent_step_ = {&step, &steps_[&step]};
    return *recent_step_.second;
  }
  Thread& this_thread() {
    const std::thread::id id = std::this_thread::get_id();
    if (!recent_thread_.second || recent_thread_.first != id) recent_thread_ = {id, &threads_[id]};
    return *recent_thread_.second;
  }

  // The thread whose step is the first to be known samples what it does between calls.
  void sample(Thread& thread) {
    sampler_.emplace();
    sampled_ = &thread;
  }
  bool is_sampled(const Thread& thread) const { return sampled_ == &thread; }
  // Of the interval that ends now.
  SampleRange end_interval(const Thread& thread) {
    if (!is_sampled(thread)) return {};
    const std::size_t before = std::exchange(n_samples_, sampler_->end());
    return {before, n_samples_};
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
    const bool disturbed = entry.is_timed_now() || entry.step.calls < kWarmCalls;
    if (++entry.step.calls == kWarmCalls) look_at(entry, step, index);
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
    entry.step.device = entry.step.entry->device;
    entry.step.predicted = entry.step.entry->predicted;
    entry.step.peak_bytes = memory_stats(entry.step.entry->device).peak;
    if (looked_) looked_();
  }

  void add_code(WatchedStep& step, const std::vector<SampleRange>& ranges) const;
  void judge_call(Entry& entry) const;
  std::vector<Entry*> looked_at();
  double slowdown_of(Device device);
  void predict_others(Entry& entry);

  std::mutex mutex_;
  std::map<std::thread::id, Thread> threads_;
  std::map<core::CompiledStep*, Step> steps_;
  std::pair<std::thread::id, Thread*> recent_thread_ = {};
  std::pair<core::CompiledStep*, Step*> recent_step_ = {};
  std::vector<std::unique_ptr<Entry>> finished_;  // of steps that are destroyed
  std::optional<ThreadSampler> sampler_;
  const Thread* sampled_ = nullptr;
  EagerSteps eager_;
  const Thread* eager_thread_ = nullptr;  // the first that makes eager steps
  std::size_t n_samples_ = 0;             // of finished intervals
  std::function<void()> looked_;
  int kept_traces_ = 0;
  double begun_ = host_seconds(), planning_ = 0;  // seconds of planning in other modes
  std::map<std::int64_t, double> slowdowns_;      // of hosts, by device
  ListeningToReplays listening_{*this};           // the last: it listens when all is there
};

void Watch::State::add_code(WatchedStep& step, const std::vector<SampleRange>& ranges) const {
  if (!sampler_) return;
  const HostSamples all = sampler_->samples();
  std::vector<HostSample> own;
  for (const auto& [from, to] : ranges) {
    own.insert(own.end(), all.samples.begin() + static_cast<std::ptrdiff_t>(from),
               all.samples.begin() + static_cast<std::ptrdiff_t>(to));
  }
  step.code = code_lines(all, own);
  step.why_no_code = sampler_->problem();
}

// On the CPU the call is judged; on CUDA the time between calls, since the device works on.
void Watch::State::judge_call(Entry& entry) const {
  WatchedStep& step = entry.step;
  const CompiledEntry& compiled = *step.entry;
  const Device device = compiled.device;
  Evidence evidence{.device = device,
                    .mode = compiled.mode,
                    .step = device.is_cpu() ? step.in_call : step.period,
                    .cost = cost_of_entry(compiled, step.launches)};
  weigh(step, evidence);
  if (!(evidence.step.median > 0)) return;
  if (device.is_cuda()) {
    evidence.host = step.in_call;
    if (entry.device_times) evidence.queued = entry.device_times->timing();
  } else if (!entry.in_kernels.empty()) {
    evidence.in_kernels = summarize(entry.in_kernels);
  }
  step.diagnosis = judge(evidence);
}

// The entries that were looked at, those with the most time first.
std::vector<Watch::State::Entry*> Watch::State::looked_at() {
  std::vector<Entry*> entries;
  for (const auto& [key, step] : steps_) {
    for (const std::unique_ptr<Entry>& entry : step.entries) {
      if (!entry || !entry->step.entry) continue;
      entry->step.eager_calls = step.eager_calls;
      entries.push_back(entry.get());
    }
  }
  for (const auto& entry : finished_) entries.push_back(entry.get());
  for (Entry* const entry : entries) {
    const bool runs_ahead = entry->step.entry->device.is_cuda();
    entry->step.period = entry->periods.timing(runs_ahead);
    entry->step.in_call = entry->calls.timing(runs_ahead);
    entry->step.outside = entry->outside.timing(runs_ahead);
  }
  std::ranges::stable_sort(entries, std::ranges::greater(), &Entry::total_seconds);
  return entries;
}

double Watch::State::slowdown_of(Device device) {
  const std::int64_t key = device.is_cpu() ? -1 : device.index;
  const auto known = slowdowns_.find(key);
  if (known != slowdowns_.end()) return known->second;
  return slowdowns_[key] = host_slowdown(device, *graph::ceilings_of(device));
}

// Once for each trace.
void Watch::State::predict_others(Entry& entry) {
  if (!entry.step.others.empty()) return;
  const double start = host_seconds();
  if (!entry.traced) {
    entry.step.others = unpredicted(entry.step.mode(), "its trace was not seen");
  } else if (planning_ > std::max(kPlanningSeconds, kPlanningShare * (start - begun_))) {
    entry.step.others = unpredicted(entry.step.mode(), "planning takes too much of the run");
  } else {
    entry.step.others = entry.traced->other_modes(slowdown_of(entry.traced->device()));
    entry.traced.reset();
    --kept_traces_;
  }
  planning_ += host_seconds() - start;
}

std::vector<WatchedStep> Watch::State::steps() {
  const std::lock_guard lock(mutex_);
  std::vector<WatchedStep> steps;
  for (Entry* const entry : looked_at()) {
    predict_others(*entry);
    add_code(entry->step, entry->samples);
    judge_call(*entry);
    steps.push_back(entry->step);
  }
  for (auto& [optimizer, entry] : eager_.entries()) {
    if (!entry.cost) continue;
    add_code(entry.step, entry.samples);
    entry.judge();
    steps.push_back(entry.step);
  }
  std::ranges::stable_sort(steps, std::ranges::greater(), [](const WatchedStep& each) {
    return static_cast<double>(each.calls) * each.period.median;
  });
  return steps;
}

Watch::Watch(std::function<void()> looked) : state_(std::make_unique<State>(std::move(looked))) {}
Watch::~Watch() = default;
std::vector<WatchedStep> Watch::steps() const { return state_->steps(); }

double WatchedStep::outside_share() const {
  if (!entry) {
    double own = 0;
    for (const CodeLine& line : code) own += line.calls_brrr ? 0 : line.share;
    return own;
  }
  if (!(period.median > 0)) return 0;
  const double of_device =
      diagnosis && diagnosis->device_time && device.is_cuda() ? *diagnosis->device_time : 0;
  return std::clamp(std::min(outside.median, period.median - of_device) / period.median, 0.0, 1.0);
}

std::optional<double> WatchedStep::gain_of(const PredictedMode& other) const {
  if (!other.predicted || !(period.median > 0)) return {};
  const double own = outside_share() * period.median;
  // On CUDA the device works while the program's own code runs.
  const auto with_own_code = [&](const core::StepTime& time) {
    const double seconds = time.seconds();
    const double all = device.is_cuda() ? std::max(seconds, own) : seconds + own;
    return Timing{.median = all};
  };
  Diagnosis of_own_code;
  of_own_code.shares = Shares{.user = outside_share()};
  const Timing expected = with_own_code(*other.predicted);
  // Errors that predictions have in common cancel in their ratio, and what the step takes beyond
  // its prediction may not be the mode's.
  return std::min(gain_over(period, of_own_code, expected),
                  gain_over(with_own_code(predicted), {}, expected));
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
  own_watch = new Watch([] { std::atexit(report_at_exit); });
  std::atexit(report_at_exit);
  report_on_signals();
}

}  // namespace brrr::measure
