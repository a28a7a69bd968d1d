#include "brrr/measure/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/flame_graph.h"
#include "brrr/measure/interrupt.h"
#include "brrr/measure/text.h"

namespace brrr::measure {

Profile profile(ModelRun run) {
  const Step step = run.trained();
  const Interruptible interruptible;
  const auto stop = [&] { return interruptible.signal() != 0; };
  Profile result{.run = run,
                 .ledger = host_ledger(run.device, [&step] { step(); },
                                       {.seconds = run.seconds, .stop = stop}),
                 .signal = interruptible.signal()};
  if (result.signal != 0) {
    result.ledger.missing.push_back(fmt::format("interrupted: {} samples, of less than {} seconds",
                                                result.ledger.samples, run.seconds));
  }
  return result;
}

std::string to_text(const Profile& profile) {
  constexpr double kBar = 24;
  constexpr std::size_t kShownLines = 6;
  constexpr double kLeastShown = 0.01;
  const Ledger& ledger = profile.ledger;
  std::vector<LedgerLine> lines(ledger.lines.begin(), ledger.lines.end());
  std::ranges::stable_sort(lines, std::greater(), &LedgerLine::ns);
  std::vector<std::vector<std::string>> rows = {{"", "us a step", "share", "+-"}};
  std::vector<std::string> bars = {""};
  for (const LedgerLine& line : lines) {
    if (line.samples == 0) continue;
    rows.push_back({name_of(line.of), number_text(line.ns * 1e-3),
                    fmt::format("{:.1f} %", line.share * 100),
                    fmt::format("{:.1f}", line.standard_error * 100)});
    bars.push_back(fmt::format(
        "{:<24}  {}", std::string(static_cast<std::size_t>(std::lround(line.share * kBar)), '#'),
        description_of(line.of)));
  }
  rows.push_back({"sum", number_text(ledger.sum_ns() * 1e-3), "100 %", ""});
  bars.push_back(fmt::format("{:.1f} % of the step", 100 * (1 + ledger.closure())));
  std::string text = heading_text(profile.run);
  text +=
      fmt::format("{:<16} {} us unsampled (least {}, most {}), {} sampled: {:+.1f} %\n", "step",
                  number_text(ledger.untraced.median * 1e6),
                  number_text(ledger.untraced.least * 1e6), number_text(ledger.untraced.most * 1e6),
                  number_text(ledger.traced.median * 1e6), 100 * ledger.perturbation());
  text += fmt::format("{:<16} {} of the calling thread in {} steps, {} us each\n", "samples",
                      ledger.samples, ledger.steps,
                      number_text(static_cast<double>(ledger.interruption_ns) * 1e-3));
  const std::vector<std::string> table = aligned(rows);
  for (std::size_t i = 0; i < table.size(); ++i)
    text += table[i] + (bars[i].empty() ? "" : "  ") + bars[i] + "\n";
  for (std::size_t i = 0; i < std::min(ledger.code.size(), kShownLines); ++i) {
    if (ledger.code[i].share < kLeastShown) break;
    text += fmt::format("{:<16} {:.1f} % {}\n", i == 0 ? "user code" : "",
                        ledger.code[i].share * 100, to_string(ledger.code[i]));
  }
  for (const std::string& what : ledger.missing)
    text += fmt::format("{:<16} {}\n", "incomplete", what);
  return text;
}

void write_flame_graph(const Profile& profile, const std::string& file) {
  const ModelRun& run = profile.run;
  const std::string svg =
      flame_svg(profile.ledger.profile,
                {.title = run.title(), .step_ns = profile.ledger.untraced.median * 1e9});
  write_file("svg", file, [&](const ByteSink& write) { write(svg.data(), svg.size()); });
}

}  // namespace brrr::measure
