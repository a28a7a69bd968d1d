// The ratio of times that each regime expects of twice the batch, and what was measured.
#include "brrr/measure/batch_doubling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

// Ratios of times that differ by less are the same: costs leave out caches and the shape of
// products.
constexpr double kTolerance = 1.25;

bool alike(double a, double b) { return std::max(a, b) <= kTolerance * std::min(a, b); }

double ratio_of(std::int64_t twice, std::int64_t once) {
  return once > 0 ? static_cast<double>(twice) / static_cast<double>(once) : 1;
}

double& of(std::array<double, 3>& list, Regime regime) {
  return list[static_cast<std::size_t>(regime)];
}

// The regimes whose expectation the measured ratio fits: "overhead or bandwidth".
std::string fitting(const BatchDoubling& doubling) {
  std::vector<const char*> names;
  for (std::size_t i = 0; i < kRegimes.size(); ++i) {
    if (alike(doubling.ratio, doubling.expected[i])) names.push_back(kRegimes[i]);
  }
  if (names.empty()) return "a mixture, or a working set that left a cache";
  if (names.size() == kRegimes.size()) return "any regime";
  return fmt::format("{}", fmt::join(names, " or "));
}

std::string expectations(const BatchDoubling& doubling) {
  return fmt::format("overhead alone expects {:.2f}, bandwidth {:.2f}, compute {:.2f}",
                     doubling.expected[0], doubling.expected[1], doubling.expected[2]);
}

void decide(Regime regime, BatchDoubling& doubling) {
  const std::string measured =
      fmt::format("twice the batch takes {:.2f} times as long", doubling.ratio);
  if (!alike(doubling.ratio, *doubling.expected_here)) {
    doubling.judgement = Doubling::disagrees;
    doubling.text = fmt::format("{}, where the verdict expects {:.2f}: that is {} ({})", measured,
                                *doubling.expected_here, fitting(doubling), expectations(doubling));
    return;
  }
  const double overhead = of(doubling.expected, Regime::overhead),
               bandwidth = of(doubling.expected, Regime::bandwidth);
  if (regime != Regime::compute && alike(overhead, bandwidth) && alike(doubling.ratio, bandwidth)) {
    doubling.judgement = Doubling::undecided;
    doubling.text = fmt::format(
        "{}, as the verdict expects; but the bytes grow only {:.2f} times, most being weights: "
        "this does not tell overhead from bandwidth",
        measured, bandwidth);
    return;
  }
  doubling.judgement = Doubling::agrees;
  doubling.text = fmt::format("{}, as the verdict expects ({:.2f}; {})", measured,
                              *doubling.expected_here, expectations(doubling));
}

}  // namespace

BatchDoubling judge_doubling(const Diagnosis& diagnosis, const StepCost& once,
                             const StepCost& twice, const Timing& time_once,
                             const Timing& time_twice) {
  if (!(time_once.median > 0) || !(time_twice.median > 0)) {
    fail("[judge_doubling] expected times of two steps, got {} and {} s", time_once.median,
         time_twice.median);
  }
  BatchDoubling doubling;
  doubling.ratio = time_twice.median / time_once.median;
  of(doubling.expected, Regime::overhead) = ratio_of(twice.kernels, once.kernels);
  of(doubling.expected, Regime::bandwidth) = ratio_of(twice.bytes, once.bytes);
  of(doubling.expected, Regime::compute) = ratio_of(twice.flops, once.flops);
  if (time_once.disturbed() || time_twice.disturbed()) {
    doubling.text = fmt::format("samples spread by {:.0f} %",
                                100 * std::max(time_once.spread, time_twice.spread));
    return doubling;
  }
  if (!diagnosis.regime) {
    doubling.text =
        fmt::format("twice the batch takes {:.2f} times as long, which looks like {} ({})",
                    doubling.ratio, fitting(doubling), expectations(doubling));
    return doubling;
  }
  doubling.expected_here = 0;
  for (const Regime regime : {Regime::overhead, Regime::bandwidth, Regime::compute})
    *doubling.expected_here += diagnosis.shares->of(regime) * of(doubling.expected, regime);
  decide(*diagnosis.regime, doubling);
  return doubling;
}

BatchDoubling double_batch(Device device, const Diagnosis& diagnosis,
                           const std::function<void()>& step, const StepCost& once,
                           const std::function<void()>& doubled, const StepCost& twice,
                           const Sampling& sampling) {
  const auto [time_once, time_twice] =
      time_both(synchronized_batch(device, step), synchronized_batch(device, doubled), sampling);
  return judge_doubling(diagnosis, once, twice, time_once, time_twice);
}

}  // namespace brrr::measure
