#include "brrr/measure/replays.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "brrr/dispatch/observe.h"
#include "brrr/tensor/tensor.h"

namespace brrr::measure {
namespace {

// The process's listener, which is never destroyed.
class Hub final : public core::ReplayListener {
 public:
  static Hub& instance() {
    static Hub* const hub = new Hub;
    return *hub;
  }

  void add(core::ReplayListener& listener) {
    const std::unique_lock lock(mutex_);
    listeners_.push_back(&listener);
    core::replay_listener.store(this, std::memory_order_release);
  }
  void remove(core::ReplayListener& listener) {
    const std::unique_lock lock(mutex_);
    std::erase(listeners_, &listener);
    if (listeners_.empty()) core::replay_listener.store(nullptr, std::memory_order_release);
  }
  void called(core::CompiledStep& step) override {
    const std::shared_lock lock(mutex_);
    for (core::ReplayListener* each : listeners_) each->called(step);
  }
  void returned(core::CompiledStep& step, int entry) override {
    const std::shared_lock lock(mutex_);
    for (core::ReplayListener* each : listeners_) each->returned(step, entry);
  }
  void traced(core::CompiledStep& step, const graph::Graph& calls,
              const CompileOptions& options) override {
    const std::shared_lock lock(mutex_);
    for (core::ReplayListener* each : listeners_) each->traced(step, calls, options);
  }
  void destroyed(core::CompiledStep& step) override {
    const std::shared_lock lock(mutex_);
    for (core::ReplayListener* each : listeners_) each->destroyed(step);
  }
  void updated(const void* optimizer, Device device) override {
    const std::shared_lock lock(mutex_);
    for (core::ReplayListener* each : listeners_) each->updated(optimizer, device);
  }

 private:
  std::shared_mutex mutex_;
  std::vector<core::ReplayListener*> listeners_;
};

class Collected final : public core::ReplayListener {
 public:
  void called(core::CompiledStep&) override {}
  void returned(core::CompiledStep& step, int entry) override {
    if (entry >= 0) entries.push_back({&step, entry});
  }

  std::vector<ReplayedEntry> entries;
};

class DeviceOfCalls final : public core::Observer {
 public:
  void after(const core::Call&, std::span<const Tensor> outputs) override {
    const std::lock_guard lock(mutex_);
    for (const Tensor& each : outputs) {
      if (each.defined() && each.device().is_cuda()) device = each.device();
    }
  }
  Device device = Device::cpu();

 private:
  std::mutex mutex_;
};

}  // namespace

Device device_of(const std::function<void()>& work) {
  DeviceOfCalls calls;
  const core::Observing observing(calls);
  work();
  return calls.device;
}

ListeningToReplays::ListeningToReplays(core::ReplayListener& listener) : listener_(listener) {
  Hub::instance().add(listener_);
}
ListeningToReplays::~ListeningToReplays() { Hub::instance().remove(listener_); }

std::vector<ReplayedEntry> replays_in(const std::function<void()>& work) {
  Collected collected;
  const ListeningToReplays listening(collected);
  work();
  return std::move(collected.entries);
}

}  // namespace brrr::measure
