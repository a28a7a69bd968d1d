// The generators of random numbers, one a device: their places for recomputation, traces and
// replays.
#pragma once

#include <cstdint>
#include <vector>

#include <brrr/tensor/stream.h>

namespace brrr {

// Frees the generators' state on CUDA, before the runtime is shut down. The next draw starts again
// at the seed, step 0, place 0.
void release_random_state();

// The next draw's place in its step, of every device's generator.
struct RandomPlaces {
  static constexpr int kGenerators = 2 * kMaxDevices;

  std::int64_t place[kGenerators];
  std::int64_t base[kGenerators];      // as the tensors have it
  std::uint32_t version[kGenerators];  // of the seed and step
};
RandomPlaces random_places();
// Returns to `places`; the caller has restored the bytes of the generators' tensors.
void rewind_random(const RandomPlaces& places);

// Scope in which draws repeat those made from `places` on, for a recomputation; afterwards the
// generators continue as before. Throws if a seed or a step has changed since.
class RandomReplay {
 public:
  explicit RandomReplay(const RandomPlaces& places);
  ~RandomReplay();
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomPlaces before_;
};

// The effect of one replay of a traced step on a device's generator.
struct RandomAdvance {
  Device device;
  std::int64_t draws = 0;  // since the last new step in it
  bool stepped = false;    // it begins a new step
};

// Scope in which draws on this thread are numbered from the start of the traced step. `finish`
// records the calls that make each replay continue where the previous one ended.
class RandomTrace {
 public:
  RandomTrace();
  ~RandomTrace();
  RandomTrace(const RandomTrace&) = delete;
  RandomTrace& operator=(const RandomTrace&) = delete;
  std::vector<RandomAdvance> finish();

 private:
  RandomPlaces before_;
};

// Around a replay on the current stream.
void before_replay(const RandomAdvance& advance);
void after_replay(const RandomAdvance& advance);

}  // namespace brrr
