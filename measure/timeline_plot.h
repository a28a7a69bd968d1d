// One step of a timeline as plots, the one of median length: what the host calls and what each
// stream of the device runs, and the memory of its tensors.
#pragma once

#include <optional>
#include <string>

#include <brrr/measure/svg_plot.h>
#include <brrr/measure/timeline.h>

namespace brrr::measure {

// The length of that step.
double step_us(const Timeline& timeline);

// The axis is at least as long as `end_us`, for plots that are side by side, and in milliseconds if
// that is one or more. A kind of span has the same color in each plot. A timeline without steps
// gives a plot without spans.
LanePlot lane_plot(const Timeline& timeline, std::string title, double end_us = 0);

// The memory of all tensors on the device, sampled after each op; empty: the step has no op, as a
// replay.
std::optional<LinePlot> memory_plot(const Timeline& timeline, std::string title, double end_us = 0);

}  // namespace brrr::measure
