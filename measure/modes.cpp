// Scores of predictions, and the verdict on several modes.
#include "brrr/measure/modes.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/measure/bench.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

// Times that differ by less count as equal.
constexpr double kSame = 0.05;

std::string microseconds(double seconds) { return number_text(seconds * 1e6); }

}  // namespace

double ComparedMode::error() const { return predicted.seconds() / measured.median - 1; }

bool is_faster(const Timing& step, const Timing& other) {
  return (1 + kSame) * step.median < other.median;
}

double gain_over(const Timing& slow, const Diagnosis& of_slow, const Timing& step) {
  const double user = of_slow.shares ? of_slow.shares->user : 0;
  const double least = std::max(step.median, user * slow.median);
  return (1 + kSame) * least < slow.median ? slow.median / least : 1;
}

bool order_is_right(std::span<const ComparedMode> modes) {
  for (const ComparedMode& fast : modes) {
    for (const ComparedMode& slow : modes) {
      const double noise = std::max({kSame, fast.measured.spread, slow.measured.spread});
      if (slow.measured.median <= (1 + noise) * fast.measured.median) continue;
      if (slow.predicted.ps() < fast.predicted.ps()) return false;
    }
  }
  return true;
}

std::string verdict_on(std::span<const ComparedMode> modes) {
  if (modes.empty()) fail("[verdict_on] expected at least one mode, got none");
  const ComparedMode& first = modes.front();
  if (!first.diagnosis.regime) return "";
  const ComparedMode& fastest = *std::ranges::min_element(
      modes, {}, [](const ComparedMode& mode) { return mode.measured.median; });
  const std::string start = fmt::format("{} is {}", first.name, regime_text(first.diagnosis));
  if (gain_over(first.measured, first.diagnosis, fastest.measured) == 1) {
    const char* const others = modes.size() > 1 ? ", and no other mode is faster by 5 %" : "";
    return fmt::format("{}{}; {}", start, others, first.diagnosis.advice);
  }
  const std::string& advice = fastest.diagnosis.advice;
  return fmt::format("{}; {}, predicted to take {} us in place of {}, takes {} and is {}{}", start,
                     fastest.name, microseconds(fastest.predicted.seconds()),
                     microseconds(first.measured.median), microseconds(fastest.measured.median),
                     regime_text(fastest.diagnosis), advice.empty() ? "" : "; " + advice);
}

}  // namespace brrr::measure
