#include "brrr/measure/watch_entry.h"

#include <algorithm>
#include <utility>

#include "brrr/tensor/allocator.h"

namespace brrr::measure {

CallTimer::CallTimer(Device device) : device_(device) {
  if (device.is_cuda()) {
    before_.emplace(device, true);
    before_->record(Stream::current(device));
  } else {
    observing_.emplace(own_);
  }
}

void CallTimer::end() {
  observing_.reset();
  if (!device_.is_cuda()) return;
  after_.emplace(device_, true);
  after_->record(Stream::current(device_));
}

double CallTimer::seconds() const {
  if (!device_.is_cuda()) return clock_.seconds();
  after_->synchronize();
  return after_->milliseconds_since(*before_) * 1e-3;
}

void WatchedEntry::look_at(const CompileReport& report, int index,
                           std::vector<LaunchCost> launches) {
  step.name = report.name;
  step.entry = report.entries.at(static_cast<std::size_t>(index));
  step.launches = std::move(launches);
  step.device = step.entry->device;
  step.predicted = step.entry->predicted;
  step.peak_bytes = memory_stats(step.device).peak;
}

void WatchedEntry::add(WatchedThread& thread, double called, double now, bool was_timed) {
  auto last = std::ranges::find(last_called, &thread, [](const auto& each) { return each.first; });
  if (last == last_called.end()) {
    last = last_called.insert(last, {&thread, 0});
    step.threads.push_back(thread.number);
  }
  if (step.calls > kWarmCalls && !was_timed) {
    calls.add(now - called);
    if (thread.returned > 0 && thread.hidden_steps == 0) outside.add(called - thread.returned);
    if (last->second > 0) periods.add(called - last->second);
  }
  const bool disturbs = was_timed || step.calls <= kWarmCalls;  // the time until the next call
  last->second = disturbs ? 0 : called;
}

WatchedEntry& WatchedCompiledStep::entry(int index) {
  const auto at = static_cast<std::size_t>(index);
  if (entries.size() <= at) entries.resize(at + 1);
  if (!entries[at]) entries[at] = std::make_unique<WatchedEntry>();
  return *entries[at];
}

WatchedEntry* WatchedCompiledStep::only_entry() const {
  WatchedEntry* only = nullptr;
  for (const std::unique_ptr<WatchedEntry>& each : entries) {
    if (!each) continue;
    if (only) return nullptr;
    only = each.get();
  }
  return only;
}

const WatchedEntry* WatchedCompiledStep::wants_timer() const {
  constexpr int kInVain = 200;
  const auto wants = [](const auto& entry) { return entry && entry->wants_timer(); };
  const auto first = std::ranges::find_if(entries, wants);
  return timed_in_vain < kInVain && first != entries.end() ? first->get() : nullptr;
}

}  // namespace brrr::measure
