// What is not a call and yet matters to a trace: reads by the host, waits, and values of the host
// that become constants. Functions of ops/ and autograd/ report them here; graph/ listens.
#pragma once

#include <brrr/dispatch/keys.h>
#include <brrr/tensor/tensor.h>

namespace brrr {

class TraceListener {
 public:
  virtual ~TraceListener() = default;
  // `op` would read a value or wait for one. Throws.
  virtual void host_needs(const char* op, const char* why) = 0;
  // A tensor was made of values that the host had.
  virtual void froze(const char* op, const Tensor& made) = 0;
};
// Of the trace that this thread is in; null outside.
extern thread_local constinit TraceListener* trace_listener;

// Whether calls on this thread are written down instead of run.
inline bool tracing() { return thread_keys.included & ~thread_keys.excluded & bit(Key::trace); }

inline void refuse_while_tracing(const char* op, const char* why) {
  if (tracing() && trace_listener) [[unlikely]]
    trace_listener->host_needs(op, why);
}

}  // namespace brrr
