// A fork-join pool for loops on the CPU. A range is cut into chunks whose boundaries depend only on
// its length and the grain, never on the number of threads, so results per chunk have the same bits
// on any machine.
//
// Any thread may call. While one caller uses the workers, another runs its chunks itself; so do
// calls from inside a body. A caller never waits for a worker that has not begun, so sleeping
// workers cost nothing but speed.
//
// A worker spins for a while before it sleeps. To wake a sleeping one takes much longer than to
// share a loop with a spinning one: a grain states how many elements are worth either.
#pragma once

#include <cstdint>
#include <type_traits>

namespace brrr {

namespace core {
// Processors that this process may run on: fewer than the machine's under taskset or in a cpuset.
int available_processors();
}  // namespace core

// Threads that work on a loop, the caller included. The default is BRRR_THREADS, or one for each
// available processor. A change takes effect for loops that begin after it; it may be made
// anywhere, even inside a body.
int num_threads();
void set_num_threads(int count);

namespace core {

// The least length of a chunk. A loop of more than `wakes` elements wakes sleeping workers, and so
// does the next of many shorter ones in close succession.
struct Grain {
  std::int64_t shares, wakes;

  constexpr Grain(std::int64_t both) : shares(both), wakes(both) {}  // NOLINT: as a number
  constexpr Grain(std::int64_t shared, std::int64_t woken) : shares(shared), wakes(woken) {}
};

using RangeFn = void (*)(void* body, std::int64_t begin, std::int64_t end);
void run_chunks(std::int64_t n, Grain grain, RangeFn run, void* body);

// Calls body(begin, end) on chunks that cover [0, n) once, each at least `grain` long but the last
// one. The first exception that a body throws reaches the caller; chunks not begun by then are
// skipped.
template <class Body>
void parallel_for(std::int64_t n, Grain grain, Body&& body) {
  if (n <= 0) return;
  if (n <= grain.shares) {
    body(std::int64_t{0}, n);
    return;
  }
  using Plain = std::remove_reference_t<Body>;
  run_chunks(
      n, grain,
      [](void* self, std::int64_t begin, std::int64_t end) {
        (*static_cast<Plain*>(self))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace core

}  // namespace brrr
