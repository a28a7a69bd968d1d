#include "brrr/measure/step_cost.h"

#include <mutex>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/observe.h"
#include "brrr/tensor/allocator.h"

namespace brrr::measure {
namespace {

class Adding : public Observer {
 public:
  void after(const Call& call, std::span<const Tensor> outputs) override {
    const Cost one = brrr::cost_of(call, outputs);
    const std::lock_guard lock(mutex_);
    sum += one;
    kernels += does_work(call);
  }

  Cost sum;
  std::int64_t kernels = 0;

 private:
  std::mutex mutex_;
};

}  // namespace

StepCost cost_of_step(Device device, const std::function<void()>& step) {
  StepCost cost;
  Adding adding;
  const auto observed = [&] {
    const Observing observing(adding);
    step();
  };
  reset_peak_memory(device);
  if (device.is_cpu()) {
    observed();
    cost.kernels = adding.kernels;
  } else {
    cost.kernels = cuda_launches(observed);
  }
  cost.peak_bytes = memory_stats(device).peak;
  cost += adding.sum;
  return cost;
}

}  // namespace brrr::measure
