// SIGINT (Ctrl-C) and SIGTERM as a request to stop at the next step.
#pragma once

#include <csignal>

#include <brrr/ops/jit/cpu_toolchain.h>

namespace brrr::measure {

// Ends a measurement, of which there is a part. No exception of brrr's: failures are caught.
struct Interrupted {};

// While it exists, the first signal is recorded, and a second one terminates the process. Signals
// that were ignored stay ignored. At most one object may exist at a time.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // The recorded signal; 0: none.
  int signal() const;
  void stop_if_asked() const;  // throws Interrupted

 private:
  struct sigaction before_interrupt_, before_terminate_;
};

// The exit status of a program that failed: 128 plus the signal that it recorded, as shells do,
// or 1.
int failure_status();

// Runs the work until it ends or is interrupted; returns the exit status of what is left.
template <class Work>
int run_interruptibly(Work work) {
  const Interruptible interruptible;
  try {
    work(interruptible);
    return 0;
  } catch (const Interrupted&) {
  } catch (const jit::Interrupted&) {
  }
  return failure_status();
}

}  // namespace brrr::measure
