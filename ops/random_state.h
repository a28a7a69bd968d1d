// What lies behind random numbers on each device.
#pragma once

#include <cstdint>

#include "tensor/stream.h"

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

}  // namespace brrr
