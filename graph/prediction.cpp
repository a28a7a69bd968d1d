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

// A kernel of this time, divided as the model divides it.
KernelTime of_time(std::int64_t ps, const KernelTime& model) {
  KernelTime time = model;
  time.overhead_ps = std::min(ps, model.overhead_ps);
  const std::int64_t work = ps - time.overhead_ps,
                     modelled = std::max(model.moving_ps, model.computing_ps);
  const double part = modelled > 0 ? static_cast<double>(work) / static_cast<double>(modelled) : 0;
  for (std::int64_t* each : {&time.moving_ps, &time.computing_ps})
    *each = std::llround(static_cast<double>(*each) * part);
  if (modelled == 0) time.moving_ps = work;
  return time;
}

StepTime time_of_step(std::span<const Launch> launches, const Plan& plan, Device device,
                      const Prediction& prediction) {
  StepTime step;
  if (device.is_cuda()) {
    step = longest_chain(launches, plan, prediction.kernels);
    const StepTime& least = prediction.roofline.bound;
    if (step.ps() < least.ps()) step = least;
  } else {
    for (const KernelTime& kernel : prediction.kernels) step += kernel;
  }
  step.overhead_ps += prediction.ceilings->replay_ps;
  return step;
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
  result.step = time_of_step(launches, plan, device, result);
  if (device.is_cuda()) scale(result.roofline.growing, in_order, result.step);
  result.by_ceilings = result.kernels;
  result.step_by_ceilings = result.step;
  return result;
}

void use_times(std::span<const std::optional<std::int64_t>> times, std::span<const Launch> launches,
               const Plan& plan, Device device, Prediction& prediction) {
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i]) prediction.kernels[i] = of_time(*times[i], prediction.by_ceilings[i]);
  }
  prediction.step = time_of_step(launches, plan, device, prediction);
  prediction.measured = true;
}

std::vector<LaunchCost> describe_launches(const Graph& graph, std::span<const Launch> launches,
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
    if (launch.node->module >= 0) cost.module = graph.modules[launch.node->module];
    cost.phase = name_of(launch.node->role);
    cost.site = launch.node->site;
    cost.bytes = work.bytes;
    cost.flops = work.flops;
    if (work.product_flops > 0) cost.product = kProductTypes[static_cast<std::size_t>(work.type)];
    cost.predicted = prediction.kernels[i];
    cost.by_ceilings = prediction.by_ceilings[i];
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

std::string prediction_text(const Prediction& prediction) {
  const std::string& why = prediction.ceilings->why_defaults;
  const std::string ceilings =
      why.empty() ? "calibrated ceilings" : fmt::format("default ceilings ({})", why);
  return fmt::format("predicted by {}: {}", prediction.measured ? "times of its kernels" : ceilings,
                     to_string(prediction.step));
}

}  // namespace brrr::graph
