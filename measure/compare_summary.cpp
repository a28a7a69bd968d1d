// The first lines of a comparison. They fit a terminal of 80 columns; details_text has the rest.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "brrr/measure/bench.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/text.h"
#include "brrr/measure/verdict_text.h"

namespace brrr::measure {
namespace {

constexpr std::size_t kColumns = 80, kTitle = 9;
// Shares that are stated.
constexpr double kVisible = 0.005;
// Parts of a step that are named.
constexpr double kWorthALine = 0.03;

// At most `width` characters; `text` has no others than ASCII.
std::string clipped(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

std::string titled(const char* title, const std::string& text) {
  return fmt::format("{:<{}}{}\n", title, kTitle, clipped(text, kColumns - kTitle));
}

// The time that this machine's ceilings allow for a step's work.
double at_best(const Side& side) { return side.cost->roofline.bound.seconds(); }

std::string in_colors(const std::string& bar) {
  std::string text;
  for (std::size_t i = 0; i < bar.size(); ++i) {
    if (i == 0 || bar[i] != bar[i - 1]) {
      const auto shown = std::ranges::find(kShownShares, bar[i], &ShownShare::letter);
      if (shown != std::end(kShownShares)) text += shown->color;
    }
    text += bar[i];
  }
  return text + "\033[0m";
}

// What the letters of the bars mean, as long as there is room.
std::string legend(const Comparison& comparison, std::size_t width) {
  const auto has = [&](double Shares::*part) {
    return std::ranges::any_of(comparison.sides, [part](const Side& side) {
      return side.diagnosis.shares && (*side.diagnosis.shares).*part > kVisible;
    });
  };
  const std::string further = std::string(has(&Shares::inefficient) ? " ! slow" : "") +
                              (has(&Shares::user) ? " u yours" : "");
  const std::string text = "o overhead = bandwidth # compute" + further;
  return text.size() <= width ? text : clipped("o host = bytes # FLOPs" + further, width);
}

std::string rows_text(const Comparison& comparison, bool in_color) {
  std::size_t names = kTitle - 2;
  double slowest = 0;
  for (const Side& side : comparison.sides) {
    names = std::max(names, side.name.size());
    slowest = std::max(slowest, side.step->median);
  }
  const std::size_t width = kColumns - std::min<std::size_t>(names, 30) - 2 - 9 - 2 - 9 - 2 - 9;
  std::string text = fmt::format("{:<{}}  {:>9}  {:>9}  {:<{}}{:>9}\n", "", names, "step",
                                 "predicted", legend(comparison, width), width, "of peak");
  for (const Side& side : comparison.sides) {
    const double seconds = side.step->median;
    const auto length = std::max(1.0, std::round(static_cast<double>(width) * seconds / slowest));
    const std::string bar = side.diagnosis.shares
                                ? bar_of(*side.diagnosis.shares, static_cast<std::size_t>(length))
                                : std::string(static_cast<std::size_t>(length), '?');
    text += fmt::format("{:<{}}  {:>9}  {:>9}  {}{:<{}}{:>9}\n", side.name, names,
                        time_text(seconds) + (side.step->disturbed() ? "~" : ""),
                        time_text(side.cost->predicted.seconds()), in_color ? in_colors(bar) : bar,
                        "", width - bar.size(), percent_text(at_best(side) / seconds));
  }
  return text;
}

std::string losses_text(const Comparison& comparison) {
  if (comparison.divergence || comparison.disagreement())
    return fmt::format("{}", fmt::join(agreement_lines(comparison), "; "));
  const std::size_t steps = comparison.sides.front().losses.size();
  std::vector<std::string> close;
  for (const Side& side : comparison.sides) {
    if (side.agreement.largest > 0)
      close.push_back(fmt::format("{} within {:.0e}", side.name, side.agreement.largest));
  }
  return fmt::format("agree over {} steps{}{}", steps,
                     close.size() + 1 == comparison.sides.size() ? "" : " bit for bit",
                     close.empty() ? "" : fmt::format(", {}", fmt::join(close, ", ")));
}

// What helps, as measured: the fastest mode, then what was tried on it.
std::string try_text(const Comparison& comparison) {
  const Side &base = comparison.sides.front(), &fastest = comparison.fastest();
  const double gain = gain_over(*base.step, base.diagnosis, *fastest.step);
  const Tried* const best = comparison.tried.empty() || !comparison.tried.front().helps()
                                ? nullptr
                                : &comparison.tried.front();
  if (gain == 1 && best) return to_string(*best);
  if (gain == 1) {
    std::vector<std::string> names;
    for (const Tried& each : comparison.tried) names.push_back(each.name);
    const bool own = fastest.diagnosis.regime == Regime::user;
    return fmt::format("{}: no other mode is faster by 5 %{}{}",
                       own ? "your own code" : "nothing of these", names.empty() ? "" : ", nor ",
                       fmt::join(names, ", "));
  }
  return fmt::format("{}: {:.2f} times as fast as {}{}", fastest.name, gain, base.name,
                     best ? fmt::format("; then {}: {:.2f} times", best->name, best->gain()) : "");
}

// What the machine allows for, or that it is exceeded.
std::string best_text(const Comparison& comparison) {
  const Side &best = *std::ranges::min_element(comparison.sides, {}, at_best),
             &fastest = comparison.fastest();
  const char* const whose = best.cost->calibrated ? "this machine's" : "default";
  if (at_best(best) > fastest.step->median) {
    return fmt::format("{} is faster than {} ceilings allow ({}): brrr calibrate", fastest.name,
                       whose, time_text(at_best(best)));
  }
  return fmt::format("{} for the bytes and FLOPs of {}, by {} ceilings", time_text(at_best(best)),
                     best.name, whose);
}

// The fastest step with a kernel whose excess is worth a line; null: none.
const Side* slow_side(const Comparison& comparison) {
  const Side* found = nullptr;
  for (const Side& side : comparison.sides) {
    const std::optional<MeasuredKernel>& kernel = side.diagnosis.slowest;
    if (!kernel || kernel->excess() < kWorthALine * side.step->median) continue;
    if (!found || side.step->median < found->step->median) found = &side;
  }
  return found;
}

std::string kernel_text(const Side& side) {
  const MeasuredKernel& kernel = *side.diagnosis.slowest;
  return fmt::format("{:.0f} % of {}, {:.1f} times its need: {}",
                     100 * kernel.seconds / side.step->median, side.name,
                     kernel.seconds / kernel.needed, to_string(kernel));
}

// Where the fastest step's own code is.
std::string code_text(const Side& side) {
  std::string text =
      fmt::format("{} of {} is your own", percent_text(side.diagnosis.shares->user), side.name);
  const std::vector<CodeLine>& lines = side.diagnosis.code;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, lines.size()); ++i) {
    text += fmt::format("{} {} {}", i == 0 ? ":" : ";", percent_text(lines[i].share),
                        to_string(lines[i]));
  }
  return text;
}

// The first doubt of the modes, and how many there are beside it.
std::string doubts_text(const Comparison& comparison, bool whole) {
  std::vector<std::string> all;
  for (const Side& side : comparison.sides) {
    const Diagnosis& d = side.diagnosis;
    for (const auto* const list : {&d.problems, &d.doubts, &d.caveats}) {
      for (const std::string& each : *list) {
        if (std::ranges::find(all, each) == all.end()) all.push_back(each);
      }
    }
  }
  if (all.empty()) return {};
  const std::string more = all.size() > 1 ? fmt::format(" (and {} more)", all.size() - 1) : "";
  return (whole ? all.front() : clipped(all.front(), kColumns - kTitle - more.size())) + more;
}

}  // namespace

std::string regime_text(const Comparison& comparison) {
  const Side& side = comparison.sides.front();
  const Diagnosis& d = side.diagnosis;
  if (!d.regime) return side.name + ": no verdict";
  std::vector<std::string> shares;
  for (const ShownShare& each : kShownShares) {
    const double share = d.shares->of(each.regime);
    if (share >= kVisible) shares.push_back(fmt::format("{} {}", percent_text(share), each.name));
  }
  const char* const confidence = kConfidences[static_cast<std::size_t>(d.confidence)];
  return fmt::format("{} is {}: {}{}", side.name,
                     d.shares->mixed_with() ? "mixed" : bound_text(*d.regime),
                     fmt::join(shares, ", "),
                     d.confidence == Confidence::sure ? "" : fmt::format(" ({})", confidence));
}

std::vector<std::pair<std::string, std::string>> summary_of(const Comparison& comparison,
                                                            bool whole) {
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("at best", best_text(comparison));
  if (!comparison.sides.front().losses.empty())
    lines.emplace_back("losses", losses_text(comparison));
  if (comparison.sides.size() > 1) lines.emplace_back("try", try_text(comparison));
  // Of the code and of the kernels what takes more.
  const Side &fastest = comparison.fastest(), *const slow = slow_side(comparison);
  const double own = fastest.diagnosis.shares ? fastest.diagnosis.shares->user : 0;
  const double excess = slow ? slow->diagnosis.slowest->excess() / slow->step->median : 0;
  if (own > kWorthALine && own > excess) {
    lines.emplace_back("code", code_text(fastest));
  } else if (slow) {
    lines.emplace_back("kernel", kernel_text(*slow));
  }
  if (!comparison.interrupted.empty()) {
    lines.emplace_back("stopped", comparison.interrupted + ", so the rest is missing");
  } else if (const std::string doubts = doubts_text(comparison, whole); !doubts.empty()) {
    lines.emplace_back("in doubt", doubts);
  }
  return lines;
}

std::string to_text(const Comparison& comparison, bool in_color) {
  std::string text =
      clipped(comparison.describes.empty() ? comparison.name
                                           : comparison.name + ": " + comparison.describes,
              kColumns) +
      "\n";
  text += clipped(regime_text(comparison), kColumns) + "\n";
  text += rows_text(comparison, in_color);
  for (const auto& [title, line] : summary_of(comparison, false))
    text += titled(title.c_str(), line);
  return text;
}

}  // namespace brrr::measure
