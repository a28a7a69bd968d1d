#include "brrr/measure/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "brrr/measure/mode_predictions.h"
#include "brrr/measure/modes.h"
#include "brrr/measure/replays.h"
#include "brrr/measure/watch_entry.h"
#include "brrr/tensor/allocator.h"

namespace brrr::measure {
namespace {

// The part of a run, or the seconds, in which steps are planned in other modes.
constexpr double kPlanningShare = 0.02, kPlanningSeconds = 0.5;
// Traces that are kept until they are planned.
constexpr std::ptrdiff_t kTraces = 256;
// The part of the time in which calls of a step are seen, once the seconds are over in which all
// are.
constexpr double kSeenShare = 0.01;
// For how long the calls of one thread's eager step are counted, at most, while another waits.
constexpr double kCountingSeconds = 10;

}  // namespace

// Asks no compiled step for a report while it is locked: threads that hold a step's lock may wait
// for this one, since steps are traced, and call others, under it.
class Watch::State final : public core::ReplayListener {
 public:
  explicit State(WatchOptions options) : options_(std::move(options)) {}

  void called(core::CompiledStep& step) override {
    const std::lock_guard lock(mutex_);
    WatchedThread& thread = this_thread();
    if (thread.calls.empty()) {
      WatchedCompiledStep& of_step = of(step);
      if (of_step.hidden > 0) count_hidden(step, of_step);
      if (WatchedEntry* const last = of_step.last) {
        const SampleRange samples = end_interval(thread);
        if (samples.first < samples.second) last->samples.push_back(samples);
        if (const WatchedEntry* const timed = of_step.wants_timer())
          thread.timer = std::make_unique<CallTimer>(timed->step.device);
      }
    }
    thread.calls.push_back({&step, host_seconds()});
  }

  void traced(core::CompiledStep& step, const graph::Graph& calls,
              const CompileOptions& options) override;
  void returned(core::CompiledStep& step, int index) override;

  void destroyed(core::CompiledStep& step) override {
    const std::lock_guard lock(mutex_);
    const auto at = steps_.find(&step);
    if (at == steps_.end()) return;
    count_hidden(step, at->second);
    for (std::unique_ptr<WatchedEntry>& entry : at->second.entries) {
      if (!entry || !entry->step.entry) continue;
      entry->step.eager_calls = at->second.eager_calls;
      finished_.push_back(std::move(entry));
    }
    steps_.erase(at);
    recent_step_ = {};
  }

  void updated(const void* optimizer, Device device) override;
  std::vector<WatchedStep> steps();

 private:
  // Most calls are of the step, and on the thread, of the call before.
  WatchedCompiledStep& of(core::CompiledStep& step) {
    if (recent_step_.first != &step) recent_step_ = {&step, &steps_[&step]};
    return *recent_step_.second;
  }
  WatchedThread& this_thread() {
    const std::thread::id id = std::this_thread::get_id();
    if (!recent_thread_.second || recent_thread_.first != id) {
      recent_thread_ = {id, &threads_[id]};
      int& number = recent_thread_.second->number;
      if (number == 0) number = static_cast<int>(threads_.size());
    }
    return *recent_thread_.second;
  }

  // The thread whose step is the first to be known samples what it does between calls.
  void sample(WatchedThread& thread) {
    if (sampler_) return;
    sampler_.emplace(options_.sampling);
    sampled_ = &thread;
  }
  bool is_sampled(const WatchedThread& thread) const { return sampled_ == &thread; }
  // Of the interval that ends now.
  SampleRange end_interval(const WatchedThread& thread) {
    if (!is_sampled(thread)) return {};
    const std::size_t before = std::exchange(n_samples_, sampler_->end());
    return {before, n_samples_};
  }
  bool may_count(const WatchedThread& thread);
  void count_hidden(core::CompiledStep& step, WatchedCompiledStep& of_step);
  std::uint32_t calls_to_hide(const WatchedCompiledStep& of_step, double cost) const;
  static void keep_trace(WatchedCompiledStep& of_step, const WatchedThread& thread, int index);

  void add_code(WatchedStep& step, const std::vector<SampleRange>& ranges) const;
  void judge_call(WatchedEntry& entry) const;
  std::vector<WatchedEntry*> looked_at();
  std::ptrdiff_t kept_traces() const;
  double slowdown_of(Device device);
  void predict_others(WatchedEntry& entry);
  void looked() const {
    if (options_.looked) options_.looked();
  }

  std::mutex mutex_;
  WatchOptions options_;
  std::map<std::thread::id, WatchedThread> threads_;
  std::map<core::CompiledStep*, WatchedCompiledStep> steps_;
  std::pair<std::thread::id, WatchedThread*> recent_thread_ = {};
  std::pair<core::CompiledStep*, WatchedCompiledStep*> recent_step_ = {};
  std::vector<std::unique_ptr<WatchedEntry>> finished_;  // of steps that are destroyed
  std::optional<ThreadSampler> sampler_;
  const WatchedThread* sampled_ = nullptr;
  std::size_t n_samples_ = 0;                     // of finished intervals
  double begun_ = host_seconds(), planning_ = 0;  // seconds of planning in other modes
  std::map<std::int64_t, double> slowdowns_;      // of hosts, by device
  ListeningToReplays listening_{*this};           // the last: it listens when all is there
};

std::ptrdiff_t Watch::State::kept_traces() const {
  const auto has_trace = [](const auto& entry) { return entry && entry->traced; };
  std::ptrdiff_t kept = std::ranges::count_if(finished_, has_trace);
  for (const auto& [key, step] : steps_) kept += std::ranges::count_if(step.entries, has_trace);
  return kept;
}

void Watch::State::traced(core::CompiledStep& step, const graph::Graph& calls,
                          const CompileOptions& options) {
  auto traced = std::make_shared<const TracedStep>(calls, options);
  const std::lock_guard lock(mutex_);
  if (kept_traces() >= kTraces) return;
  WatchedThread& thread = this_thread();
  WatchedCompiledStep& of_step = of(step);
  const bool seen = !thread.calls.empty() && thread.calls.back().step == &step;
  if (!seen && of_step.hidden > 0) {
    count_hidden(step, of_step);
    --of_step.last->step.calls;  // this call is another entry's
  }
  of_step.traced[&thread] = {std::move(traced), seen};
  looked();
}

void Watch::State::returned(core::CompiledStep& step, int index) {
  const double now = host_seconds();
  std::unique_lock lock(mutex_);
  WatchedThread& thread = this_thread();
  if (thread.calls.empty()) return;  // it was called before the watch began
  const StepCall call = thread.calls.back();
  thread.calls.pop_back();
  WatchedCompiledStep& of_step = of(step);
  keep_trace(of_step, thread, index);
  ++of_step.seen;
  if (!thread.calls.empty()) return;  // a part of another step's call
  std::unique_ptr<CallTimer> timer = std::move(thread.timer);
  if (timer) timer->end();
  if (index < 0) {
    ++of_step.eager_calls;
  } else {
    thread.eager.interrupted();
    WatchedEntry& entry = *(of_step.last = &of_step.entry(index));
    if (++entry.step.calls == kWarmCalls) {
      lock.unlock();
      const CompileReport report = step.report();
      std::vector<LaunchCost> launches = step.launches(index);
      lock.lock();
      entry.look_at(report, index, std::move(launches));
      sample(thread);
      looked();
    }
    entry.add(thread, call.time, now, timer != nullptr);
    if (timer && entry.wants_timer()) {
      entry.timed.push_back(std::move(timer));
    } else if (timer) {
      ++of_step.timed_in_vain;
    }
  }
  if (is_sampled(thread)) sampler_->begin();
  thread.returned = host_seconds();
  if (index >= 0) thread.replayed = thread.returned;
  const std::uint32_t hidden = calls_to_hide(of_step, thread.returned - now);
  if (hidden == 0 || !hide_calls(step, hidden)) return;
  of_step.hidden = hidden;
  of_step.hidden_on = &thread;
  of_step.last->last_called.front().second = 0;
  ++thread.hidden_steps;
  thread.returned = 0;  // when the next calls of this step return is not known
  if (is_sampled(thread)) sampler_->end();
}

// A trace of a call that was not seen is that of an entry that was not known then.
void Watch::State::keep_trace(WatchedCompiledStep& of_step, const WatchedThread& thread,
                              int index) {
  const auto traced = of_step.traced.find(&thread);
  if (traced == of_step.traced.end() || index < 0) return;
  WatchedEntry& entry = of_step.entry(index);
  if (!traced->second.seen && entry.step.calls > 0) return;
  if (!traced->second.seen) entry.step.calls = 1;
  entry.keep(std::move(traced->second.calls));
  of_step.traced.erase(traced);
}

// How many calls to hide before two are seen again, so that seeing takes kSeenShare of the time.
// `cost`: of seeing one call after it returned; as much again is spent before it.
std::uint32_t Watch::State::calls_to_hide(const WatchedCompiledStep& of_step, double cost) const {
  constexpr std::size_t kKnown = 1000;  // periods
  constexpr double kMany = 1e6;
  if (host_seconds() - begun_ < options_.seconds) return 0;
  const WatchedEntry* const entry = of_step.only_entry();
  if (!entry || entry->step.threads.size() != 1 || entry->periods.size() < kKnown) return 0;
  if (of_step.seen < 2) return 0;  // there is no time from one call to the next
  const double hidden = 2 * 2 * cost / (kSeenShare * entry->periods.mean());
  return static_cast<std::uint32_t>(std::min(hidden, kMany));
}

// The step's calls that were not seen, once they are over.
void Watch::State::count_hidden(core::CompiledStep& step, WatchedCompiledStep& of_step) {
  if (of_step.hidden == 0) return;
  const auto left = static_cast<std::uint32_t>(step.unseen.exchange(0));
  of_step.only_entry()->step.calls += of_step.hidden - left;
  of_step.hidden = of_step.seen = 0;
  --of_step.hidden_on->hidden_steps;
}

// One thread at a time counts the calls of its step: there is one recorder of the host.
bool Watch::State::may_count(const WatchedThread& thread) {
  for (auto& [id, other] : threads_) {
    if (&other == &thread || !other.eager.is_counting()) continue;
    if (host_seconds() - other.eager.counts_from() < kCountingSeconds) return false;
    other.eager.interrupted();  // it makes no steps any more
  }
  return true;
}

void Watch::State::updated(const void* optimizer, Device device) {
  const double now = host_seconds();
  std::unique_lock lock(mutex_);
  WatchedThread& thread = this_thread();
  const SampleRange samples = end_interval(thread);
  if (thread.updated > thread.replayed && thread.hidden_steps == 0) {
    EagerSteps::Entry& entry = thread.eager.ended(optimizer, device, now - thread.updated, samples);
    if (entry.step.name.empty()) {
      entry.step.name = "eager step";
      entry.step.threads = {thread.number};
      if (!thread.calls.empty()) {  // of a compiled step that runs eagerly
        lock.unlock();
        std::string name = thread.calls.front().step->report().name;
        lock.lock();
        entry.step.name = std::move(name);
      }
    }
    if (entry.step.calls >= kWarmCalls && !entry.cost && may_count(thread))
      thread.eager.count(slowdown_of(device));
    if (entry.step.calls == kWarmCalls) sample(thread);
    if (entry.step.calls == kWarmCalls + 1) looked();
  }
  if (is_sampled(thread)) sampler_->begin();
  thread.updated = host_seconds();
}

// What is known of a step's code is what the sampled thread did.
void Watch::State::add_code(WatchedStep& step, const std::vector<SampleRange>& ranges) const {
  if (!sampler_) return;
  step.why_no_code = sampler_->problem();
  if (!step.why_no_code.empty()) return;
  if (std::ranges::find(step.threads, sampled_->number) == step.threads.end()) {
    step.why_no_code = fmt::format("thread {} is", sampled_->number);
    return;
  }
  step.sampled = sampler_->part();
  const HostSamples all = sampler_->samples();
  std::vector<HostSample> own;
  for (const auto& [from, to] : ranges) {
    own.insert(own.end(), all.samples.begin() + static_cast<std::ptrdiff_t>(from),
               all.samples.begin() + static_cast<std::ptrdiff_t>(to));
  }
  step.code = code_lines(all, own);
}

// On the CPU the call is judged; on CUDA the time between calls, since the device works on.
void Watch::State::judge_call(WatchedEntry& entry) const {
  WatchedStep& step = entry.step;
  const CompiledEntry& compiled = *step.entry;
  const Device device = compiled.device;
  Evidence evidence{.device = device,
                    .mode = compiled.mode,
                    .step = device.is_cpu() ? step.in_call : step.period,
                    .cost = cost_of_entry(compiled, step.launches)};
  weigh(step, evidence);
  if (!(evidence.step.median > 0)) return;
  if (device.is_cuda()) evidence.host = step.in_call;
  std::vector<double> seconds;
  for (const std::unique_ptr<CallTimer>& each : entry.timed) seconds.push_back(each->seconds());
  if (!seconds.empty())
    (device.is_cuda() ? evidence.queued : evidence.in_kernels) = summarize(std::move(seconds));
  step.diagnosis = judge(evidence);
  if (step.threads.size() > 1)
    step.diagnosis->doubts.emplace_back("threads wait for one another in its calls");
}

// The entries that were looked at, those with the most time first.
std::vector<WatchedEntry*> Watch::State::looked_at() {
  std::vector<WatchedEntry*> entries;
  for (auto& [key, step] : steps_) {
    count_hidden(*key, step);
    for (const std::unique_ptr<WatchedEntry>& entry : step.entries) {
      if (!entry || !entry->step.entry) continue;
      entry->step.eager_calls = step.eager_calls;
      entries.push_back(entry.get());
    }
  }
  for (const auto& entry : finished_) entries.push_back(entry.get());
  for (WatchedEntry* const entry : entries) {
    const bool runs_ahead = entry->step.entry->device.is_cuda();
    entry->step.period = entry->periods.timing(runs_ahead);
    entry->step.in_call = entry->calls.timing(runs_ahead);
    entry->step.outside = entry->outside.timing(runs_ahead);
  }
  std::ranges::stable_sort(entries, std::ranges::greater(), &WatchedEntry::total_seconds);
  return entries;
}

double Watch::State::slowdown_of(Device device) {
  const std::int64_t key = device.is_cpu() ? -1 : device.index;
  const auto known = slowdowns_.find(key);
  if (known != slowdowns_.end()) return known->second;
  return slowdowns_[key] = host_slowdown(device, *graph::ceilings_of(device));
}

// Once for each trace.
void Watch::State::predict_others(WatchedEntry& entry) {
  if (!entry.step.others.empty()) return;
  const double start = host_seconds();
  if (!entry.traced) {
    entry.step.others = unpredicted(entry.step.mode(), "its trace was not seen");
  } else if (planning_ > std::max(kPlanningSeconds, kPlanningShare * (start - begun_))) {
    entry.step.others = unpredicted(entry.step.mode(), "planning takes too much of the run");
  } else {
    entry.step.others = entry.traced->other_modes(slowdown_of(entry.traced->device()));
    entry.traced.reset();
  }
  planning_ += host_seconds() - start;
}

std::vector<WatchedStep> Watch::State::steps() {
  const std::lock_guard lock(mutex_);
  std::vector<WatchedStep> steps;
  for (WatchedEntry* const entry : looked_at()) {
    predict_others(*entry);
    add_code(entry->step, entry->samples);
    judge_call(*entry);
    steps.push_back(entry->step);
  }
  for (auto& [id, thread] : threads_) {
    for (auto& [optimizer, entry] : thread.eager.entries()) {
      if (!entry.cost && entry.step.calls <= kWarmCalls + 1) continue;
      add_code(entry.step, entry.samples);
      entry.judge();
      steps.push_back(entry.step);
    }
  }
  std::ranges::stable_sort(steps, std::ranges::greater(), [](const WatchedStep& each) {
    return static_cast<double>(each.calls) * each.period.median;
  });
  return steps;
}

Watch::Watch(WatchOptions options) : state_(std::make_unique<State>(std::move(options))) {}
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
  // Of an eager step samples tell the time of its own code.
  const bool own_is_known = entry || !code.empty();
  if (!other.predicted || !(period.median > 0) || !own_is_known) return {};
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

}  // namespace brrr::measure
