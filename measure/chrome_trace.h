// A timeline as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: a track for each
// thread and each stream, arrows from the host's span to the kernels that it launched, and a
// counter of live bytes. Slices of a track nest or follow each other, never overlap in part.
#pragma once

#include <string>

#include <brrr/measure/timeline.h>

namespace brrr::measure {

// `what` is what ran: "mlp, batch 128". One JSON document; times are microseconds from the first
// step on.
std::string chrome_trace(const Timeline& timeline, const std::string& what);

}  // namespace brrr::measure
