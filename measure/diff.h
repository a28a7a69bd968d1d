// What changed between two documents of --json, of BRRR_REPORT or of measure::to_json: steps before
// and after.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/html_report.h>

namespace brrr::measure {

// A quantity that both documents have.
struct Change {
  std::string name;  // "mlp fused"
  std::string what;  // "step", "peak memory", "kernels", "regime"
  // Of numbers. `unit`: "us", "bytes", that of a benchmark, or none of counts.
  double before = 0, after = 0;
  std::string unit = {};
  bool more_is_better = false;
  // The ranges of their samples, if known.
  std::optional<double> least_before = {}, most_before = {}, least_after = {}, most_after = {};
  std::string text_before = {}, text_after = {};  // of words

  bool is_words() const { return !text_before.empty() || !text_after.empty(); }
  // Numbers that differ by more than 1 % and whose samples' ranges do not meet; words that differ.
  bool is_certain() const;
  // How many times as good `after` is.
  double gain() const { return more_is_better ? after / before : before / after; }
};

struct Difference {
  std::string before, after;         // the files
  std::vector<Change> changes = {};  // in the order of the second document, steps first
  std::vector<std::string> only_before = {}, only_after = {};  // names that one of them has
  std::vector<std::string> notes = {};                         // the machine or the program differs
};

// Reads the files; throws an Error if one is not such a document, or if they have nothing in
// common.
Difference diff(const std::string& before, const std::string& after);

std::string to_text(const Difference& difference);
std::string to_json(const Difference& difference);
Report to_report(const Difference& difference, const std::string& command);

}  // namespace brrr::measure
