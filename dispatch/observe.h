// Watching calls. An observer sees every op call of every thread, before and after it runs;
// counters, profilers and users' interceptors are observers. Without observers, the cost is one
// load per call.
#pragma once

#include <span>

#include <brrr/dispatch/call.h>

namespace brrr::core {

// A replay of a compiled step calls observers for each of its kernels: on the CPU before and after
// the kernel runs, on CUDA after the launch of the whole graph.
class Observer {
 public:
  virtual ~Observer() = default;
  // Called on the thread that makes the call, above the backend: on CUDA the kernel is launched in
  // between, not finished. Ops called from an observer are not observed. What `before` throws, the
  // caller of the op gets.
  virtual void before(const Call&) {}
  virtual void after(const Call&, std::span<const Tensor> /*outputs*/) {}
};

// Observes from construction to destruction, then waits until no call is inside the observer.
class Observing {
 public:
  explicit Observing(Observer& observer);
  ~Observing();
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  Observer& observer_;
};

}  // namespace brrr::core
