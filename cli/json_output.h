// Results as JSON: one document, followed by a newline. docs/schemas has a schema of each.
#pragma once

#include <string>

#include "cli/lab_text.h"
#include "cli/train.h"
#include <brrr/measure/bench.h>
#include <brrr/measure/calibrate.h>
#include <brrr/measure/html_report.h>
#include <brrr/measure/machine.h>

namespace brrr::cli {

std::string to_json(const measure::Machine& machine);
// {"results": [{"name", "device", "value", "unit", "limit", "ratio", …}], "machine": {…}}
std::string to_json(const measure::Results& results, const measure::Machine& machine);
// {"device", "kept", "file", "disturbances", "not_checked", "readings": […], "ceilings": {…}, …}
// `file`: where they are kept; empty: they are not.
std::string to_json(const measure::Calibration& calibration, const std::string& file,
                    const measure::Machine& machine);
// {"experiments": [{"name", "title", "claim"}]}
std::string to_json(std::span<const measure::Experiment> experiments);
// {"device", "quick", "findings": [{"name", "confirmed", "readings": […], "plot", …}], "machine"}
// `report`: its tables and plots become the member "report"; null: there is none.
std::string to_json(std::span<const ExperimentRun> found, const measure::LabOptions& options,
                    const measure::Machine& machine, const measure::Report* report = nullptr);
// {"model", "batch", …, "step_us", …, "losses": […]}
std::string to_json(const TrainResult& result);

}  // namespace brrr::cli
