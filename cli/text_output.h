// Results as text for people: short lists and aligned tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/compare.h"
#include "cli/train.h"
#include <brrr/measure/bench.h>
#include <brrr/measure/calibrate.h>
#include <brrr/measure/machine.h>

namespace brrr::cli {

// Lines of a table: the first column is left-aligned, the others right-aligned.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows);
// A line with its name in the first column.
void line(std::string& text, std::string_view name, std::string_view value);
inline constexpr const char* kDisturbed =
    "~ the samples are widely spread: the machine was busy with other work\n";

std::string to_text(const measure::Machine& machine);
std::string to_text(const measure::Results& results, const measure::Machine& machine);
// `file`: where the ceilings are kept; empty: they are not.
std::string to_text(const measure::Calibration& calibration, const std::string& file);
// The parts of brrr train's text, in order: heading, lines of losses, measurements.
std::string heading_text(const TrainOptions& options);
// brrr explain --source.
std::string sources_text(std::span<const GeneratedKernel> kernels);
double without_sign_of_nan(double loss);
std::string loss_text(std::int64_t step, double loss, bool first);
std::string to_text(const TrainResult& result);
std::string to_text(const Comparison& comparison);
// The parts of a comparison's text: whether losses agree, and the table with its heading.
std::vector<std::string> agreement_lines(const Comparison& comparison);
std::vector<std::vector<std::string>> comparison_table(const Comparison& comparison);
// The host's speed while the steps were timed, and eager's prediction for it; not scored.
std::string host_speed_text(const Comparison& comparison);
// The model, its sizes and the device.
std::string work_text(const TrainingOptions& options);
std::string bytes_text(double bytes);  // "1.5 MiB"
// "on NVIDIA H200", a line.
std::string place_text(Device device, const measure::Machine& machine);

}  // namespace brrr::cli
