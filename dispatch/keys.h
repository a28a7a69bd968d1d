// Dispatch keys: one bit each, highest first. A call runs at the highest key that any input or the
// thread asks for and that the thread has not excluded.
#pragma once

#include <atomic>
#include <cstdint>

#include <brrr/tensor/tensor_impl.h>
#include <brrr/tensor/thread_context.h>

namespace brrr {

enum class Key : std::uint8_t { cpu, cuda, meta, observe, trace, autograd };
inline constexpr int kKeys = 6;

constexpr std::uint32_t bit(Key key) { return 1u << static_cast<int>(key); }
inline constexpr std::uint32_t kBackends = bit(Key::cpu) | bit(Key::cuda) | bit(Key::meta);

static_assert(backend_key(cpu, false) == bit(Key::cpu) &&
              backend_key(cuda(), false) == bit(Key::cuda) &&
              backend_key(cpu, true) == bit(Key::meta) && TensorWord::kTraced == bit(Key::trace));

// Keys of each call on every thread: Observe, while there are observers.
extern std::atomic<std::uint32_t> global_keys;

class ExcludeKeys : public ContextScope<&ThreadContext::excluded_keys> {
 public:
  explicit ExcludeKeys(std::uint32_t keys) : ContextScope(thread_context.excluded_keys | keys) {}
};

class IncludeKeys : public ContextScope<&ThreadContext::included_keys> {
 public:
  explicit IncludeKeys(std::uint32_t keys) : ContextScope(thread_context.included_keys | keys) {}
};

}  // namespace brrr
