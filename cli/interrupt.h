// Ctrl-C (SIGINT) and SIGTERM as a request to end soon.
#pragma once

#include <csignal>

namespace brrr::cli {

// While it lives, the first of these signals is noted, and the next one ends the process at once. A
// signal that the process was started to ignore stays ignored. One object at a time.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // The signal that came; 0: none.
  int signal() const;

 private:
  struct sigaction before_interrupt_, before_terminate_;
};

}  // namespace brrr::cli
