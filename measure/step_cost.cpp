#include "brrr/measure/step_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/observe.h"
#include "brrr/graph/ceilings.h"
#include "brrr/measure/host_recorder.h"
#include "brrr/measure/kernel_clock.h"
#include "brrr/measure/own_calls.h"
#include "brrr/measure/replays.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/error.h"

namespace brrr::measure {
namespace {

// All but FLOPs and bytes.
void add_entry(const CompiledEntry& entry, std::span<const LaunchCost> launches, StepCost& cost) {
  cost.replayed.push_back(entry);
  cost.kernels += entry.device.is_cpu() ? entry.nodes : entry.launches;
  cost.roofline += entry.roofline;
  cost.peak_bytes += static_cast<std::int64_t>(entry.scratch_bytes);
  for (const LaunchCost& launch : launches) {
    const auto type = std::ranges::find(graph::kProductTypes, launch.product);
    if (type != graph::kProductTypes.end())
      cost.product_flops[static_cast<std::size_t>(type - graph::kProductTypes.begin())] +=
          launch.flops;
  }
}

// Adds up calls; what a compiled step calls to replay an entry apart, by the entry.
class Adding : public Observer, public core::ReplayListener {
 public:
  explicit Adding(Device device) : device_(device), ceilings_(graph::ceilings_of(device)) {}

  void after(const Call& call, std::span<const Tensor> outputs) override {
    const bool works = does_work(call);
    const graph::Work work = works ? graph::work_of(call, outputs) : graph::Work{};
    const std::lock_guard lock(mutex_);
    calls_.views += !works;
    if (!works) return;
    sum += work;
    ++calls_.kernels;
    calls_.products += work.product_flops > 0;
    works_.push_back(work);
    std::string result;
    if (!outputs.empty() && outputs[0].defined())
      result =
          fmt::format("{}{}", name_of(outputs[0].dtype()), brrr::to_string(outputs[0].shape()));
    names_.emplace_back(op_info(call.op).name, std::move(result));
  }
  void called(core::CompiledStep&) override {
    const std::lock_guard lock(mutex_);
    before_.push_back({calls_, works_.size()});
  }
  void returned(core::CompiledStep& step, int entry) override {
    const std::lock_guard lock(mutex_);
    if (before_.empty()) return;  // it was called before
    const auto [calls, works] = before_.back();
    before_.pop_back();
    if (entry < 0) return;  // its calls are eager ones
    entries_.push_back({&step, entry});
    calls_ = calls;
    works_.resize(works);
    names_.resize(works);
  }

  // The calls outside of replays.
  const EagerCalls& calls() const { return calls_; }
  bool replays() const { return !entries_.empty(); }

  // Predicts the step. `memory`: the bytes that the step accesses.
  void predict(std::int64_t memory, StepCost& cost) const {
    const graph::Ceilings ceilings = ceilings_->for_kernels_over(memory);
    const graph::Ceilings full = ceilings.at_full_rates();
    for (const graph::Work& work : works_) {
      cost.eager_on_device += graph::time_of(work, ceilings, 0);
      graph::add_to(cost.roofline, work, ceilings, full);
    }
    for (const graph::Work& work : works_)
      cost.product_flops[static_cast<std::size_t>(work.type)] += work.product_flops;
    cost.calibrated = ceilings_->calibrated();
    cost.why_defaults = ceilings_->why_defaults;
    for (const ReplayedEntry& each : entries_) add_entry(each.report(), each.launches(), cost);
    predict_at(cost.host_slowdown, device_, cost);
    cost.predicted = cost.predicted_at_timed_speed;
  }

  std::vector<LaunchCost> launches() const {
    const graph::Ceilings ceilings = ceilings_->for_kernels_over(memory_stats(device_).peak);
    std::vector<LaunchCost> launches;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      const graph::Work& work = works_[i];
      LaunchCost& each = launches.emplace_back();
      std::tie(each.name, each.result) = names_[i];
      each.phase = "";
      each.bytes = work.bytes;
      each.flops = work.flops;
      each.predicted = each.by_ceilings = graph::time_of(work, ceilings, 0);
    }
    return launches;
  }

  // Runs the probe of the host's speed.
  double host_slowdown() const { return measure::host_slowdown(device_, *ceilings_); }

  Cost sum;

 private:
  Device device_;
  std::shared_ptr<const graph::Ceilings> ceilings_;
  EagerCalls calls_;
  std::vector<graph::Work> works_;
  std::vector<std::pair<std::string, std::string>> names_;  // of them: op, result
  std::vector<std::pair<EagerCalls, std::size_t>> before_;  // of compiled steps that are called
  std::vector<ReplayedEntry> entries_;
  std::mutex mutex_;
};

// The tape nodes that backward passes run. The first thread is the one that began the recording.
std::int64_t recorded_calls(const HostRecord& record, bool of_first_thread) {
  std::int64_t nodes = 0, end_of_pass = 0;
  for (const HostSpan& span : record.spans) {
    if (of_first_thread && span.thread != 0) continue;
    if (span.work != HostWork::backward) continue;
    if (span.start_ns < end_of_pass) {
      ++nodes;
    } else {
      end_of_pass = span.end_ns;
    }
  }
  return nodes;
}

}  // namespace

// On CUDA the host runs ahead of the device, or the device waits for it.
void predict_at(double timed_slowdown, Device device, StepCost& cost) {
  cost.timed_slowdown = timed_slowdown;
  const graph::EagerTimes times = slowed(graph::ceilings_of(device)->eager, timed_slowdown, device);
  StepTime eager = cost.timed_on_device.value_or(cost.eager_on_device);
  eager.overhead_ps = cost.eager.kernels * times.queued_ps;
  cost.on_device = cost.eager_on_device;
  cost.on_device.overhead_ps = eager.overhead_ps;
  const std::int64_t host = cost.eager.ps(times);
  const std::int64_t meanwhile = device.is_cpu() ? eager.overhead_ps : eager.ps();
  if (meanwhile < host) eager.overhead_ps += host - meanwhile;
  for (const CompiledEntry& entry : cost.replayed) {
    cost.on_device += entry.by_ceilings;
    eager += entry.predicted;
  }
  cost.predicted_at_timed_speed = eager;
}

void predict_from(std::span<const LaunchCost> kernels, double slowdown, Device device,
                  StepCost& cost) {
  StepTime& sum = cost.timed_on_device.emplace();
  for (const LaunchCost& each : kernels) {
    KernelTime kernel = each.predicted;
    kernel.overhead_ps = 0;  // of a replay
    sum += kernel;
  }
  cost.host_slowdown = slowdown;
  predict_at(slowdown, device, cost);
  cost.predicted = cost.predicted_at_timed_speed;
}

// Of two probes of the host the faster one counts: what disturbs a probe makes it slower.
void predict_from(std::span<const LaunchCost> kernels, Device device, StepCost& cost) {
  const double now = host_slowdown(device, *graph::ceilings_of(device));
  predict_from(kernels, std::min(cost.host_slowdown, now), device, cost);
}

Mode mode_of(const StepCost& cost) {
  return cost.replayed.empty() ? Mode::eager : cost.replayed.front().mode;
}

StepCost cost_of_entry(const CompiledEntry& entry, std::span<const LaunchCost> launches) {
  StepCost cost;
  for (const LaunchCost& launch : launches) {
    cost.bytes += launch.bytes;
    cost.flops += launch.flops;
  }
  add_entry(entry, launches, cost);
  cost.on_device = entry.by_ceilings;
  cost.predicted = cost.predicted_at_timed_speed = entry.predicted;
  cost.calibrated = entry.calibrated;
  return cost;
}

struct RunningCost::State {
  State(Device on, Threads whose, std::optional<double> slowdown)
      : device(on),
        threads(whose),
        adding(on),
        host_slowdown(slowdown ? *slowdown : adding.host_slowdown()) {}

  Device device;
  Threads threads;
  Adding adding;
  double host_slowdown;
  std::optional<OwnCalls> own;
  std::optional<Observing> observing;
  bool recording = false;
  std::int64_t recorded = 0;
};

RunningCost::RunningCost(Device device, Threads threads, std::optional<double> slowdown)
    : state_(std::make_unique<State>(device, threads, slowdown)) {}
RunningCost::~RunningCost() { end(); }

void RunningCost::begin() {
  State& state = *state_;
  try {
    HostRecorder::instance().start(state.device, nullptr);
    state.recording = true;
  } catch (const Error&) {
    // Another recording.
  }
  if (state.threads == Threads::all) {
    state.observing.emplace(state.adding);
  } else {
    state.observing.emplace(state.own.emplace(state.adding));
  }
}

void RunningCost::end() {
  State& state = *state_;
  state.observing.reset();
  if (std::exchange(state.recording, false))
    state.recorded = recorded_calls(HostRecorder::instance().stop(), state.threads == Threads::own);
}

core::ReplayListener& RunningCost::listener() { return state_->adding; }

StepCost RunningCost::cost(std::optional<CudaLaunches> launches) const {
  const State& state = *state_;
  StepCost cost;
  cost.host_slowdown = state.host_slowdown;
  cost.eager = state.adding.calls();
  cost.eager.recorded = state.recorded;
  cost.kernels = cost.eager.kernels;
  // A replay launches copies as well; calls beside it are counted by what they compute.
  if (launches && !state.adding.replays()) {
    cost.kernels = launches->all;
    cost.eager.library = launches->library;
  }
  cost.peak_bytes = memory_stats(state.device).peak;
  cost += state.adding.sum;
  state.adding.predict(cost.peak_bytes, cost);
  return cost;
}

std::vector<LaunchCost> RunningCost::calls() const { return state_->adding.launches(); }

StepCost cost_of_step(Device device, const std::function<void()>& step) {
  RunningCost running(device);
  reset_peak_memory(device);
  const auto work = [&] {
    const ListeningToReplays listening(running.listener());
    running.begin();
    step();
    running.end();
  };
  if (device.is_cuda()) return running.cost(cuda_launches(work));
  work();
  return running.cost();
}

Timing share_in_kernels(const std::function<void()>& step, long calls, int samples) {
  const Batch untraced = host_batch(step);
  std::vector<double> shares;
  for (int i = 0; i < samples; ++i) {
    const double whole = untraced(calls);
    KernelClock clocking;
    {
      const Observing observing(clocking);
      for (long n = 0; n < calls; ++n) step();
    }
    shares.push_back(clocking.seconds() / whole);
  }
  return summarize(std::move(shares));
}

}  // namespace brrr::measure
