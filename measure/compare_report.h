// A comparison as a report: the table, the time of a step by mode with its prediction, the kernels
// of each compiled mode under the device's ceilings, and planned memory by policy.
#pragma once

#include <string>

#include <brrr/measure/compare.h>
#include <brrr/measure/html_report.h>
#include <brrr/measure/machine.h>

namespace brrr::measure {

Report compare_report(const Comparison& comparison, const Machine& machine,
                      const std::string& command);

// Live bytes over a step, of several policies, in at most some hundred points each: the largest
// value of each stretch. For brrr explain --svg as well.
LinePlot memory_plot(const std::vector<std::pair<std::string, core::LiveBytes>>& policies);

}  // namespace brrr::measure
