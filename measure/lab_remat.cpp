// The experiment on rematerialization: where a step is bound by memory bandwidth, values that are
// computed again in the backward pass, rather than kept, lower its memory and its time.
#include <fmt/format.h>

#include <array>
#include <vector>

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

Tensor input_of(const LabOptions& options) {
  return rand({elements_of(options)}, {.dtype = f32, .device = options.device});
}

// h -> 3 h (1 - h): few FLOPs a byte, and its gradient reads h. h stays between 0 and 1.
Tensor round_of(const Tensor& h) { return h * (1.0 - h) * 3.0; }

// Forward and backward through the rounds. The gradient depends on a mean of all elements, so no
// kernel computes both passes.
Step chain_of_rounds(const LabOptions& options) {
  return [x = requires_grad_(input_of(options))] {
    zero_grad(x);
    Tensor h = x;
    for (int round = 0; round < kRounds; ++round) h = round_of(h);
    backward(square(mean(h)));
  };
}

// A step, and the memory between its kernels in bytes.
struct Variant {
  const char* name;
  PreparedStep step;
  double memory = 0;
};

Variant compiled(const LabOptions& options, const char* name, Mode mode, Remat remat) {
  options.progress(name);
  Variant variant{name,
                  prepare(options.device, chain_of_rounds(options), mode, Rounding::eager, remat)};
  variant.memory = static_cast<double>(variant.step.entry->arena_bytes);
  return variant;
}

// The two passes fused separately, so that the backward pass has to read the value of each round:
// fusion of both together computes pointwise values again under every policy.
Variant fused_separately(const LabOptions& options) {
  const char* name = "fused, every value kept";
  options.progress(name);
  std::vector<Tensor> kept = {input_of(options)};  // of each round its input
  for (int round = 1; round < kRounds; ++round) kept.push_back(empty_like(kept[0]));
  Tensor average = mean(kept[0]), gradient = empty_like(kept[0]);
  const auto forward = [kept, average]() mutable {
    Tensor h = kept[0];
    for (std::size_t round = 0; round < kept.size(); ++round) {
      if (round > 0) copy_(kept[round], h);
      h = round_of(h);
    }
    copy_(average, mean(h));
  };
  const auto backward = [kept, average, gradient]() mutable {
    Tensor g = average * (2.0 / static_cast<double>(gradient.numel()));
    for (std::size_t round = kept.size(); round-- > 0;) g = g * (1.0 - kept[round] * 2.0) * 3.0;
    copy_(gradient, g);
  };
  const PreparedStep first = prepare(options.device, forward, Mode::fused),
                     second = prepare(options.device, backward, Mode::fused);
  Variant variant{name, second};
  variant.step.call = [first, second] {
    first.call();
    second.call();
  };
  variant.step.bytes += first.bytes;
  variant.step.flops += first.flops;
  // The caller has the input anyway.
  variant.memory = static_cast<double>(first.entry->arena_bytes + second.entry->arena_bytes) +
                   4.0 * (kRounds - 1) * static_cast<double>(elements_of(options));
  return variant;
}

double mib(double bytes) { return bytes / (1 << 20); }

}  // namespace

Finding recomputation(const LabOptions& options) {
  const std::array<Variant, 5> variants = {
      {compiled(options, "call by call, every value kept", Mode::graph, Remat::none()),
       compiled(options, "call by call, recomputed", Mode::graph, Remat::full()),
       fused_separately(options),
       compiled(options, "fused, recomputed by min_cut", Mode::fused, Remat::min_cut()),
       compiled(options, "fused, recomputed by full", Mode::fused, Remat::full())}};
  const Variant &unfused_kept = variants[0], &unfused = variants[1], &kept = variants[2],
                &recomputed = variants[3];
  std::vector<Batch> batches;
  for (const Variant& each : variants)
    batches.push_back(device_batch(options.device, each.step.call));
  options.progress("timing");
  const std::vector<Timing> t = time_all(batches, options.sampling());
  Finding finding;
  for (std::size_t i = 0; i < variants.size(); ++i)
    finding.readings.push_back(microseconds(variants[i].name, t[i]));
  for (const Variant& each : variants) {
    finding.readings.push_back(
        {.name = fmt::format("{}: memory", each.name), .value = mib(each.memory), .unit = "MiB"});
  }
  finding.readings.push_back(
      {.name = "time, recomputed over kept, fused",
       .value = t[3].median / t[2].median,
       .claim = Interval{0, 0.95},
       .spread = std::max(t[3].spread, t[2].spread),
       .miss = fmt::format("{} kernels that recompute reach {} GB/s, {} that keep {}",
                           recomputed.step.kernels,
                           number_text(recomputed.step.bytes / t[3].median * 1e-9),
                           kept.step.kernels, number_text(kept.step.bytes / t[2].median * 1e-9))});
  finding.readings.push_back(
      {.name = "memory, recomputed over kept, fused",
       .value = recomputed.memory / kept.memory,
       .claim = Interval{0, 0.5},
       .miss = fmt::format("{} MiB recomputed, {} kept", number_text(mib(recomputed.memory)),
                           number_text(mib(kept.memory)))});
  finding.readings.push_back({.name = "time, recomputed over kept, call by call",
                              .value = t[1].median / t[0].median,
                              .spread = std::max(t[1].spread, t[0].spread)});
  const auto number = [](double value) { return number_text(value); };
  finding.why = fmt::format(
      "fused, {} rounds recomputed move {} MiB in place of {}, for {} Mflop in place of {}: {} "
      "GFLOP/s, where keeping moves {} GB/s; call by call the values computed again are moved as "
      "well, {} MiB in place of {}, so that memory alone falls",
      kRounds, number(mib(recomputed.step.bytes)), number(mib(kept.step.bytes)),
      number(recomputed.step.flops * 1e-6), number(kept.step.flops * 1e-6),
      number(recomputed.step.flops / t[3].median * 1e-9),
      number(kept.step.bytes / t[2].median * 1e-9), number(mib(unfused.step.bytes)),
      number(mib(unfused_kept.step.bytes)));
  return finding;
}

}  // namespace brrr::measure::lab
