#include "brrr/dispatch/tracing.h"

#include <utility>

namespace brrr {

thread_local constinit TraceListener* trace_listener = nullptr;
thread_local constinit bool constants_are_intended = false;
std::atomic<std::uint64_t> setting_changes{0};

void Setting::set(int value) {
  if (trace_listener) trace_listener->sets(*this);
  if (state_->exchange(value, std::memory_order_relaxed) != value)
    setting_changes.fetch_add(1, std::memory_order_release);
}

void replace(Tensor& owner, Tensor by) noexcept {
  if (Storage* storage = owner.defined() ? owner.impl()->storage : nullptr)
    storage->replaced.fetch_add(1, std::memory_order_relaxed);
  owner = std::move(by);
  setting_changes.fetch_add(1, std::memory_order_release);
}

}  // namespace brrr
