#include "brrr/measure/watch_eager.h"

#include <algorithm>

#include "brrr/measure/mode_predictions.h"

namespace brrr::measure {

EagerSteps::Entry& EagerSteps::ended(const void* optimizer, Device device, double seconds,
                                     SampleRange samples) {
  Entry& entry = entries_[optimizer];
  const bool observed = cost_ || clock_;
  if (cost_ && !entry.cost) {
    cost_->end();
    entry.cost = cost_->cost();
    entry.step.launches = cost_->calls();
  }
  observing_.reset();
  if (clock_) entry.in_kernels.push_back(clock_->seconds());
  interrupted();
  entry.step.device = device;
  if (++entry.step.calls > kWarmCalls && !observed) entry.periods.add(seconds);
  if (samples.first < samples.second) entry.samples.push_back(samples);
  device_ = device;
  const std::int64_t calls = entry.step.calls;
  if (entry.cost && device.is_cpu() && calls >= kFirstTimedCall &&
      entry.in_kernels.size() < static_cast<std::size_t>(kTimedCalls)) {
    clock_.emplace();
    own_.emplace(*clock_);
    observing_.emplace(*own_);
  }
  return entry;
}

void EagerSteps::interrupted() {
  observing_.reset();
  clock_.reset();
  cost_.reset();
}

void EagerSteps::count(double slowdown) {
  cost_.emplace(device_, RunningCost::Threads::own, slowdown);
  cost_->begin();
  counts_from_ = host_seconds();
}

void EagerSteps::Entry::judge() {
  step.period = periods.timing(step.device.is_cuda());
  if (cost) {
    step.predicted = cost->predicted;
    step.others = other_modes(step.launches, step.device);
    step.peak_bytes = cost->peak_bytes;
  } else {
    step.others = unpredicted(Mode::eager, "its calls were not counted, but another thread's");
  }
  if (!step.why_no_code.empty()) return;  // what part of it is in brrr is not known
  const Timing kernels = in_kernels.empty() ? Timing{} : summarize(in_kernels);
  const double own = step.outside_share();
  step.outside = step.in_call = step.period;
  for (double Timing::*each : {&Timing::median, &Timing::least, &Timing::most}) {
    step.outside.*each *= own;
    // Samples are coarse: the kernels' time was measured.
    step.in_call.*each =
        std::min(std::max((1 - own) * step.period.*each, kernels.least), step.period.*each);
  }
  if (!cost || step.device.is_cuda() || !(step.in_call.median > 0) || in_kernels.empty()) return;
  Evidence evidence{.device = step.device,
                    .mode = Mode::eager,
                    .step = step.in_call,
                    .in_kernels = kernels,
                    .cost = *cost};
  weigh(step, evidence);
  step.diagnosis = measure::judge(evidence);
}

}  // namespace brrr::measure
