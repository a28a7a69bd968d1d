#include "brrr/measure/step_cost.h"

#include <mutex>
#include <vector>

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
    works_.push_back(work);
  }

  // On CUDA the host runs ahead of the device, or the device waits for it. `memory`: what the step
  // touches.
  StepTime predicted(std::int64_t memory) const {
    const graph::Ceilings ceilings = ceilings_->for_step_over(memory);
    const std::int64_t overhead = device_.is_cpu() ? ceilings.call_ps : ceilings.node_ps;
    StepTime step;
    for (const graph::Work& work : works_) step += graph::time_of(work, ceilings, overhead);
    const std::int64_t host = kernels * ceilings.call_ps;
    if (step.ps() < host) step.overhead_ps += host - step.ps();
    return step;
  }
  bool calibrated() const { return ceilings_->calibrated(); }

  Cost sum;
  std::int64_t kernels = 0;

 private:
  Device device_;
  std::shared_ptr<const graph::Ceilings> ceilings_;
  std::vector<graph::Work> works_;
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
  cost.predicted = adding.predicted(cost.peak_bytes);
  cost.calibrated = adding.calibrated();
  return cost;
}

}  // namespace brrr::measure
