// The first lines of a comparison. They fit a terminal of 80 columns; details_text has the rest.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "brrr/measure/bench.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/text.h"
#include "brrr/measure/verdict_text.h"

namespace brrr::measure {
namespace {

constexpr std::size_t kColumns = 80, kTitle = 9, kLongestName = 26;
// Shares that are named.
constexpr double kVisible = 0.005;
// Parts of a step that are named.
constexpr double kWorthALine = 0.03;

std::string titled(const char* title, const std::string& text) {
  return fmt::format("{:<{}}{}\n", title, kTitle, clipped(text, kColumns - kTitle));
}

bool fits(const std::string& line) { return columns_in(line) <= kColumns - kTitle; }

std::string short_name(const Side& side) { return clipped(side.name, kLongestName); }

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

struct Letter {
  char letter;
  std::string name;
  bool is_present;
};

// "o overhead = bandwidth", with at most so many characters of each name.
std::string legend_of(const std::vector<Letter>& letters, bool all, std::size_t characters) {
  std::vector<std::string> parts;
  for (const Letter& each : letters) {
    if (all || each.is_present)
      parts.push_back(fmt::format("{} {}", each.letter, each.name.substr(0, characters)));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

// What the letters of the bars mean, as well as it fits.
std::string legend(const Comparison& comparison, std::size_t width) {
  std::vector<Letter> letters;
  bool has_shares = false;
  for (const ShownShare& shown : kShownShares) {
    Letter letter{shown.letter, shown.short_name, false};
    for (const Side& side : comparison.sides) {
      const std::optional<Shares>& shares = side.diagnosis.shares;
      letter.is_present = letter.is_present || (shares && shares->of(shown.regime) > kVisible);
      has_shares = has_shares || shares;
    }
    const bool is_usual = shown.regime <= Regime::compute;
    if (letter.is_present || is_usual) letters.push_back(std::move(letter));
  }
  if (!has_shares) return "? not known";
  constexpr std::size_t kWhole = 20, kFewest = 4;
  for (const bool all : {true, false}) {
    std::string text = legend_of(letters, all, kWhole);
    if (text.size() <= width) return text;
  }
  return clipped(legend_of(letters, false, kFewest), width);
}

std::string rows_text(const Comparison& comparison, bool in_color) {
  std::size_t names = kTitle - 2;
  double slowest = 0;
  for (const Side& side : comparison.sides) {
    names = std::max(names, std::min(columns_in(side.name), kLongestName));
    slowest = std::max(slowest, side.step->median);
  }
  const std::size_t width = kColumns - names - 2 - 9 - 2 - 9 - 2 - 9;
  std::string text = fmt::format("{:<{}}  {:>9}  {:>9}  {:<{}}{:>9}\n", "", names, "step",
                                 "predicted", legend(comparison, width), width, "of peak");
  for (const Side& side : comparison.sides) {
    const double seconds = side.step->median;
    const auto length = std::max(1.0, std::round(static_cast<double>(width) * seconds / slowest));
    const std::string bar = side.diagnosis.shares
                                ? bar_of(*side.diagnosis.shares, static_cast<std::size_t>(length))
                                : std::string(static_cast<std::size_t>(length), '?');
    text += fmt::format("{:<{}}  {:>9}  {:>9}  {}{:<{}}{:>9}\n", short_name(side), names,
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
      close.push_back(
          fmt::format("{} within {:.1g} %", short_name(side), 100 * side.agreement.largest));
  }
  return fmt::format("agree over {} steps{}{}", steps,
                     close.size() + 1 == comparison.sides.size() ? "" : " bit for bit",
                     close.empty() ? "" : fmt::format(", {}", fmt::join(close, ", ")));
}

// What helps, as measured: the fastest mode, then what was tried on it.
std::string try_text(const Comparison& comparison, bool whole) {
  const Side &base = comparison.sides.front(), &fastest = comparison.fastest();
  const double gain = gain_over(*base.step, base.diagnosis, *fastest.step);
  const Tried* const best = comparison.tried.empty() || !comparison.tried.front().helps()
                                ? nullptr
                                : &comparison.tried.front();
  if (gain > 1) {
    return fmt::format(
        "{}: {:.2f} times as fast as {}{}", short_name(fastest), gain, short_name(base),
        best ? fmt::format("; then {}: {:.2f} times", best->name, best->gain()) : "");
  }
  if (best) {
    return fmt::format("{}: {:.2f} times {} {}", best->name, best->gain(),
                       best->work == 1 ? "as fast as" : "the work a second of",
                       short_name(fastest));
  }
  std::string text = fastest.diagnosis.regime == Regime::user
                         ? "your own code, since nothing tried helps by 5 %: other modes"
                         : "nothing tried helps by 5 %: other modes";
  const std::vector<Tried>& tried = comparison.tried;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const std::size_t left = tried.size() - i;
    const std::string longer = fmt::format("{}, {}", text, tried[i].name);
    if (!whole && !fits(longer + (left > 1 ? fmt::format(" (and {} more)", left - 1) : "")))
      return fmt::format("{} (and {} more)", text, left);
    text = longer;
  }
  return text;
}

// What the machine allows for, or that it is exceeded.
std::string best_text(const Comparison& comparison) {
  const Side &best = *std::ranges::min_element(comparison.sides, {}, at_best),
             &fastest = comparison.fastest();
  const char* const whose = best.cost->calibrated ? "this machine's" : "default";
  if (at_best(best) > fastest.step->median) {
    return fmt::format("{} is faster than {} ceilings allow ({}): brrr calibrate",
                       short_name(fastest), whose, time_text(at_best(best)));
  }
  return fmt::format("{} for the bytes and FLOPs of {}, by {} ceilings", time_text(at_best(best)),
                     short_name(best), whose);
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

// Where the kernel is comes first: the calls of a fused one may be many.
std::string kernel_text(const Side& side, bool whole) {
  constexpr std::size_t kModule = 16;
  const MeasuredKernel& kernel = *side.diagnosis.slowest;
  std::string module = kernel.module;
  if (!whole && module.size() > kModule) {
    const std::size_t from = module.size() - kModule, dot = module.find('.', from);
    module = "..." + module.substr(dot == module.npos ? from : dot + 1);
  }
  std::string where = module.empty() ? "" : ", in " + module;
  if (!kernel.phase.empty()) where += ", " + kernel.phase;
  return fmt::format("{} of {}, {:.1f} times its need{}: {}{} of {}",
                     percent_text(kernel.seconds / side.step->median), short_name(side),
                     kernel.seconds / kernel.needed, where,
                     kernel.launches == 1 ? "" : fmt::format("{} x ", kernel.launches), kernel.name,
                     kernel.result);
}

// Where the fastest step's own code is: as many of its two first lines as fit, without folders
// where these do not.
std::string code_text(const Side& side, bool whole) {
  const int own = percentages_of(*side.diagnosis.shares)[static_cast<std::size_t>(Regime::user)];
  const std::string start = fmt::format("{} % of {} is yours", own, short_name(side));
  const auto text_of = [&](std::size_t lines, bool folders) {
    std::string text = start;
    for (std::size_t i = 0; i < std::min(lines, side.diagnosis.code.size()); ++i) {
      CodeLine line = side.diagnosis.code[i];
      if (i > 0 && line.share < kVisible) break;
      if (!folders) line.place = without_folder(line.place);
      text +=
          fmt::format("{} {} {}", i == 0 ? ":" : ";", percent_text(line.share), to_string(line));
    }
    return text;
  };
  for (const auto& [lines, folders] : {std::pair(2, true), std::pair(1, true)}) {
    const std::string text = text_of(static_cast<std::size_t>(lines), folders);
    if (whole || fits(text)) return text;
  }
  return text_of(1, false);
}

// The first doubt of the modes, and how many there are beside it. The base's first problem stands
// beside its name.
std::string doubts_text(const Comparison& comparison, bool whole) {
  std::vector<std::string> all;
  for (const auto list : {&Diagnosis::problems, &Diagnosis::doubts, &Diagnosis::caveats}) {
    const std::vector<std::string> reasons = reasons_of(comparison, list);
    all.insert(all.end(), reasons.begin(), reasons.end());
  }
  const std::vector<std::string>& problems = comparison.sides.front().diagnosis.problems;
  if (!problems.empty())
    std::erase_if(all, [&](const std::string& each) { return each.ends_with(problems.front()); });
  if (all.empty()) return {};
  std::string first = all.front();
  constexpr std::string_view kKind = "disturbed: ";  // as all doubts are
  if (const std::size_t at = first.find(kKind); at != first.npos) first.erase(at, kKind.size());
  const std::string more = all.size() > 1 ? fmt::format(" (and {} more)", all.size() - 1) : "";
  return (whole ? first : shortened(first, kColumns - kTitle - more.size())) + more;
}

// "71 % overhead, 29 % other": the largest shares first, and those beyond `most` parts as one.
std::string shares_text(const Shares& shares, const char* ShownShare::*name,
                        std::size_t most = std::size(kShownShares)) {
  const Percentages percentages = percentages_of(shares);
  std::vector<std::pair<int, const char*>> parts;
  for (const ShownShare& each : kShownShares) {
    const int percent = percentages[static_cast<std::size_t>(each.regime)];
    if (percent > 0) parts.emplace_back(percent, each.*name);
  }
  std::ranges::stable_sort(parts, std::ranges::greater(), &std::pair<int, const char*>::first);
  for (; parts.size() > most; parts.pop_back())
    parts[most - 1] = {parts[most - 1].first + parts.back().first, "other"};
  std::vector<std::string> texts;
  for (const auto& [percent, part] : parts) texts.push_back(fmt::format("{} % {}", percent, part));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::string regime_text(const Comparison& comparison, std::size_t columns) {
  const Side& side = comparison.sides.front();
  const Diagnosis& d = side.diagnosis;
  if (!d.regime) {
    return shortened(d.problems.empty() ? short_name(side) + " has no verdict"
                                        : fmt::format("{} has no verdict: {}", short_name(side),
                                                      d.problems.front()),
                     columns);
  }
  const char* const confidence = kConfidences[static_cast<std::size_t>(d.confidence)];
  const std::string start = fmt::format(
      "{} is {}{}: ", short_name(side), d.shares->mixed_with() ? "mixed" : bound_text(*d.regime),
      d.confidence == Confidence::sure ? "" : fmt::format(" ({})", confidence));
  std::string text = start + shares_text(*d.shares, &ShownShare::name);
  for (std::size_t most = std::size(kShownShares); columns_in(text) > columns && most >= 2; --most)
    text = start + shares_text(*d.shares, &ShownShare::short_name, most);
  return clipped(text, columns);
}

std::vector<std::pair<std::string, std::string>> summary_of(const Comparison& comparison,
                                                            bool whole) {
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("at best", best_text(comparison));
  if (!comparison.sides.front().losses.empty())
    lines.emplace_back("losses", losses_text(comparison));
  if (comparison.sides.size() > 1) lines.emplace_back("try", try_text(comparison, whole));
  // Of the code and of the kernels what takes more.
  const Side &fastest = comparison.fastest(), *const slow = slow_side(comparison);
  const double own = fastest.diagnosis.shares ? fastest.diagnosis.shares->user : 0;
  const double excess = slow ? slow->diagnosis.slowest->excess() / slow->step->median : 0;
  if (own > kWorthALine && own > excess) {
    lines.emplace_back("code", code_text(fastest, whole));
  } else if (slow) {
    lines.emplace_back("kernel", kernel_text(*slow, whole));
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
  text += regime_text(comparison, kColumns) + "\n";
  text += rows_text(comparison, in_color);
  for (const auto& [title, line] : summary_of(comparison, false))
    text += titled(title.c_str(), line);
  return text;
}

}  // namespace brrr::measure
