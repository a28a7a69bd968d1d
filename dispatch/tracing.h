// What is not a call and yet matters to a trace: reads by the host, waits, values of the host that
// become constants, and settings that decide which calls a function makes. Functions of ops/,
// autograd/ and nn/ report them here; graph/ listens.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <brrr/dispatch/keys.h>
#include <brrr/dispatch/setting.h>

namespace brrr {

// What a setting and the compiled steps that read it share.
struct SettingState {
  explicit SettingState(int now) : value(now) {}

  static const std::shared_ptr<SettingState>& of(const Setting& setting) { return setting.state_; }

  std::atomic<int> value;
};

class TraceListener {
 public:
  virtual ~TraceListener() = default;
  // `op` would read a value or wait for one. Throws.
  virtual void host_needs(const char* op, const char* why) = 0;
  // A tensor was made of values that the host had.
  virtual void froze(const char* op, const Tensor& made) = 0;
  // The function branched on a setting, which `name` names in messages; or it sets one itself.
  virtual void reads(const Setting& setting, const std::string& name) = 0;
  virtual void sets(const Setting& setting) = 0;
  // The calls until `leaves` are those of a module: "mlp.layers.1".
  virtual void enters(const std::string& module) = 0;
  virtual void leaves() = 0;
  // A tensor has the user's name "mlp.layers.1.weight".
  virtual void names(const Tensor& x, const std::string& name) = 0;
};

// Whether calls on this thread are written down instead of run.
inline bool tracing() {
  return thread_context.included_keys & ~thread_context.excluded_keys & bit(Key::trace);
}

inline void refuse_while_tracing(const char* op, const char* why) {
  if (tracing() && thread_context.trace_listener) [[unlikely]]
    thread_context.trace_listener->host_needs(op, why);
}

// Counts changes of all settings and all calls of `replace`. A compiled step whose count is this
// one looks at nothing else.
extern std::atomic<std::uint64_t> setting_changes;

// Makes `owner`, a tensor that a module owns, another one. A compiled step that reads the memory of
// the old one is traced again at its next call.
void replace(Tensor& owner, Tensor by) noexcept;

}  // namespace brrr
