#include "brrr/measure/replays.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "brrr/dispatch/observe.h"
#include "brrr/tensor/tensor.h"

namespace brrr::measure {
namespace {

// The process's listener, which is never destroyed. It holds no lock while it tells of a call: a
// listener may wait for a lock of a step's, and a thread that has one may be told of its calls.
class Hub final : public core::ReplayListener {
 public:
  static Hub& instance() {
    static Hub* const hub = new Hub;
    return *hub;
  }

  void add(core::ReplayListener& listener) {
    const std::lock_guard lock(mutex_);
    List list = *list_.load();
    list.push_back(&listener);
    replace(std::move(list));
    core::replay_listener.store(this, std::memory_order_release);
  }
  void remove(core::ReplayListener& listener) {
    const std::lock_guard lock(mutex_);
    List list = *list_.load();
    std::erase(list, &listener);
    if (list.empty()) core::replay_listener.store(nullptr, std::memory_order_release);
    replace(std::move(list));
  }
  // By a listener that is told of a call. Those left are in the lower half of `unseen`, the number
  // of lists in the upper one.
  bool hide(core::CompiledStep& step, std::uint32_t calls) const {
    // In this order: the number changes after the list.
    const std::uint64_t listeners = lists_;
    if (list_.load()->size() != 1) return false;
    step.unseen = listeners << 32 | calls;
    return true;
  }
  bool leaves_out(core::CompiledStep& step) override {
    const std::uint64_t none = std::uint64_t{lists_.load(std::memory_order_relaxed)} << 32;
    std::uint64_t now = step.unseen.load(std::memory_order_relaxed);
    while (now > none && now >> 32 == none >> 32) {
      if (step.unseen.compare_exchange_weak(now, now - 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void called(core::CompiledStep& step) override {
    tell([&](core::ReplayListener& each) { each.called(step); });
  }
  void returned(core::CompiledStep& step, int entry) override {
    tell([&](core::ReplayListener& each) { each.returned(step, entry); });
  }
  void traced(core::CompiledStep& step, const graph::Graph& calls,
              const CompileOptions& options) override {
    tell([&](core::ReplayListener& each) { each.traced(step, calls, options); });
  }
  void destroyed(core::CompiledStep& step) override {
    tell([&](core::ReplayListener& each) { each.destroyed(step); });
  }
  void updated(const void* optimizer, Device device) override {
    tell([&](core::ReplayListener& each) { each.updated(optimizer, device); });
  }

 private:
  using List = std::vector<core::ReplayListener*>;

  template <class F>
  void tell(F of) {
    struct Telling {
      std::atomic<int>& count;
      explicit Telling(std::atomic<int>& of) : count(of) { ++count; }
      ~Telling() { --count; }
    } const telling(telling_);
    for (core::ReplayListener* each : *list_.load()) of(*each);
  }
  // Returns once no thread is told by the old list.
  void replace(List list) {
    const std::unique_ptr<const List> old(list_.exchange(new List(std::move(list))));
    ++lists_;
    while (telling_ != 0) std::this_thread::yield();
  }

  std::mutex mutex_;
  std::atomic<const List*> list_{new List};
  std::atomic<std::uint32_t> lists_{0};  // so far
  std::atomic<int> telling_{0};
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

bool hide_calls(core::CompiledStep& step, std::uint32_t calls) {
  return Hub::instance().hide(step, calls);
}

std::vector<ReplayedEntry> replays_in(const std::function<void()>& work) {
  Collected collected;
  const ListeningToReplays listening(collected);
  work();
  return std::move(collected.entries);
}

}  // namespace brrr::measure
