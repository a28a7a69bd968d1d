// Drawing the same random numbers once more, for what is computed again.
#pragma once

#include <cstdint>

#include "tensor/stream.h"

namespace brrr {

// Where the generator stands: on each device, the next draw's place in its step.
struct RandomPlaces {
  std::int64_t place[2][kMaxDevices];
  std::uint32_t version[2][kMaxDevices];  // of the seed and step
};
RandomPlaces random_places();

// While it lives, draws repeat those that were made from `places` on; then the generator stands
// where it stood. Throws when a seed or a step has changed since.
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
