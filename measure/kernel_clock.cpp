#include "brrr/measure/kernel_clock.h"

#include <algorithm>

#include "brrr/dispatch/cost.h"
#include "brrr/measure/timing.h"

namespace brrr::measure {

void KernelClock::before(const Call& call) {
  if (does_work(call)) start();
}

void KernelClock::after(const Call& call, std::span<const Tensor>) {
  const double now = host_seconds();
  if (does_work(call)) stop(now);
}

double KernelClock::seconds() const {
  const std::lock_guard lock(mutex_);
  return std::max(0.0, seconds_ - calls_ * seconds_of_clock());
}

void KernelClock::start() {
  const std::lock_guard lock(mutex_);
  double& start = starts_[std::this_thread::get_id()];
  start = host_seconds();
}

void KernelClock::stop(double now) {
  const std::lock_guard lock(mutex_);
  seconds_ += now - starts_[std::this_thread::get_id()];
  ++calls_;
}

double KernelClock::seconds_of_clock() {
  constexpr int kPairs = 1000;
  static const double seconds = [] {
    KernelClock empty;
    for (int i = 0; i < kPairs; ++i) {
      empty.start();
      empty.stop(host_seconds());
    }
    return empty.seconds_ / kPairs;
  }();
  return seconds;
}

}  // namespace brrr::measure
