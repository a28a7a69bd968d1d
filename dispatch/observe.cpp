#include "brrr/dispatch/observe.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "brrr/dispatch/dispatch.h"

namespace brrr {
namespace {

std::shared_mutex observers_mutex;
std::vector<Observer*>& observers() {
  static auto* list = new std::vector<Observer*>;
  return *list;
}

}  // namespace

void detail::observe(Call& call, Tensor* outputs, std::uint32_t keys) {
  // Calls of an observer are not observed, so the lock is taken once per call.
  const ExcludeKeys exclude(bit(Key::observe));
  observe_before(call);
  dispatch_below(Key::observe, call, outputs, keys);
  observe_after(call, {outputs, op_info(call.op).n_outputs});
}

bool observed() {
  return global_keys.load(std::memory_order_relaxed) & ~thread_context.excluded_keys &
         bit(Key::observe);
}

void observe_before(const Call& call) {
  const ExcludeKeys exclude(bit(Key::observe));
  const std::shared_lock lock(observers_mutex);
  for (Observer* observer : observers()) observer->before(call);
}

void observe_after(const Call& call, std::span<const Tensor> outputs) {
  const ExcludeKeys exclude(bit(Key::observe));
  const std::shared_lock lock(observers_mutex);
  for (Observer* observer : observers()) observer->after(call, outputs);
}

Observing::Observing(Observer& observer) : observer_(observer) {
  std::unique_lock lock(observers_mutex);
  observers().push_back(&observer);
  global_keys.fetch_or(bit(Key::observe));
}

Observing::~Observing() {
  std::unique_lock lock(observers_mutex);
  std::erase(observers(), &observer_);
  if (observers().empty()) global_keys.fetch_and(~bit(Key::observe));
}

}  // namespace brrr
