// brrr bench sweep: its table.
#pragma once

#include <span>
#include <string>

#include <brrr/measure/machine.h>
#include <brrr/measure/sweep.h>

namespace brrr::cli {

std::string to_text(std::span<const measure::SweptStep> steps, Device device,
                    const measure::Machine& machine);

// Throws if a step failed, or if a mode's losses are not eager's.
void require_agreement(std::span<const measure::SweptStep> steps);

}  // namespace brrr::cli
