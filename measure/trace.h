// The command trace: records some steps of a training and writes them for Perfetto.
#pragma once

#include <optional>
#include <string>

#include <brrr/measure/idle.h>
#include <brrr/measure/model_run.h>
#include <brrr/measure/timeline.h>

namespace brrr::measure {

struct TraceResult {
  ModelRun run;
  std::string out;  // the file
  Timeline timeline;
};

// Trains, then records `steps` steps and writes the file.
TraceResult trace(ModelRun run, int steps, const std::string& out);

// Idle time by cause in the recorded steps; none if records are incomplete, or on the CPU.
std::optional<Occupancy> occupancy_of(const TraceResult& result);

std::string to_text(const TraceResult& result);
std::string to_json(const TraceResult& result);  // commands_json.cpp

}  // namespace brrr::measure
