// brrr trace: records some steps of a training and writes them for Perfetto.
#pragma once

#include <optional>
#include <string>

#include "cli/train.h"
#include <brrr/measure/idle.h>
#include <brrr/measure/timeline.h>

namespace brrr::cli {

struct TraceOptions : TrainOptions {
  int record = 3;   // steps
  std::string out;  // the file
};

struct TraceResult {
  TraceOptions options;
  measure::Timeline timeline;
};

// Trains for options.steps, then records and writes the file.
TraceResult trace(const TraceOptions& options);

// Idle time by cause in the recorded steps; none if records are incomplete, or on the CPU.
std::optional<measure::Occupancy> occupancy_of(const TraceResult& result);

std::string to_text(const TraceResult& result);
std::string to_json(const TraceResult& result);  // json_output.cpp

}  // namespace brrr::cli
