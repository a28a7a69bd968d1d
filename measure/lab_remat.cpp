// The experiment on rematerialization: where a step is bound by memory bandwidth, values that are
// computed again in the backward pass, rather than kept, lower its memory and its time.
#include <fmt/format.h>

#include <array>

#include "brrr/autograd/autograd.h"
#include "brrr/measure/lab_experiments.h"
#include "brrr/ops/functions.h"

namespace brrr::measure::lab {
namespace {

constexpr int kRounds = 10;

std::int64_t elements_of(const LabOptions& options) {
  if (options.quick) return 1 << 16;
  return std::int64_t{1} << (options.device.is_cpu() ? 22 : 25);
}

// Forward and backward through rounds of h -> 3 h (1 - h), whose gradients read each h: few FLOPs a
// byte, and a value of each round to keep. h stays between 0 and 1.
Step chain_of_rounds(const LabOptions& options) {
  const Options here{.dtype = f32, .device = options.device};
  return [x = requires_grad_(rand({elements_of(options)}, here))] {
    zero_grad(x);
    Tensor h = x;
    for (int round = 0; round < kRounds; ++round) h = h * (1.0 - h) * 3.0;
    backward(sum(h));
  };
}

struct Variant {
  const char* name;
  Mode mode;
  Remat remat;
};
constexpr std::array<Variant, 6> kVariants = {
    {{"graph, every value kept", Mode::graph, Remat::none()},
     {"graph, min_cut", Mode::graph, Remat::min_cut()},
     {"graph, full", Mode::graph, Remat::full()},
     {"fused, every value kept", Mode::fused, Remat::none()},
     {"fused, min_cut", Mode::fused, Remat::min_cut()},
     {"fused, full", Mode::fused, Remat::full()}}};
enum : std::size_t { graph_kept = 0, graph_full = 2, fused_kept = 3, fused_cut = 4, fused_full = 5 };

}  // namespace

Finding recomputation(const LabOptions& options) {
  std::array<PreparedStep, kVariants.size()> steps;
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < kVariants.size(); ++i) {
    options.progress(kVariants[i].name);
    steps[i] = prepare(options.device, chain_of_rounds(options), kVariants[i].mode, Rounding::eager,
                       kVariants[i].remat);
    batches.push_back(device_batch(options.device, steps[i].call));
  }
  options.progress("timing");
  const std::vector<Timing> timings = time_all(batches, options.sampling());
  const auto memory = [&](std::size_t i) {
    return static_cast<double>(steps[i].entry->arena_bytes) / (1 << 20);
  };
  Finding finding;
  for (std::size_t i = 0; i < kVariants.size(); ++i) {
    finding.readings.push_back(microseconds(kVariants[i].name, timings[i]));
    finding.readings.push_back({.name = fmt::format("{}: memory", kVariants[i].name),
                                .value = memory(i),
                                .unit = "MiB"});
  }
  const double spread = std::max(timings[fused_kept].spread, timings[fused_cut].spread);
  finding.readings.push_back({.name = "time of fused min_cut over every value kept",
                              .value = timings[fused_cut].median / timings[fused_kept].median,
                              .claim = Interval{0, 0.95},
                              .spread = spread});
  finding.readings.push_back({.name = "memory of fused min_cut over every value kept",
                              .value = memory(fused_cut) / memory(fused_kept),
                              .claim = Interval{0, 0.5}});
  const auto bytes = [&](std::size_t i) { return steps[i].bytes / (1 << 20); };
  finding.why = fmt::format(
      "fused kernels that compute {} rounds again move {} MiB in place of {}, with {} of {} Mflop; "
      "replayed call by call, what is computed again is moved again: {} in place of {} MiB by full",
      kRounds, number_text(bytes(fused_cut)), number_text(bytes(fused_kept)),
      number_text(steps[fused_cut].flops * 1e-6), number_text(steps[fused_kept].flops * 1e-6),
      number_text(bytes(graph_full)), number_text(bytes(graph_kept)));
  return finding;
}

}  // namespace brrr::measure::lab
