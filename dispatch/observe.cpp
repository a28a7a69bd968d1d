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

// Calls made by observers pass by: the key is excluded while they run, so the lock is taken once
// per call.
void observe(Call& call, Tensor* outputs, std::uint32_t keys) {
  ExcludeKeys exclude(bit(Key::observe));
  {
    std::shared_lock lock(observers_mutex);
    for (Observer* observer : observers()) observer->before(call);
  }
  dispatch_below(Key::observe, call, outputs, keys);
  std::shared_lock lock(observers_mutex);
  const std::span<const Tensor> results(outputs, op_info(call.op).n_outputs);
  for (Observer* observer : observers()) observer->after(call, results);
}

}  // namespace

Observing::Observing(Observer& observer) : observer_(observer) {
  std::unique_lock lock(observers_mutex);
  set_key_function(Key::observe, observe);
  observers().push_back(&observer);
  global_keys.fetch_or(bit(Key::observe));
}

Observing::~Observing() {
  std::unique_lock lock(observers_mutex);
  std::erase(observers(), &observer_);
  if (observers().empty()) global_keys.fetch_and(~bit(Key::observe));
}

}  // namespace brrr
