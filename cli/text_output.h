// Results as text for people: short lists and aligned tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/train.h"
#include <brrr/measure/bench.h>
#include <brrr/measure/calibrate.h>
#include <brrr/measure/machine.h>
#include <brrr/measure/text.h>

namespace brrr::cli {

std::string to_text(const measure::Machine& machine);
std::string to_text(const measure::Results& results, const measure::Machine& machine);
// `file`: where the ceilings are kept; empty: they are not.
std::string to_text(const measure::Calibration& calibration, const std::string& file);
// The parts of brrr train's text, in order: heading, lines of losses, measurements.
std::string heading_text(const TrainOptions& options);
std::string loss_text(std::int64_t step, double loss, bool first);
std::string to_text(const TrainResult& result);
// The model, its sizes and the device.
std::string work_text(const TrainingOptions& options);

}  // namespace brrr::cli
