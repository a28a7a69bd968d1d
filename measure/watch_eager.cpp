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
  begin_next(entry);
  return entry;
}

void EagerSteps::interrupted() {
  observing_.reset();
  clock_.reset();
  cost_.reset();
}

void EagerSteps::begin_next(const Entry& last) {
  const std::int64_t calls = last.step.calls;
  if (calls >= kWarmCalls && !last.cost) {
    cost_.emplace(last.step.device);
    cost_->begin();
  } else if (last.step.device.is_cpu() && calls >= kFirstTimedCall &&
             calls < kFirstTimedCall + kTimedCalls) {
    clock_.emplace();
    observing_.emplace(*clock_);
  }
}

void EagerSteps::Entry::judge() {
  step.period = periods.timing(step.device.is_cuda());
  if (!cost) return;
  step.predicted = cost->predicted;
  step.others = other_modes(step.launches, step.device);
  step.peak_bytes = cost->peak_bytes;
  const Timing kernels = in_kernels.empty() ? Timing{} : summarize(in_kernels);
  const double own = step.outside_share();
  step.outside = step.in_call = step.period;
  for (double Timing::*each : {&Timing::median, &Timing::least, &Timing::most}) {
    step.outside.*each *= own;
    // Samples are coarse: the kernels' time was measured.
    step.in_call.*each =
        std::min(std::max((1 - own) * step.period.*each, kernels.least), step.period.*each);
  }
  if (step.device.is_cuda() || !(step.in_call.median > 0) || in_kernels.empty()) return;
  Evidence evidence{.device = step.device,
                    .mode = Mode::eager,
                    .step = step.in_call,
                    .in_kernels = kernels,
                    .cost = *cost};
  weigh(step, evidence);
  step.diagnosis = measure::judge(evidence);
}

}  // namespace brrr::measure
