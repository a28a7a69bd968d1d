#include "brrr/measure/step_cost.h"

#include <mutex>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/observe.h"
#include "brrr/graph/ceilings.h"
#include "brrr/tensor/allocator.h"

namespace brrr::measure {
namespace {

class Adding : public Observer {
 public:
  explicit Adding(Device device) : device_(device), ceilings_(graph::ceilings_of(device)) {}

  void after(const Call& call, std::span<const Tensor> outputs) override {
    if (!does_work(call)) return;
    const graph::Work work = graph::work_of(call, outputs);
    const std::lock_guard lock(mutex_);
    sum += work;
    ++kernels;
    time_ += graph::time_of(work, *ceilings_,
                            device_.is_cpu() ? ceilings_->call_ps : ceilings_->node_ps);
  }

  // On CUDA the host runs ahead of the device, or the device waits for it.
  StepTime predicted() const {
    StepTime step = time_;
    const std::int64_t host = kernels * ceilings_->call_ps;
    if (step.ps() < host) step.overhead_ps += host - step.ps();
    return step;
  }
  bool calibrated() const { return ceilings_->calibrated(); }

  Cost sum;
  std::int64_t kernels = 0;

 private:
  Device device_;
  std::shared_ptr<const graph::Ceilings> ceilings_;
  StepTime time_;
  std::mutex mutex_;
};

}  // namespace

StepCost cost_of_step(Device device, const std::function<void()>& step) {
  StepCost cost;
  Adding adding(device);
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
  cost.predicted = adding.predicted();
  cost.calibrated = adding.calibrated();
  return cost;
}

}  // namespace brrr::measure
