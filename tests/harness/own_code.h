// What a program does between calls of brrr, for tests of what finds it: what has brrr in its name
// is not its own.
#pragma once

#include <chrono>
#include <thread>

namespace own_code {

[[gnu::noinline]] inline void prepare_batch() {
  using Clock = std::chrono::steady_clock;  // not brrr's: its code would count as brrr's
  for (const auto start = Clock::now(); Clock::now() - start < std::chrono::milliseconds(2);) {
  }
  asm volatile("");  // no tail call: the frame stays
}
[[gnu::noinline]] inline void wait_for_batch() {
  std::this_thread::sleep_for(std::chrono::milliseconds(6));
  asm volatile("");
}

}  // namespace own_code
