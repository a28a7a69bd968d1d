#include "brrr/dispatch/tracing.h"

namespace brrr {

thread_local constinit TraceListener* trace_listener = nullptr;

}  // namespace brrr
