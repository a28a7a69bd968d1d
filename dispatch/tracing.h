// Events that a trace must see besides calls: reads and waits of the host, host values that become
// constants, reads of settings. Functions of ops/, autograd/ and nn/ report them here; graph/
// implements the listener.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <brrr/dispatch/keys.h>
#include <brrr/dispatch/setting.h>

namespace brrr {

// The value of a setting, shared with the compiled steps that read it.
struct core::SettingState {
  explicit SettingState(int now) : value(now) {}

  static const std::shared_ptr<SettingState>& of(const Setting& setting) { return setting.state_; }

  std::atomic<int> value;
};

class TraceListener {
 public:
  virtual ~TraceListener() = default;
  // The host is about to read a value or wait for one in `op`. Always throws.
  virtual void on_host_access(const char* op, const char* why) = 0;
  // `op` made a tensor from values of the host.
  virtual void on_host_values(const char* op, const Tensor& made) = 0;
  // The function branched on a setting (`name`: for messages), or changed it.
  virtual void on_setting_read(const Setting& setting, const std::string& name) = 0;
  virtual void on_setting_changed(const Setting& setting) = 0;
  // Calls between the two belong to the module with this path: "mlp.layers.1".
  virtual void on_module_enter(const std::string& module) = 0;
  virtual void on_module_exit() = 0;
  // A tensor's name for reports: "mlp.layers.1.weight".
  virtual void on_tensor_named(const Tensor& x, const std::string& name) = 0;
};

// Whether calls on this thread are recorded in a trace instead of run.
inline bool tracing() {
  return thread_context.included_keys & ~thread_context.excluded_keys & bit(Key::trace);
}

inline void refuse_while_tracing(const char* op, const char* why) {
  if (tracing() && thread_context.trace_listener) [[unlikely]]
    thread_context.trace_listener->on_host_access(op, why);
}

// Counts changes of all settings and all calls of `replace`. A compiled step that was last checked
// at the current count skips its other checks.
extern std::atomic<std::uint64_t> setting_changes;

// Replaces `owner`, a tensor that a module owns, with another tensor. Compiled steps that read the
// old memory are traced again at their next call.
void replace(Tensor& owner, Tensor by) noexcept;

}  // namespace brrr
