// What lies behind random numbers on each device.
#pragma once

#include <cstdint>
#include <vector>

#include <brrr/tensor/stream.h>

namespace brrr {

// Gives back the memory of the state on CUDA: before the runtime is shut down. The next draw starts
// again at the seed, step 0, place 0.
void release_random_state();

// Where the generator stands: on each device, the next draw's place in its step.
struct RandomPlaces {
  std::int64_t place[2][kMaxDevices];
  std::uint32_t version[2][kMaxDevices];  // of the seed and step
};
RandomPlaces random_places();

// While it lives, draws repeat those that were made from `places` on, for what is computed again;
// then the generator stands where it stood. Throws when a seed or a step has changed since.
class RandomReplay {
 public:
  explicit RandomReplay(const RandomPlaces& places);
  ~RandomReplay();
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomPlaces before_;
};

// What one replay of a traced step does to the generator of a device.
struct RandomAdvance {
  Device device;
  std::int64_t draws = 0;  // since the last new step in it
  bool stepped = false;    // it goes to a new step
};

// While it lives, the places of draws on this thread are counted from the start of a step that is
// being traced. `finish` makes the calls that let each replay go on where the last one ended.
class RandomTrace {
 public:
  RandomTrace();
  ~RandomTrace();
  RandomTrace(const RandomTrace&) = delete;
  RandomTrace& operator=(const RandomTrace&) = delete;
  std::vector<RandomAdvance> finish();

 private:
  std::int64_t before_[2][kMaxDevices];
};

// Around a replay on the current stream.
void before_replay(const RandomAdvance& advance);
void after_replay(const RandomAdvance& advance);

}  // namespace brrr
