#include "brrr/measure/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <utility>

#include "brrr/measure/json_parts.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/text.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

// What a document says of one thing: a step, a benchmark.
struct Quantity {
  std::string name, what, unit = {}, words = {};
  double value = 0;
  bool more_is_better = false;
  std::optional<double> least = {}, most = {};
};

struct Document {
  std::vector<Quantity> quantities = {};
  Json machine = {};
};

std::optional<double> number_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}
std::string text_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void add_number(Document& document, const std::string& name, const char* what, const char* unit,
                const Json& object, const char* member) {
  if (const auto value = number_at(object, member))
    document.quantities.push_back(
        {.name = name, .what = what, .unit = unit, .words = {}, .value = *value});
}

// By the interquartile range of the samples, relative to the median.
void set_range(Quantity& quantity, const Json& object) {
  const auto spread = number_at(object, "spread");
  if (!spread || !(*spread > 0)) return;
  quantity.least = quantity.value * (1 - *spread / 2);
  quantity.most = quantity.value * (1 + *spread / 2);
}

// A row of compare, or the document of train.
void add_step(Document& document, const std::string& name, const Json& row) {
  const auto step = number_at(row, "step_us");
  if (!step) return;
  document.quantities.push_back({.name = name,
                                 .what = "step",
                                 .unit = "us",
                                 .words = {},
                                 .value = *step,
                                 .least = number_at(row, "step_us_min"),
                                 .most = number_at(row, "step_us_max")});
  add_number(document, name, "predicted", "us", row, "predicted_us");
  add_number(document, name, "peak memory", "bytes", row, "peak_bytes");
  add_number(document, name, "bytes moved", "bytes", row, "bytes_per_step");
  add_number(document, name, "kernels", "", row, "kernels_per_step");
  if (const std::string regime = text_at(row, "regime"); !regime.empty())
    document.quantities.push_back({.name = name, .what = "regime", .words = regime});
}

// A step of BRRR_REPORT.
void add_watched(Document& document, const Json& step) {
  const std::string name = fmt::format("{} {}", text_at(step, "name"), text_at(step, "mode"));
  const auto timing = [&](const char* what, const char* member) {
    const auto found = step.find(member);
    if (found == step.end() || !found->is_object()) return;
    const auto us = number_at(*found, "us");
    if (!us || !(*us > 0)) return;
    document.quantities.push_back(
        {.name = name, .what = what, .unit = "us", .words = {}, .value = *us});
    set_range(document.quantities.back(), *found);
  };
  timing("call to call", "period");
  timing("in the call", "in_call");
  timing("between calls", "between_calls");
  add_number(document, name, "predicted", "us", step, "predicted_us");
  add_number(document, name, "peak memory", "bytes", step, "peak_bytes");
}

void add_result(Document& document, const Json& result) {
  const auto value = number_at(result, "value");
  const std::string name = text_at(result, "name"), unit = text_at(result, "unit");
  if (!value || name.empty()) return;
  Quantity quantity{.name = name, .what = "value", .unit = unit, .words = {}, .value = *value};
  quantity.more_is_better = unit.find("/s") != std::string::npos;
  set_range(quantity, result);
  document.quantities.push_back(std::move(quantity));
}

Document read_document(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("[diff] cannot read {}", path);
  const Json json = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}), nullptr,
                                /*allow_exceptions=*/false);
  Document document;
  if (json.is_object()) {
    const auto list = [&](const char* name) {
      const auto found = json.find(name);
      return found != json.end() && found->is_array() ? *found : Json::array();
    };
    for (const Json& row : list("rows")) {
      if (row.is_object())
        add_step(document, fmt::format("{} {}", text_at(row, "model"), text_at(row, "name")), row);
    }
    for (const Json& step : list("steps")) {
      if (step.is_object()) add_watched(document, step);
    }
    for (const Json& result : list("results")) {
      if (result.is_object()) add_result(document, result);
    }
    if (json.contains("model") && json.contains("mode"))
      add_step(document, fmt::format("{} {}", text_at(json, "model"), text_at(json, "mode")), json);
    document.machine = json.value("machine", Json::object());
  }
  if (document.quantities.empty()) {
    fail("[diff] expected the document of brrr compare, train or bench, or of BRRR_REPORT, got {}",
         path);
  }
  return document;
}

// What else differs: figures of two machines say little.
std::vector<std::string> notes_on(const Json& before, const Json& after) {
  constexpr std::pair<const char*, const char*> kFacts[] = {{"tag", "machine"},
                                                            {"brrr", "version of brrr"},
                                                            {"build", "build"},
                                                            {"compiler", "compiler"}};
  std::vector<std::string> notes;
  if (!before.is_object() || !after.is_object()) return notes;
  for (const auto& [member, what] : kFacts) {
    const std::string a = text_at(before, member), b = text_at(after, member);
    if (a != b && !a.empty() && !b.empty())
      notes.push_back(fmt::format("another {}: {} before, {} after", what, a, b));
  }
  return notes;
}

std::string value_text(double value, const std::string& unit) {
  if (unit == "us") return time_text(value * 1e-6);
  if (unit == "bytes") return bytes_text(value);
  return unit.empty() ? fmt::format("{:g}", value) : number_text(value) + " " + unit;
}

std::string change_text(const Change& change) {
  if (change.is_words()) return change.is_certain() ? "another" : "the same";
  if (!change.is_certain()) return "no difference beyond the samples'";
  const bool better = change.gain() > 1;
  if (change.unit == "us")
    return fmt::format("{:.2f} times as {}", better ? change.gain() : 1 / change.gain(),
                       better ? "fast" : "slow");
  return fmt::format("{:+.0f} %", 100 * (change.after / change.before - 1));
}

std::vector<std::string> row_of(const Change& change) {
  return {fmt::format("{}, {}", change.name, change.what),
          change.is_words() ? change.text_before : value_text(change.before, change.unit),
          change.is_words() ? change.text_after : value_text(change.after, change.unit),
          change_text(change)};
}

// Changes that are not certain are of interest only for times.
bool is_shown(const Change& change) {
  return change.is_certain() || change.what == "step" || change.what == "call to call" ||
         change.what == "value";
}

}  // namespace

bool Change::is_certain() const {
  if (is_words()) return text_before != text_after;
  if (before == after || std::abs(after - before) <= 0.01 * std::abs(before)) return false;
  if (!least_before || !most_before || !least_after || !most_after) return true;
  return *most_before < *least_after || *most_after < *least_before;
}

Difference diff(const std::string& before, const std::string& after) {
  const Document first = read_document(before), second = read_document(after);
  Difference difference{.before = before, .after = after};
  const auto same = [](const Quantity& a) {
    return [&a](const Quantity& b) { return a.name == b.name && a.what == b.what; };
  };
  for (const Quantity& now : second.quantities) {
    const auto then = std::ranges::find_if(first.quantities, same(now));
    if (then == first.quantities.end()) {
      difference.only_after.push_back(now.name);
      continue;
    }
    difference.changes.push_back({.name = now.name,
                                  .what = now.what,
                                  .before = then->value,
                                  .after = now.value,
                                  .unit = now.unit,
                                  .more_is_better = now.more_is_better,
                                  .least_before = then->least,
                                  .most_before = then->most,
                                  .least_after = now.least,
                                  .most_after = now.most,
                                  .text_before = then->words,
                                  .text_after = now.words});
  }
  for (const Quantity& then : first.quantities) {
    if (std::ranges::none_of(second.quantities, same(then)))
      difference.only_before.push_back(then.name);
  }
  for (auto* const names : {&difference.only_before, &difference.only_after})
    names->erase(std::unique(names->begin(), names->end()), names->end());
  if (difference.changes.empty())
    fail("[diff] expected steps that both {} and {} have, got none", before, after);
  difference.notes = notes_on(first.machine, second.machine);
  return difference;
}

std::string to_text(const Difference& difference) {
  std::vector<std::vector<std::string>> rows = {{"", "before", "after"}};
  std::vector<std::string> changes = {""};
  for (const Change& change : difference.changes) {
    if (!is_shown(change)) continue;
    std::vector<std::string> row = row_of(change);
    changes.push_back(row.back());
    row.pop_back();
    rows.push_back(std::move(row));
  }
  std::string text;
  line(text, "before", difference.before);
  line(text, "after", difference.after);
  const std::vector<std::string> lines = aligned(rows);
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += lines[i] + (changes[i].empty() ? "" : "  ") + changes[i] + "\n";
  const auto list = [&](const char* name, const std::vector<std::string>& names) {
    if (!names.empty()) line(text, name, fmt::format("{}", fmt::join(names, ", ")));
  };
  list("only before", difference.only_before);
  list("only after", difference.only_after);
  for (const std::string& note : difference.notes) line(text, "in doubt", note);
  return text;
}

std::string to_json(const Difference& difference) {
  Json changes = Json::array();
  for (const Change& change : difference.changes) {
    const bool words = change.is_words();
    changes.push_back(
        {{"name", change.name},
         {"what", change.what},
         {"unit", or_null(change.unit)},
         {"before", words ? Json(change.text_before) : Json(change.before)},
         {"after", words ? Json(change.text_after) : Json(change.after)},
         {"gain",
          words || change.after == 0 || change.before == 0 ? Json(nullptr) : Json(change.gain())},
         {"certain", change.is_certain()}});
  }
  return text_of({{"before", difference.before},
                  {"after", difference.after},
                  {"changes", std::move(changes)},
                  {"only_before", difference.only_before},
                  {"only_after", difference.only_after},
                  {"notes", difference.notes}});
}

Report to_report(const Difference& difference, const std::string& command) {
  Section section{.title = "Before and after"};
  BarPlot plot{.title = "Times before and after",
               .description = "The time of each step in both documents",
               .unit = "us",
               .measures = {"before", "after"}};
  Table table{.caption = "What both documents have",
              .columns = {"", "before", "after", "change"},
              .rows = {}};
  for (const Change& change : difference.changes) {
    if (is_shown(change)) table.rows.push_back(row_of(change));
    if (change.what == "step" || change.what == "call to call")
      plot.groups.push_back({change.name, {change.before, change.after}});
  }
  for (const std::string& note : difference.notes)
    section.blocks.emplace_back(paragraph(note, Text::Tone::warning));
  if (!plot.groups.empty()) section.blocks.emplace_back(Figure{plot, "Shorter is better."});
  section.blocks.emplace_back(std::move(table));
  return {
      .title = "Before and after",
      .facts = {{"before", difference.before}, {"after", difference.after}, {"command", command}},
      .sections = {std::move(section)}};
}

}  // namespace brrr::measure
