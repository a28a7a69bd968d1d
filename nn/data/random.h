// Numbers for data: a stream of its own for each seed, the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace brrr::data {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }  // in [0, 1)
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(bound));
  }

 private:
  // Its values are fixed by the standard; those of the standard's distributions are not.
  std::mt19937_64 engine_;
};

}  // namespace brrr::data
