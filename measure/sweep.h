// Steps drawn at random, in all modes: whether fused is ever slower than graph, how far predictions
// are off, whether modes agree. No step is named, so nothing can be fitted to one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/graph/compile.h>
#include <brrr/measure/agreement.h>
#include <brrr/measure/bench.h>
#include <brrr/measure/timing.h>

namespace brrr::measure {

struct SweepOptions : BenchOptions {
  std::int64_t count = 20;
  std::optional<std::int64_t> only;  // this step of the seed alone, counted from 0
  double seconds = 0.4;              // of timing, for each mode of a step
};

// A step in one mode, timed in two rounds: what they differ by is noise.
struct SweptMode {
  Mode mode = Mode::eager;
  Timing rounds[2];
  double predicted = 0;  // seconds, before the step was timed
  double start = 0;      // seconds until the second call has returned: trace, plan, compilation
  std::int64_t kernels = 0;
  Agreement agreement;

  double seconds() const { return (rounds[0].median + rounds[1].median) / 2; }
  double spread() const;
  // The relative error of the prediction: -0.1 is 10 % too short.
  double error() const { return predicted / seconds() - 1; }
};

struct SweptStep {
  std::int64_t number = 0;
  std::string name;
  std::vector<SweptMode> modes;  // eager, graph, fused
  std::string failure;           // what a mode threw; such a step has no figures

  // How much slower one mode is than another, less what the two rounds differ by: 0.03 is 3 %.
  double behind(std::size_t mode, std::size_t other) const;
  bool agrees() const;
};

// The most that fused may be behind graph before a step counts, and the least difference of two
// modes that has an order.
double tolerance(Device device);
constexpr double kLeastDifference = 0.03;

struct Errors {
  double median = 0, nine_in_ten = 0, worst = 0;
};

struct SweepSummary {
  int steps = 0;  // that have figures
  std::vector<const SweptStep*> failed, disagreeing, behind;
  double gain = 0;                   // median of graph over fused
  Errors errors[3];                  // absolute, by mode
  int ordered = 0, right_order = 0;  // pairs of modes
  double start[3] = {};              // median seconds
};
SweepSummary summarize(std::span<const SweptStep> steps, Device device);

void sweep(const SweepOptions& options, std::vector<SweptStep>& steps);

// One result for each step and mode, whose limit is its prediction, and the summary's figures.
Results results_of(std::span<const SweptStep> steps, Device device);

}  // namespace brrr::measure
