// Experiments on memory bandwidth: what fusion saves, and where compute binds instead.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "brrr/measure/lab_experiments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"

namespace brrr::measure::lab {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

// Writes f(x) to a tensor that exists: the results of a replay on CUDA would be copied.
Step into_result(const LabOptions& options, const Function& f) {
  const Tensor x = rand({large(options)}, here(options));
  return [x, f, result = empty_like(x)]() mutable { copy_(result, f(x)); };
}

// A fused kernel of f, timed by the device.
struct TimedKernel {
  PreparedStep step;
  Batch batch;
};
TimedKernel fused_kernel(const LabOptions& options, const Function& f) {
  TimedKernel kernel;
  kernel.step = prepare(options.device, into_result(options, f), Mode::fused, Rounding::fast);
  kernel.batch = device_batch(options.device, kernel.step.call);
  return kernel;
}

// `count` times a * 0.75 + 0.25, or a * 0.75. Long ones are independent chains, which are summed:
// one chain waits for its own results. Each op has many operations, to keep fused groups small.
Tensor repeated(const Tensor& x, int count, bool adds) {
  constexpr int kTogether = 16, kMostChains = 8;
  const auto together = [](const char* name, const char* add) {
    std::string expression = "a";
    for (int i = 0; i < kTogether; ++i) expression = fmt::format("({}) * 0.75{}", expression, add);
    return register_op({.name = name, .expression = expression});
  };
  static const Op multiply_adds = together("sixteen_multiply_adds", " + 0.25"),
                  multiplies = together("sixteen_multiplies", "");
  std::vector<Tensor> chains(
      static_cast<std::size_t>(std::clamp(count / kTogether, 1, kMostChains)), x);
  for (std::size_t i = 1; i < chains.size(); ++i)
    chains[i] = x * (1 - 0.01 * static_cast<double>(i));
  for (std::size_t i = 0; count > 0; ++i) {
    Tensor& y = chains[i % chains.size()];
    if (count >= kTogether)
      y = call_op(adds ? multiply_adds : multiplies, {y});
    else
      y = adds ? y * 0.75 + 0.25 : y * 0.75;
    count -= count >= kTogether ? kTogether : 1;
  }
  Tensor sum = chains[0];
  for (std::size_t i = 1; i < chains.size(); ++i) sum = sum + chains[i];
  return sum;
}

// What a copy and multiply-adds reach, per second.
struct MeasuredCeilings {
  double bandwidth = 0, flops = 0, spread = 0;

  // Flops for each element that is read and written, 4 bytes each, at which both take as long.
  double break_even() const { return flops / (bandwidth / 8); }
};
MeasuredCeilings measure_ceilings(const LabOptions& options) {
  const BandwidthLimit copy = copy_limit(options);
  const MultiplyAdds multiply_adds = multiply_add_limit(options);
  const auto [moved, computed] = time_both(copy.batch, multiply_adds.batch, options.sampling());
  return {copy.bytes / moved.median, multiply_adds.flops / computed.median,
          std::max(moved.spread, computed.spread)};
}

}  // namespace

Finding accesses(const LabOptions& options) {
  // In place: an allocated result would have to be copied to compare modes.
  const auto make = [&]() -> Step {
    return [x = rand({large(options)}, here(options))]() mutable { cos_(cos_(x)); };
  };
  const InModes modes = time_modes(options, make);
  const BandwidthLimit copy = copy_limit(options);
  const Timing copied = time(copy.batch, options.sampling());
  const auto elements = static_cast<double>(large(options));
  constexpr const char* kModes[] = {"eager", "graph", "fused"};
  constexpr double kAccesses[] = {4, 4, 2};
  Finding finding;
  for (std::size_t i = 0; i < 3; ++i) {
    finding.readings.push_back(
        {.name = fmt::format("accesses an element, {}", kModes[i]),
         .value = modes.steps[i].bytes / 4 / elements,
         .article = kAccesses[i],
         .claim = Interval{kAccesses[i], kAccesses[i]},
         .miss = fmt::format("{}, {} kernels move {} MB", kModes[i], modes.steps[i].kernels,
                             number_text(modes.steps[i].bytes * 1e-6))});
    finding.readings.push_back(microseconds(kModes[i], modes.timings[i]));
  }
  const auto rate = [&](std::size_t i) {
    return number_text(modes.steps[i].bytes / modes.timings[i].median * 1e-9);
  };
  const auto accessing = [&](std::size_t i) {
    return modes.steps[i].bytes / (copy.bytes / copied.median) * 1e6;
  };
  finding.readings.push_back(
      {.name = "eager over fused",
       .value = modes.speed_up(Mode::fused),
       .article = 2,
       .claim = Interval{1.6, 2.6},
       .spread = modes.spread(),
       .miss = fmt::format(
           "at the copy's rate the accesses of a fused step take {:.0f} us of {:.0f}, those of an "
           "eager one {:.0f} of {:.0f}; the rest is the time of the cosines, which fusion does not "
           "shorten",
           accessing(2), modes.timings[2].median * 1e6, accessing(0),
           modes.timings[0].median * 1e6)});
  finding.why =
      fmt::format("the fused kernel moves {} GB/s and eager calls {}, where a copy moves {}",
                  rate(2), rate(0), number_text(copy.bytes / copied.median * 1e-9));
  return finding;
}

Finding fused_cost(const LabOptions& options) {
  const std::pair<const char*, Function> functions[] = {
      {"cos", [](const Tensor& x) { return cos(x); }},
      {"cos of cos", [](const Tensor& x) { return cos(cos(x)); }}};
  std::vector<TimedKernel> kernels;
  std::vector<Batch> batches;
  for (const auto& [name, f] : functions) {
    kernels.push_back(fused_kernel(options, f));
    batches.push_back(kernels.back().batch);
  }
  const BandwidthLimit copy = copy_limit(options);
  batches.push_back(copy.batch);
  const std::vector<Timing> t = time_all(batches, options.sampling());
  Finding finding;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    finding.readings.push_back(microseconds(functions[i].first, t[i]));
  const auto share = [&](std::size_t i) {
    return 100 * (kernels[i].step.bytes / t[i].median) / (copy.bytes / t.back().median);
  };
  finding.readings.push_back(
      {.name = "cos of cos over cos",
       .value = t[1].median / t[0].median,
       .article = 1,
       .claim = Interval{0.8, 1.2},
       .spread = std::max(t[0].spread, t[1].spread),
       .miss = fmt::format("at a copy's rate the accesses of cos of cos take {:.0f} % of its time; "
                           "in the rest it computes",
                           share(1))});
  finding.why = fmt::format(
      "of a copy's bandwidth, cos uses {:.0f} % and cos of cos {:.0f} %: only a kernel at nearly "
      "100 % takes the time of its accesses and no more",
      share(0), share(1));
  return finding;
}

Finding break_even(const LabOptions& options) {
  const MeasuredCeilings ceilings = measure_ceilings(options);
  // The article's A100: 19.5 TFLOP/s, 1.5 TB/s.
  const double a100 = MeasuredCeilings{.bandwidth = 1.5e12, .flops = 19.5e12}.break_even();
  Finding finding;
  finding.readings = {
      {.name = "bandwidth of a copy",
       .value = ceilings.bandwidth * 1e-9,
       .unit = "GB/s",
       .article = 1500,
       .spread = ceilings.spread},
      {.name = "multiply-adds f32",
       .value = ceilings.flops * 1e-9,
       .unit = "GFLOP/s",
       .article = 19500,
       .spread = ceilings.spread},
      {.name = "flops an element before compute binds",
       .value = ceilings.break_even(),
       .article = a100,
       .claim = Interval{50, 200},
       .spread = ceilings.spread,
       .miss = fmt::format("this device computes {} flops in the time of a byte, the article's "
                           "A100 {}",
                           number_text(ceilings.break_even() / 8), number_text(a100 / 8))}};
  finding.why = fmt::format(
      "an element is 4 bytes read and 4 written: {} GFLOP/s over {} G elements a second",
      number_text(ceilings.flops * 1e-9), number_text(ceilings.bandwidth / 8 * 1e-9));
  return finding;
}

namespace {

// What kernels of more and more flops an element take and reach.
struct RepeatSweep {
  Series time_us{"run time, us", {}}, rate{"GFLOP/s", {}}, bandwidth{"GB/s", {}};
  double spread = 0;

  double best_rate() const {
    return std::ranges::max(rate.points, {}, &std::pair<double, double>::second).second;
  }
};
RepeatSweep sweep_of_repeats(const LabOptions& options) {
  const int last = options.quick ? 256 : 512;
  const auto elements = static_cast<double>(large(options));
  RepeatSweep sweep;
  for (int count = 1; count <= last; count *= options.quick ? 4 : 2) {
    options.progress(fmt::format("repeat {}", count));
    const TimedKernel kernel =
        fused_kernel(options, [=](const Tensor& x) { return repeated(x, count, true); });
    const Timing timing = time(kernel.batch, options.sampling());
    sweep.spread = std::max(sweep.spread, timing.spread);
    const double flops = kernel.step.flops / elements, seconds = timing.median;
    sweep.time_us.points.emplace_back(flops, seconds * 1e6);
    sweep.rate.points.emplace_back(flops, flops * elements / seconds * 1e-9);
    sweep.bandwidth.points.emplace_back(flops, 8 * elements / seconds * 1e-9);
  }
  return sweep;
}

}  // namespace

Finding repeat(const LabOptions& options) {
  const MeasuredCeilings ceilings = measure_ceilings(options);
  const RepeatSweep sweep = sweep_of_repeats(options);
  const auto& [time_us, rate, bandwidth, spread] = sweep;
  const double best = sweep.best_rate();
  // Where the flat part at the first point's bandwidth meets the best rate.
  const double knee = best / (bandwidth.points[0].second / 8);
  const std::size_t at_eight = options.quick ? 1 : 2;
  Finding finding;
  finding.readings = {
      {.name = "run time at 8 flops an element over that at 2",
       .value = time_us.points[at_eight].second / time_us.points[0].second,
       .article = 1,
       .claim = Interval{0.8, 1.25},
       .spread = spread,
       .miss = fmt::format("at 2 flops an element the kernel moves {} GB/s, at 8 {}",
                           number_text(bandwidth.points[0].second),
                           number_text(bandwidth.points[at_eight].second))},
      {.name = "knee, flops an element",
       .value = knee,
       .article = 64,
       .claim = Interval{16, 256},
       .spread = spread,
       .miss = fmt::format("the knee is {} GFLOP/s, the best rate, over {} G elements a second",
                           number_text(best), number_text(bandwidth.points[0].second / 8))},
      {.name = "bandwidth at 2 flops, of a copy's",
       .value = 100 * bandwidth.points[0].second * 1e9 / ceilings.bandwidth,
       .unit = "%",
       .claim = Interval{80, 130},
       .spread = ceilings.spread,
       .miss = fmt::format("the kernel moves {} GB/s, a copy {}",
                           number_text(bandwidth.points[0].second),
                           number_text(ceilings.bandwidth * 1e-9))},
      {.name = "best rate, of multiply-adds in registers",
       .value = 100 * best * 1e9 / ceilings.flops,
       .unit = "%",
       .claim = Interval{80, 125},
       .spread = std::max(spread, ceilings.spread),
       .miss = fmt::format(
           "kernels reach {} GFLOP/s with loads and stores, multiply-adds in registers {}{}",
           number_text(best), number_text(ceilings.flops * 1e-9),
           rate.points.back().second < 0.8 * best
               ? "; longer chains are slower, since the operations of a chain wait for one another"
               : "")}};
  finding.why = fmt::format(
      "the best rate is {} GFLOP/s and the last {}; by the ceilings of this machine the knee is at "
      "{:.0f} flops an element",
      number_text(best), number_text(rate.points.back().second), ceilings.break_even());
  finding.plot = Plot{"flops an element", {time_us, rate, bandwidth}};
  return finding;
}

Finding multiply_add(const LabOptions& options) {
  const int count = options.device.is_cpu() ? 64 : 256;
  const auto kernel = [&](bool adds) {
    return fused_kernel(options, [=](const Tensor& x) { return repeated(x, count, adds); });
  };
  const TimedKernel multiply = kernel(false), both = kernel(true);
  const auto [alone, together] = time_both(multiply.batch, both.batch, options.sampling());
  const double operations = count * static_cast<double>(large(options)) * 1e-9;
  const double alone_rate = operations / alone.median,
               together_rate = 2 * operations / together.median;
  Finding finding;
  finding.readings = {
      {.name = "multiplications",
       .value = alone_rate,
       .unit = "GFLOP/s",
       .article = 9750,
       .spread = alone.spread},
      {.name = "multiply-adds",
       .value = together_rate,
       .unit = "GFLOP/s",
       .article = 19500,
       .spread = together.spread},
      {.name = "multiplications over multiply-adds",
       .value = alone_rate / together_rate,
       .article = 0.5,
       .claim = Interval{0.4, 0.6},
       .spread = std::max(alone.spread, together.spread),
       .miss = fmt::format("{}: as many multiply-adds take {} times as long",
                           options.device.is_cpu()
                               ? "kernels on the CPU multiply and add in 2 instructions, so that "
                                 "all modes round alike"
                               : "a multiply-add is 1 instruction",
                           number_text(together.median / alone.median))}};
  finding.why =
      fmt::format("{} multiplications an element take {:.0f} us and as many multiply-adds {:.0f}",
                  count, alone.median * 1e6, together.median * 1e6);
  return finding;
}

}  // namespace brrr::measure::lab
