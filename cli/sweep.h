// brrr bench sweep: its options and its table.
#pragma once

#include <span>
#include <string>

#include <brrr/measure/machine.h>
#include <brrr/measure/sweep.h>

namespace CLI {
class App;
}

namespace brrr::cli {

void add_options(CLI::App* command, measure::SweepOptions& options);

std::string to_text(std::span<const measure::SweptStep> steps, Device device,
                    const measure::Machine& machine);

// Throws if a step failed, or if a mode's losses are not eager's.
void require_agreement(std::span<const measure::SweptStep> steps);

}  // namespace brrr::cli
