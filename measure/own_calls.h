// The calls of one thread, among those of all that observers see.
#pragma once

#include <span>
#include <thread>

#include <brrr/dispatch/observe.h>

namespace brrr::measure {

// Passes on the calls of the thread that constructs it.
class OwnCalls final : public core::Observer {
 public:
  explicit OwnCalls(core::Observer& to) : to_(to) {}

  void before(const core::Call& call) override {
    if (std::this_thread::get_id() == thread_) to_.before(call);
  }
  void after(const core::Call& call, std::span<const Tensor> outputs) override {
    if (std::this_thread::get_id() == thread_) to_.after(call, outputs);
  }

 private:
  core::Observer& to_;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace brrr::measure
