// Dispatch keys: one bit each, highest first. A call runs at the highest key that any input or the
// thread asks for and that the thread has not excluded.
#pragma once

#include <atomic>
#include <cstdint>

#include <brrr/tensor/tensor.h>

namespace brrr {

enum class Key : std::uint8_t { cpu, cuda, meta, observe, trace, autograd };
inline constexpr int kKeys = 6;

constexpr std::uint32_t bit(Key key) { return 1u << static_cast<int>(key); }
inline constexpr std::uint32_t kBackends = bit(Key::cpu) | bit(Key::cuda) | bit(Key::meta);

static_assert(TensorWord::backend_key(cpu, false) == bit(Key::cpu) &&
              TensorWord::backend_key(cuda(), false) == bit(Key::cuda) &&
              TensorWord::backend_key(cpu, true) == bit(Key::meta) &&
              TensorWord::kMeta == bit(Key::meta) && TensorWord::kTraced == bit(Key::trace));

struct KeyState {
  std::uint32_t included = 0;
  std::uint32_t excluded = 0;
};
extern thread_local constinit KeyState thread_keys;
// asked for on every thread: Observe, while anybody observes
extern std::atomic<std::uint32_t> global_keys;

class ExcludeKeys {
 public:
  explicit ExcludeKeys(std::uint32_t keys) : before_(thread_keys.excluded) {
    thread_keys.excluded |= keys;
  }
  ~ExcludeKeys() { thread_keys.excluded = before_; }
  ExcludeKeys(const ExcludeKeys&) = delete;
  ExcludeKeys& operator=(const ExcludeKeys&) = delete;

 private:
  std::uint32_t before_;
};

class IncludeKeys {
 public:
  explicit IncludeKeys(std::uint32_t keys) : before_(thread_keys.included) {
    thread_keys.included |= keys;
  }
  ~IncludeKeys() { thread_keys.included = before_; }
  IncludeKeys(const IncludeKeys&) = delete;
  IncludeKeys& operator=(const IncludeKeys&) = delete;

 private:
  std::uint32_t before_;
};

}  // namespace brrr
