// Findings of the lab as text, with plots in characters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <brrr/measure/lab.h>
#include <brrr/measure/machine.h>

namespace brrr::cli {

// An experiment that was run.
struct ExperimentRun {
  const measure::Experiment* experiment = nullptr;
  measure::Finding finding;
  double seconds = 0;
};

std::string to_text(std::span<const measure::Experiment> experiments);
std::string to_text(const ExperimentRun& found);
// Both axes logarithmic; a letter for each series.
std::string to_text(const measure::Plot& plot);
// How many claims were confirmed, where and in what time.
std::string summary_text(std::span<const ExperimentRun> found, const measure::LabOptions& options,
                         const measure::Machine& machine);

}  // namespace brrr::cli
