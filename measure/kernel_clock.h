// A clock around each kernel that observed calls run on the CPU.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <thread>

#include <brrr/dispatch/observe.h>

namespace brrr::measure {

// Measures the time between `before` and `after` of calls with a kernel. These calls do not nest,
// since ops called by an op are not observed.
class KernelClock : public core::Observer {
 public:
  void before(const core::Call& call) override;
  void after(const core::Call& call, std::span<const Tensor> outputs) override;

  // Minus the cost of reading the clock.
  double seconds() const;

 private:
  void start();
  void stop(double now);
  static double seconds_of_clock();

  mutable std::mutex mutex_;
  std::map<std::thread::id, double> starts_;
  double seconds_ = 0;
  int calls_ = 0;
};

}  // namespace brrr::measure
