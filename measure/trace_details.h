// What the calls and launches of a recorded step compute: shapes, FLOPs and bytes, beside the times
// of a timeline. They are taken from a further step, so that recording costs no more for them.
#pragma once

#include <functional>

#include <brrr/measure/timeline.h>

namespace brrr::measure {

// Runs the step that was recorded once more. Calls of other numbers or names than those recorded
// stay without details.
void add_details(Timeline& timeline, const std::function<void()>& step);

}  // namespace brrr::measure
