// A comparison as text, and the parts of it that a report has as well.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <brrr/measure/compare.h>
#include <brrr/measure/html_report.h>
#include <brrr/measure/machine.h>

namespace brrr::measure {

// What to read first, in lines of at most 80 columns: the regime; a line for each mode with its
// time, its prediction, what the time goes to, and the share of the machine's peak; whether the
// losses agree; the fastest; the slowest kernel; what is in doubt.
std::string to_text(const Comparison& comparison, bool in_color = false);
// "eager is overhead-bound (likely): 71 % overhead, 20 % bandwidth, 9 % compute", or why there is
// no verdict. Where that is longer than `columns`, the smallest shares are "other".
std::string regime_text(const Comparison& comparison, std::size_t columns = 400);
// The other lines with their titles, whole: "try", "fused: 2.9 times as fast as eager".
std::vector<std::pair<std::string, std::string>> summary_of(const Comparison& comparison,
                                                            bool whole = true);
// Everything else.
std::string details_text(const Comparison& comparison);
// One document: {"agree", "rows": [{"model", "mode", "step_us", …}], "machine", …}. `report`: its
// tables and plots become the member "report"; null: there is none.
std::string to_json(const Comparison& comparison, const Machine& machine,
                    const Report* report = nullptr);
// Whether the losses agree, and the table with its heading.
std::vector<std::string> agreement_lines(const Comparison& comparison);
std::vector<std::vector<std::string>> comparison_table(const Comparison& comparison);
// The host's speed while the steps were timed, and eager's prediction for it; not scored.
std::string host_speed_text(const Comparison& comparison);

}  // namespace brrr::measure
