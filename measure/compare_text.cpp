#include "brrr/measure/compare_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "brrr/measure/bench.h"
#include "brrr/measure/text.h"
#include "brrr/measure/verdict_text.h"

namespace brrr::measure {
namespace {

// The largest part of a predicted step: "compute (71 %)".
std::string bound_text(const StepTime& step) {
  const std::pair<std::int64_t, const char*> parts[] = {{step.overhead_ps, "overhead"},
                                                        {step.bandwidth_ps, "bandwidth"},
                                                        {step.compute_ps, "compute"}};
  const auto& [ps, name] = *std::ranges::max_element(parts);
  const double all = static_cast<double>(std::max<std::int64_t>(step.ps(), 1));
  return fmt::format("{} ({:.0f} %)", name, 100 * static_cast<double>(ps) / all);
}

std::string microseconds_text(const std::optional<Timing>& timing) {
  return timing ? number_text(timing->median * 1e6) : "-";
}

}  // namespace

std::vector<std::string> agreement_lines(const Comparison& comparison) {
  std::vector<std::string> lines;
  const Side& base = comparison.sides.front();
  const std::vector<double>& losses = base.losses;
  if (const Side* const side = comparison.disagreement()) {
    lines.push_back(fmt::format("{} and {} differ at step {}", base.name, side->name,
                                *side->agreement.broken_at));
  }
  if (const auto step = comparison.divergence) {
    lines.push_back(fmt::format("not finite at step {}: the training diverged", *step));
  } else if (!comparison.disagreement() && !losses.empty()) {
    std::string bits, close;
    for (std::size_t i = 1; i < comparison.sides.size(); ++i) {
      const Side& side = comparison.sides[i];
      if (side.agreement.is_of_bits()) {
        bits += fmt::format(", {}", side.name);
      } else {
        close += fmt::format("; {} within {:.1e} of the largest loss (at most {:g})", side.name,
                             side.agreement.largest, side.agreement.bound);
      }
    }
    lines.push_back(fmt::format("{}{} agree bit for bit over {} steps, {:.6g} to {:.6g}{}",
                                base.name, bits, losses.size(), losses.front(), losses.back(),
                                close));
  }
  return lines;
}

std::vector<std::vector<std::string>> comparison_table(const Comparison& comparison) {
  const Side& eager = comparison.sides.front();
  std::vector<std::vector<std::string>> rows = {{"", "step, us", "predicted", "least", "most",
                                                 "speed-up", "kernels", "moved", "peak memory",
                                                 "arena"}};
  if (eager.host) rows[0].insert(rows[0].end(), {"host, us", "device, us", "idle"});
  for (const Side& side : comparison.sides) {
    const Timing& step = *side.step;
    rows.push_back({side.name + (step.disturbed() ? " ~" : ""), number_text(step.median * 1e6),
                    number_text(side.cost->predicted.seconds() * 1e6),
                    number_text(step.least * 1e6), number_text(step.most * 1e6),
                    fmt::format("{:.2f}", comparison.speed_up(side)),
                    std::to_string(side.cost->kernels), bytes_text(side.cost->bytes),
                    bytes_text(side.cost->peak_bytes),
                    side.compiled ? bytes_text(side.compiled->arena_bytes) : "-"});
    if (!side.host) continue;
    rows.back().insert(rows.back().end(),
                       {microseconds_text(side.host), microseconds_text(side.device),
                        side.idle() ? fmt::format("{:.0f} %", *side.idle() * 100) : "-"});
  }
  return rows;
}

std::string host_speed_text(const Comparison& comparison) {
  const Side& eager = comparison.sides.front();
  const StepCost& cost = *eager.cost;
  const double again = cost.predicted_at_timed_speed.seconds();
  return fmt::format(
      "small calls took {:.2f} times their calibrated time when {} was predicted, {:.2f} while "
      "steps were timed; for that speed {} us are predicted ({:+.0f} %, not scored)",
      cost.host_slowdown, eager.name, cost.timed_slowdown, number_text(again * 1e6),
      100 * (again / eager.step->median - 1));
}

std::string details_text(const Comparison& comparison) {
  const Side& eager = comparison.sides.front();
  std::string text;
  line(text, comparison.name, comparison.describes);
  for (const std::string& each : agreement_lines(comparison)) line(text, "losses", each);
  const std::vector<std::vector<std::string>> rows = comparison_table(comparison);
  for (const std::string& row : aligned(rows)) text += row + "\n";
  if (std::ranges::any_of(comparison.sides, [](const Side& s) { return s.step->disturbed(); }))
    text += kDisturbed;
  std::vector<std::string> bounds;
  for (const Side& side : comparison.sides) {
    bounds.push_back(fmt::format("{}: {}", side.name, bound_text(side.cost->predicted)));
  }
  line(text, "predicted",
       fmt::format("{}; by the times of kernels and {}, before any step was timed",
                   fmt::join(bounds, ", "),
                   eager.cost->calibrated ? "this machine's ceilings"
                                          : "default ceilings (brrr calibrate measures them)"));
  if (eager.cost->calibrated) line(text, "host's speed", host_speed_text(comparison));
  if (eager.host) {
    text +=
        "host: until the call of a step returns; device: a step that was queued before it started;"
        "\nidle: the fraction of a step in which the device waits for the host\n";
  }
  for (const Tried& each : comparison.tried)
    line(text, "tried", fmt::format("on {}: {}", comparison.fastest().name, to_string(each)));
  return text + verdict_text(comparison);
}

}  // namespace brrr::measure
