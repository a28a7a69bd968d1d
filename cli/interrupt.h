// SIGINT (Ctrl-C) and SIGTERM as a request to stop at the next step.
#pragma once

#include <csignal>

namespace brrr::cli {

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

 private:
  struct sigaction before_interrupt_, before_terminate_;
};

}  // namespace brrr::cli
