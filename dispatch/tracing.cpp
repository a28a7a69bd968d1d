#include "brrr/dispatch/tracing.h"

#include <utility>

namespace brrr {

std::atomic<std::uint64_t> setting_changes{0};

Setting::Setting(int value) : state_(std::make_shared<SettingState>(value)) {}

int Setting::value() const { return state_->value.load(std::memory_order_relaxed); }

void Setting::set(int value) {
  if (TraceListener* trace = thread_context.trace_listener) trace->on_setting_changed(*this);
  if (state_->value.exchange(value, std::memory_order_relaxed) != value)
    setting_changes.fetch_add(1, std::memory_order_release);
}

IntendedConstants::IntendedConstants()
    : before_(std::exchange(thread_context.constants_are_intended, true)) {}
IntendedConstants::~IntendedConstants() { thread_context.constants_are_intended = before_; }

void replace(Tensor& owner, Tensor by) noexcept {
  if (Storage* storage = owner.defined() ? TensorImpl::of(owner)->storage : nullptr)
    storage->replaced.fetch_add(1, std::memory_order_relaxed);
  owner = std::move(by);
  setting_changes.fetch_add(1, std::memory_order_release);
}

}  // namespace brrr
