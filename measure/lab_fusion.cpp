// Experiments on what pointwise ops cost as parts of other kernels, and alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "brrr/measure/lab_experiments.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/counted.h"

namespace brrr::measure::lab {
namespace {

constexpr const char* kModeNames[] = {"eager", "graph", "fused"};

// Pointwise ops onto another op, in each mode.
struct Fusion {
  const char* name;
  double elements;      // that the pointwise ops compute
  double eager, fused;  // accesses for each of them: in a kernel for each op, in one
  InModes modes;

  double accessed(std::size_t mode) const { return modes.steps[mode].bytes / 4 / elements; }
  // By operands and results: what a kernel leaves for the next is written and read.
  double expected(std::size_t mode) const {
    if (mode != static_cast<std::size_t>(Mode::fused)) return eager;
    return fused + 2 * static_cast<double>(modes.steps[mode].kernels - 1);
  }
  std::string text(std::size_t mode) const {
    const PreparedStep& step = modes.steps[mode];
    const double seconds = modes.timings[mode].median;
    return fmt::format("{} {} us, {} MB in {} at {} GB/s and {} GFLOP/s", kModeNames[mode],
                       number_text(seconds * 1e6), number_text(step.bytes * 1e-6),
                       counted(step.kernels, "kernel"), number_text(step.bytes / seconds * 1e-9),
                       number_text(step.flops / seconds * 1e-9));
  }
};

// sum(square(relu(x))) over rows: each op reads what the one before wrote.
Fusion onto_reduction(const LabOptions& options) {
  constexpr std::int64_t kRow = 1024;
  const std::int64_t rows = pass_elements(options) / kRow;
  // The result is written, and eagerly copied to the caller's.
  return {.name = "reduction",
          .elements = static_cast<double>(rows * kRow),
          .eager = 5 + 3.0 / kRow,
          .fused = 1 + 1.0 / kRow,
          .modes = time_modes(options, [&]() -> Step {
            return [x = rand({rows, kRow}, here(options)),
                    y = empty({rows}, here(options))]() mutable {
              copy_(y, sum(square(relu(x)), -1));
            };
          })};
}

// relu(x w + b): few flops an element, so that the accesses of bias and relu count.
Fusion onto_product(const LabOptions& options) {
  constexpr std::int64_t kDepth = 32, kWidth = 512;
  const std::int64_t rows = pass_elements(options) / kWidth / (options.device.is_cpu() ? 4 : 1);
  const auto elements = static_cast<double>(rows * kWidth);
  const double fused = 1 + static_cast<double>(rows * kDepth + kDepth * kWidth + kWidth) / elements;
  return {.name = "product",
          .elements = elements,
          .eager = fused + 6,
          .fused = fused,
          .modes = time_modes(options, [&]() -> Step {
            return [x = rand({rows, kDepth}, here(options)), b = rand({kWidth}, here(options)),
                    w = rand({kDepth, kWidth}, here(options)),
                    y = empty({rows, kWidth}, here(options))]() mutable {
              copy_(y, relu(matmul(x, w) + b));
            };
          })};
}

void add_readings(const Fusion& fusion, Finding& finding) {
  const auto name = [&](std::string_view what) { return fmt::format("{}: {}", fusion.name, what); };
  const auto fused = static_cast<std::size_t>(Mode::fused);
  const std::int64_t kernels = fusion.modes.steps[fused].kernels;
  finding.readings.push_back(
      {.name = name("kernels, fused"),
       .value = static_cast<double>(kernels),
       .claim = Interval{1, 1},
       .miss = name(fmt::format("by the times of both forms fusion keeps {}, so that each element "
                                "is written and read {} more",
                                counted(kernels, "kernel"), counted(kernels - 1, "time")))});
  for (std::size_t i = 0; i < 3; ++i) {
    const double expected = fusion.expected(i);
    finding.readings.push_back(
        {.name = name(fmt::format("accesses an element, {}", kModeNames[i])),
         .value = fusion.accessed(i),
         .claim = Interval{0.999 * expected, 1.001 * expected},
         .miss = name(fmt::format("operands and results are {} accesses an element; {}",
                                  number_text(expected), fusion.text(i)))});
    finding.readings.push_back(microseconds(name(kModeNames[i]), fusion.modes.timings[i]));
  }
  // As the accesses fall; less where flops or launches take a part of the fused time.
  const double ratio = fusion.accessed(0) / fusion.accessed(fused);
  finding.readings.push_back(
      {.name = name("eager over fused"),
       .value = fusion.modes.speed_up(Mode::fused),
       .claim = Interval{ratio / 2, ratio * 1.25},
       .spread = fusion.modes.spread(),
       .miss = name(fmt::format(
           "accesses fall {} times, and do not bind alike: eager {} GB/s, "
           "fused {}",
           number_text(ratio),
           number_text(fusion.modes.steps[0].bytes / fusion.modes.timings[0].median * 1e-9),
           number_text(fusion.modes.steps[fused].bytes / fusion.modes.timings[fused].median *
                       1e-9)))});
}

}  // namespace

Finding fusion_onto(const LabOptions& options) {
  Finding finding;
  std::vector<std::string> parts;
  for (const auto& make : {onto_reduction, onto_product}) {
    options.progress(parts.empty() ? "onto a reduction" : "onto a product");
    const Fusion fusion = make(options);
    add_readings(fusion, finding);
    parts.push_back(fmt::format("{}: {}; {}", fusion.name, fusion.text(0), fusion.text(2)));
  }
  finding.why = fmt::format("{}", fmt::join(parts, "; "));
  return finding;
}

Finding activations(const LabOptions& options) {
  using Function = Tensor (*)(const Tensor&);
  constexpr std::pair<const char*, Function> kFunctions[] = {
      {"relu", relu}, {"sigmoid", sigmoid},     {"tanh", tanh},        {"silu", silu},
      {"gelu", gelu}, {"gelu_tanh", gelu_tanh}, {"softplus", softplus}};
  const Tensor x = rand({pass_elements(options)}, here(options)) * 4.0 - 2.0;
  std::vector<Batch> batches;
  for (const auto& [name, f] : kFunctions)
    batches.push_back(device_batch(options.device, [x, f = f] { f(x); }));
  const BandwidthLimit copy = copy_limit(options);
  batches.push_back(copy.batch);
  const std::vector<Timing> t = time_all(batches, options.sampling());
  const double bandwidth = copy.bytes / t.back().median;
  const auto share = [&](std::size_t i) {
    return 100 * 2 * static_cast<double>(x.bytes()) / t[i].median / bandwidth;
  };
  const auto rate = [&](std::size_t i) {
    return number_text(static_cast<double>(x.numel()) / t[i].median * 1e-9);
  };
  Finding finding;
  std::vector<std::string> shares;
  for (std::size_t i = 0; i < std::size(kFunctions); ++i) {
    const char* name = kFunctions[i].first;
    finding.readings.push_back(microseconds(name, t[i]));
    shares.push_back(fmt::format("{} {:.0f} %", name, share(i)));
    if (i == 0) continue;
    finding.readings.push_back(
        {.name = fmt::format("{} over relu", name),
         .value = t[i].median / t[0].median,
         .article = 1,
         .claim = Interval{0.8, 1.2},
         .spread = std::max(t[i].spread, t[0].spread),
         .miss = fmt::format("{} computes: {} G elements a second of the {} that relu's accesses "
                             "allow",
                             name, rate(i), rate(0))});
  }
  finding.why = fmt::format("of a copy's bandwidth, {} GB/s, they use: {}",
                            number_text(bandwidth * 1e-9), fmt::join(shares, ", "));
  return finding;
}

}  // namespace brrr::measure::lab
