// Compares the measured ratio of times at twice the batch with the ratio that each regime predicts.
#include "brrr/measure/batch_doubling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "brrr/measure/text.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

// Ratios within this tolerance, or within the spread of the samples, count as equal: predicted
// ratios neglect caches and the shapes of products.
constexpr double kTolerance = 0.15;

bool alike(double a, double b, double tolerance) {
  return std::max(a, b) <= (1 + tolerance) * std::min(a, b);
}

double ratio_of(std::int64_t twice, std::int64_t once) {
  return once > 0 ? static_cast<double>(twice) / static_cast<double>(once) : 1;
}

double& of(std::array<double, 3>& list, Regime regime) {
  return list[static_cast<std::size_t>(regime)];
}

bool fits(const BatchDoubling& doubling, Regime regime) {
  return std::ranges::find(doubling.fits, regime) != doubling.fits.end();
}

std::vector<const char*> names_of(const std::vector<Regime>& regimes) {
  std::vector<const char*> names;
  for (const Regime regime : regimes) names.push_back(name_of(regime));
  return names;
}

// The explanations of the measured ratio: "bandwidth or compute", "bandwidth or the verdict's
// shares".
std::string expecting(const BatchDoubling& doubling, bool fits_shares) {
  std::vector<const char*> list = names_of(doubling.fits);
  if (fits_shares) list.push_back("the verdict's shares");
  if (list.empty()) return "no regime alone: a mixture, or a working set that left a cache";
  return fmt::format("{}", fmt::join(list, " or "));
}

std::string expectations(const BatchDoubling& doubling) {
  return fmt::format("overhead alone expects {:.2f}, bandwidth {:.2f}, compute {:.2f}",
                     doubling.expected[0], doubling.expected[1], doubling.expected[2]);
}

// A ratio that fits the verdict's shares never disagrees with the verdict, even if another regime
// alone would also explain it: a mixture of overhead and compute may look like bandwidth.
Doubling decide(Regime regime, const BatchDoubling& doubling, bool fits_shares) {
  // How code of the user grows with the work is unknown, and so it is of kernels that take more
  // than their work needs.
  if (regime == Regime::inefficient || regime == Regime::user) return Doubling::undecided;
  if (fits(doubling, regime))
    return doubling.fits.size() == 1 ? Doubling::agrees : Doubling::undecided;
  return doubling.fits.empty() || fits_shares ? Doubling::undecided : Doubling::disagrees;
}

// The rate of what the regime is about, at both batches.
std::string difference_of(Regime regime, const StepCost& once, const StepCost& twice,
                          const Timing& time_once, const Timing& time_twice) {
  const bool moves = regime == Regime::bandwidth || once.flops == 0;
  const auto rate = [&](const StepCost& cost, const Timing& timing) {
    return number_text(static_cast<double>(moves ? cost.bytes : cost.flops) * 1e-9 / timing.median);
  };
  return fmt::format("at {} {} in place of {}", rate(twice, time_twice), moves ? "GB/s" : "GFLOP/s",
                     rate(once, time_once));
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
  const double tolerance = std::max(kTolerance, time_once.spread + time_twice.spread);
  for (const Regime regime : {Regime::overhead, Regime::bandwidth, Regime::compute}) {
    if (alike(doubling.ratio, of(doubling.expected, regime), tolerance))
      doubling.fits.push_back(regime);
  }
  bool fits_shares = false;
  std::string by_shares;
  if (diagnosis.regime) {
    doubling.expected_here = 0;
    for (const Regime regime : {Regime::overhead, Regime::bandwidth, Regime::compute})
      *doubling.expected_here += diagnosis.shares->of(regime) * of(doubling.expected, regime);
    *doubling.expected_here +=
        (diagnosis.shares->inefficient + diagnosis.shares->user) *
        std::max(of(doubling.expected, Regime::bandwidth), of(doubling.expected, Regime::compute));
    fits_shares = alike(doubling.ratio, *doubling.expected_here, tolerance);
    doubling.judgement = decide(*diagnosis.regime, doubling, fits_shares);
    by_shares = fmt::format(", the verdict's shares {:.2f}", *doubling.expected_here);
    if (*diagnosis.regime != Regime::inefficient) fits_shares &= !fits(doubling, *diagnosis.regime);
  }
  doubling.text = fmt::format("twice the batch takes {:.2f} times as long, which fits {} ({}{})",
                              doubling.ratio, expecting(doubling, fits_shares),
                              expectations(doubling), by_shares);
  if (fits(doubling, Regime::overhead) && fits(doubling, Regime::bandwidth)) {
    doubling.text += fmt::format("; the bytes grow only {:.2f} times, most being weights",
                                 of(doubling.expected, Regime::bandwidth));
  }
  if (doubling.judgement == Doubling::disagrees) {
    doubling.difference = difference_of(*diagnosis.regime, once, twice, time_once, time_twice);
    doubling.text += ", " + doubling.difference;
  }
  return doubling;
}

std::string judgement_text(const BatchDoubling& doubling) {
  std::string text = kDoublings[static_cast<std::size_t>(doubling.judgement)];
  if (doubling.judgement != Doubling::undecided || doubling.fits.size() < 2) return text;
  return fmt::format("{} between {}", text, fmt::join(names_of(doubling.fits), " and "));
}

void qualify(Diagnosis& diagnosis, const BatchDoubling& doubling) {
  if (diagnosis.regime && doubling.judgement == Doubling::disagrees)
    diagnosis.caveats.push_back("twice the batch disagrees, " + doubling.difference);
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
