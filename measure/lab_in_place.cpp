// The experiment on two tricks, by the accesses that they save: ops in place, and gradients that
// are dropped rather than zeroed.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/measure/lab_experiments.h"
#include "brrr/ops/functions.h"

namespace brrr::measure::lab {
namespace {

struct Trick {
  const char* name;
  double accesses;  // of an element, by operands and results
  PreparedStep step;
  double besides = 0;  // accesses of single numbers, for each element: less than this
};

// x = x + y.
std::vector<Trick> additions_of(const LabOptions& options) {
  Tensor x = rand({pass_elements(options)}, here(options)), y = rand_like(x);
  const auto eager = [&](Step step) {
    return prepare(options.device, std::move(step), Mode::eager);
  };
  return {{"in place", 3, eager([x, y]() mutable { add_(x, y); })},
          {"to a new tensor", 3, eager([x, y] { add(x, y); })},
          {"to a new tensor, copied back", 5, eager([x, y]() mutable { copy_(x, add(x, y)); })}};
}

// The gradient of sum(w c) with respect to w, which is c: a product writes it, and a gradient that
// exists is added to.
std::vector<Trick> gradients_of(const LabOptions& options) {
  const auto eager = [&](bool drop) {
    const Tensor w = requires_grad_(rand({pass_elements(options)}, here(options))),
                 c = rand_like(w);
    return prepare(
        options.device,
        [w, c, drop] {
          Tensor gradient = grad(w);
          if (drop || !gradient.defined())
            zero_grad(w);
          else
            zero_(gradient);
          gradient = {};
          backward(sum(w * c));
        },
        Mode::eager);
  };
  return {{"gradients dropped", 6, eager(true), 0.001},
          {"gradients zeroed", 10, eager(false), 0.001}};
}

}  // namespace

Finding in_place(const LabOptions& options) {
  std::vector<Trick> tricks = additions_of(options);
  std::ranges::move(gradients_of(options), std::back_inserter(tricks));
  std::vector<Batch> batches;
  for (const Trick& each : tricks) batches.push_back(device_batch(options.device, each.step.call));
  const std::vector<Timing> t = time_all(batches, options.sampling());
  const auto elements = static_cast<double>(pass_elements(options));
  Finding finding;
  for (std::size_t i = 0; i < tricks.size(); ++i) {
    const Trick& one = tricks[i];
    finding.readings.push_back(
        {.name = fmt::format("accesses an element, {}", one.name),
         .value = one.step.bytes / 4 / elements,
         .claim = Interval{one.accesses, one.accesses + one.besides},
         .miss = fmt::format("{}: {} kernels move {} MB", one.name, one.step.kernels,
                             number_text(one.step.bytes * 1e-6))});
    finding.readings.push_back(microseconds(one.name, t[i]));
    finding.why += fmt::format("{}{} {} GB/s", i == 0 ? "" : ", ", one.name,
                               number_text(one.step.bytes / t[i].median * 1e-9));
  }
  // The times are as the accesses, where these bind.
  const auto compare = [&](std::size_t more, std::size_t less) {
    const Trick &longer = tricks[more], &shorter = tricks[less];
    const double accesses = longer.accesses / shorter.accesses;
    finding.readings.push_back(
        {.name = fmt::format("time, {} over {}", longer.name, shorter.name),
         .value = t[more].median / t[less].median,
         .claim = Interval{accesses / 1.4, accesses * 1.4},
         .spread = std::max(t[more].spread, t[less].spread),
         .miss = fmt::format("by accesses {} would take {} times as long as {}, but they move {} "
                             "and {} GB/s",
                             longer.name, number_text(accesses), shorter.name,
                             number_text(longer.step.bytes / t[more].median * 1e-9),
                             number_text(shorter.step.bytes / t[less].median * 1e-9))});
  };
  compare(1, 0);
  compare(2, 0);
  compare(4, 3);
  finding.why = "moved: " + finding.why;
  if (options.device.is_cpu()) {
    finding.why +=
        "; the CPU reads a line that is only written as well, so that an addition to a "
        "new tensor makes 4 accesses";
  }
  return finding;
}

}  // namespace brrr::measure::lab
