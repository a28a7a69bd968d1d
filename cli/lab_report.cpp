#include "cli/lab_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "brrr/measure/report_file.h"
#include "brrr/measure/text.h"
#include "cli/text_output.h"

namespace brrr::cli {
namespace {

using measure::Finding;
using measure::number_text;
using measure::Reading;
using measure::Section;
using measure::Text;

std::string value_text(double value, const std::string& unit) {
  return number_text(value) + (unit.empty() ? "" : " " + unit);
}

std::string claim_text(const Reading& r) { return r.claim ? to_string(*r.claim) : "-"; }

measure::Table readings_table(const Finding& finding) {
  measure::Table table{"Readings: the article's numbers beside those of this machine",
                       {"reading", "article", "here", "claimed", "holds"},
                       {}};
  for (const Reading& r : finding.readings) {
    table.rows.push_back({r.name + (r.disturbed() ? " ~" : ""),
                          r.article ? value_text(*r.article, r.unit) : "-",
                          value_text(r.value, r.unit), claim_text(r),
                          !r.claim    ? "-"
                          : r.holds() ? "yes"
                                      : "no"});
  }
  return table;
}

// Readings with one unit, beside the article's. Values that are far apart need a logarithmic axis.
measure::Figure bars_of(const std::vector<const Reading*>& readings) {
  const bool with_article =
      std::ranges::any_of(readings, [](const Reading* r) { return r->article.has_value(); });
  const std::string& unit = readings.front()->unit;
  measure::BarPlot plot{
      .title = unit.empty() ? "Ratios and counts" : "Readings in " + unit,
      .description = with_article ? "The article's numbers beside this machine's." : "",
      .unit = unit,
      .measures = {"here"}};
  if (with_article) plot.measures.emplace_back("article");
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const Reading* r : readings) {
    auto& group = plot.groups.emplace_back();
    group.name = r->name;
    group.values = {r->value};
    if (with_article)
      group.values.push_back(r->article.value_or(std::numeric_limits<double>::quiet_NaN()));
    for (const double value : group.values) {
      if (!(value > 0)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  constexpr double kFarApart = 50;
  plot.logarithmic = most / least > kFarApart &&
                     std::ranges::all_of(readings, [](const Reading* r) { return r->value > 0; });
  return {plot, ""};
}

// A bar plot for each unit in which the article states a number. If the finding has no plot of its
// own, also for each unit of several readings.
std::vector<measure::Figure> bars_of(const Finding& finding) {
  std::vector<std::vector<const Reading*>> by_unit;
  for (const Reading& r : finding.readings) {
    const auto same = std::ranges::find_if(
        by_unit, [&](const auto& readings) { return readings.front()->unit == r.unit; });
    (same == by_unit.end() ? by_unit.emplace_back() : *same).push_back(&r);
  }
  std::vector<measure::Figure> figures;
  for (const auto& readings : by_unit) {
    const bool with_article =
        std::ranges::any_of(readings, [](const Reading* r) { return r->article.has_value(); });
    if (with_article || (readings.size() > 1 && !finding.plot))
      figures.push_back(bars_of(readings));
  }
  return figures;
}

// A plot; where the names of the series have units of their own, one for each series.
std::vector<measure::Figure> lines_of(const measure::Experiment& experiment,
                                      const measure::Plot& plot, const std::string& caption) {
  measure::LinePlot lines{.title = experiment.title,
                          .description = fmt::format("Claim: {}.", experiment.claim),
                          .x = {plot.x, /*logarithmic=*/true},
                          .y = {plot.y, /*logarithmic=*/true},
                          .series = plot.series};
  if (!plot.y.empty()) return {{lines, caption}};
  std::vector<measure::Figure> figures;
  for (const measure::Series& series : plot.series) {
    lines.title = fmt::format("{}: {}", experiment.title, series.name);
    lines.y.title = series.name;
    lines.series = {series};
    figures.push_back({lines, figures.empty() ? caption : ""});
  }
  return figures;
}

Section summary(std::span<const ExperimentRun> found, const measure::LabOptions& options,
                const measure::Machine& machine) {
  Section section{.title = "Summary"};
  section.blocks.emplace_back(measure::paragraph(summary_text(found, options, machine)));
  if (options.quick) {
    section.blocks.emplace_back(Text{
        "--quick: smaller sizes and few samples. Its verdicts say that the experiments run, not "
        "what this machine does.",
        Text::Tone::warning});
  }
  measure::Table table{"Experiments", {"experiment", "verdict", "disturbed", "seconds"}, {}};
  for (const ExperimentRun& each : found) {
    table.rows.push_back({each.experiment->title, name_of(each.finding.outcome()),
                          each.finding.disturbed() ? "yes" : "no",
                          fmt::format("{:.1f}", each.seconds)});
  }
  section.blocks.emplace_back(std::move(table));
  return section;
}

}  // namespace

Section section_of(const ExperimentRun& found) {
  const measure::Experiment& e = *found.experiment;
  const Finding& finding = found.finding;
  const measure::Outcome outcome = finding.outcome();
  Section section{.title = e.title,
                  .badge = fmt::format("{}{}", name_of(outcome), finding.disturbed() ? " ~" : ""),
                  .tone = outcome == measure::Outcome::confirmed ? Section::Tone::good
                          : outcome == measure::Outcome::differs ? Section::Tone::bad
                                                                 : Section::Tone::plain};
  section.blocks.emplace_back(Text{fmt::format("brrr lab {}. The claim: {}.", e.name, e.claim)});
  section.blocks.emplace_back(Text{finding.verdict()});
  if (!finding.plot) section.blocks.emplace_back(Text{finding.why});
  if (finding.disturbed())
    section.blocks.emplace_back(measure::paragraph(measure::kDisturbed, Text::Tone::warning));
  if (finding.gpu) {
    for (const std::string& what : measure::not_checked(*finding.gpu))
      section.blocks.emplace_back(Text{"Not checked: " + what + ".", Text::Tone::warning});
  }
  if (!finding.svg.empty()) section.blocks.emplace_back(measure::Picture{finding.svg, e.picture});
  section.blocks.emplace_back(readings_table(finding));
  std::vector<measure::Figure> figures;
  if (finding.plot) figures = lines_of(e, *finding.plot, finding.why);
  for (const measure::LanePlot& each : finding.timelines) figures.push_back({each, ""});
  std::ranges::move(bars_of(finding), std::back_inserter(figures));
  for (measure::Figure& figure : figures) section.blocks.emplace_back(std::move(figure));
  return section;
}

measure::Report lab_report(std::span<const ExperimentRun> found, const measure::LabOptions& options,
                           const measure::Machine& machine, const std::string& command) {
  measure::Report report{.title = "Experiments on overhead, bandwidth and compute",
                         .facts = measure::report_facts(machine, options.device, command),
                         .sections = {summary(found, options, machine)}};
  for (const ExperimentRun& each : found) report.sections.push_back(section_of(each));
  return report;
}

}  // namespace brrr::cli
