// Findings of the lab as a report: a section for each experiment, with the claim, the article's
// numbers beside those measured here, plots and the verdict.
#pragma once

#include <span>

#include "cli/lab_text.h"
#include <brrr/measure/html_report.h>

namespace brrr::cli {

measure::Section section_of(const ExperimentRun& found);

measure::Report lab_report(std::span<const ExperimentRun> found, const measure::LabOptions& options,
                           const measure::Machine& machine, const std::string& command);

}  // namespace brrr::cli
