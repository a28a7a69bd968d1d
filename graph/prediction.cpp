#include "brrr/graph/prediction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace brrr::graph {
namespace {

// The longest chain of launches that wait for one another.
StepTime longest_chain(std::span<const Launch> launches, const Plan& plan,
                       std::span<const KernelTime> kernels) {
  std::vector<StepTime> ends(plan.predecessors.size());  // the chain that ends with each call
  std::vector<int> last(plan.lanes, -1);
  const auto longer = [](const StepTime& a, const StepTime& b) { return a.ps() < b.ps() ? b : a; };
  StepTime longest;
  std::size_t next = 0;
  for (std::size_t call = 0; call < ends.size(); ++call) {
    StepTime end;
    for (const int before : plan.predecessors[call]) end = longer(end, ends[before]);
    if (next < launches.size() && launches[next].index == static_cast<int>(call)) {
      int& of_lane = last[plan.lane[call]];
      if (of_lane >= 0) end = longer(end, ends[of_lane]);
      of_lane = static_cast<int>(call);
      end += kernels[next++];
    }
    ends[call] = end;
    longest = longer(longest, end);
  }
  return longest;
}

// Scales `growing` to the step: if kernels overlap, the step's time grows by less than the sum of
// theirs.
void scale(StepTime& growing, const StepTime& in_order, const StepTime& step) {
  const auto kernels = [](const StepTime& t) {
    return static_cast<double>(t.bandwidth_ps + t.compute_ps);
  };
  if (kernels(step) >= kernels(in_order)) return;
  const double part = kernels(step) / kernels(in_order);
  for (std::int64_t* ps : {&growing.bandwidth_ps, &growing.compute_ps})
    *ps = std::llround(static_cast<double>(*ps) * part);
}

}  // namespace

Prediction predict(std::span<const Launch> launches, const Plan& plan, Device device,
                   std::int64_t bytes_touched) {
  Prediction result;
  result.ceilings = ceilings_of(device);
  const Ceilings ceilings = result.ceilings->for_kernels_over(bytes_touched);
  const Ceilings full = ceilings.at_full_rates();  // small kernels together fill the device
  StepTime in_order;
  for (const Launch& launch : launches) {
    const Work work = work_of(launch.call, launch.results(), launch.node->body.get());
    result.kernels.push_back(time_of(work, ceilings, ceilings.node_ps));
    in_order += result.kernels.back();
    add_to(result.roofline, work, ceilings, full);
  }
  result.step = in_order;
  if (device.is_cuda()) {
    result.step = longest_chain(launches, plan, result.kernels);
    const StepTime& least = result.roofline.bound;
    if (result.step.ps() < least.ps()) result.step = least;
    scale(result.roofline.growing, in_order, result.step);
  }
  result.step.overhead_ps += ceilings.replay_ps;
  return result;
}

std::vector<LaunchCost> describe_launches(std::span<const Launch> launches,
                                          const Prediction& prediction) {
  std::vector<LaunchCost> costs;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Launch& launch = launches[i];
    const Work work = work_of(launch.call, launch.results(), launch.node->body.get());
    LaunchCost& cost = costs.emplace_back();
    cost.name = launch.body ? fmt::format("{}", fmt::join(launch.node->fused, ", ")) : launch.name;
    if (!launch.results().empty()) {
      const Tensor& result = launch.results()[0];
      cost.result = fmt::format("{}{}", name_of(result.dtype()), brrr::to_string(result.shape()));
    }
    cost.bytes = work.bytes;
    cost.flops = work.flops;
    if (work.product_flops > 0) cost.product = kProductTypes[static_cast<std::size_t>(work.type)];
    cost.predicted = prediction.kernels[i];
  }
  return costs;
}

std::string to_string(const StepTime& step) {
  const double all = static_cast<double>(std::max<std::int64_t>(step.ps(), 1));
  const auto share = [&](std::int64_t ps) { return 100 * static_cast<double>(ps) / all; };
  return fmt::format("{:.3g} us: {:.0f} % overhead, {:.0f} % bandwidth, {:.0f} % compute",
                     all * 1e-6, share(step.overhead_ps), share(step.bandwidth_ps),
                     share(step.compute_ps));
}

const char* name_of_origin(const Ceilings& ceilings) {
  return ceilings.calibrated() ? "calibrated" : "default";
}

}  // namespace brrr::graph
