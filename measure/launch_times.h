// Measured times of a compiled step's launches.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <brrr/measure/timeline.h>

namespace brrr::measure {

// The time of each launch in seconds, as the median over the recorded replays of a step that
// replays one compiled entry; none where the records do not identify the launch. On CUDA the time
// of its kernels: a kernel that starts while the previous one of its lane still runs counts from
// the end of that one.
std::vector<std::optional<double>> launch_seconds(const Timeline& timeline, std::size_t launches);

}  // namespace brrr::measure
