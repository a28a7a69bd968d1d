// Timelines that were recorded once and kept as files of `brrr trace`.
#pragma once

#include <string>

#include <brrr/measure/timeline.h>

namespace brrr::testing {

// The timeline of a file of tests/measure/data, named without ".json". Times are as exact as the
// file: nanoseconds.
measure::Timeline recorded_timeline(const std::string& name);

}  // namespace brrr::testing
