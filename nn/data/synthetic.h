// Toy problems made in code. The same arguments give the same examples; no draw touches the
// generator that rand and randn use.
#pragma once

#include <cstdint>

#include <brrr/nn/data/dataset.h>

namespace brrr::data {

// Points of two spirals around each other, `turns` times about the centre, in [-1, 1]² but for the
// noise: inputs f32 [size, 2], targets i64 [size], which alternate between 0 and 1.
Dataset two_spirals(std::int64_t size, double noise = 0.02, double turns = 1.5,
                    std::uint64_t seed = 0);

// targets = tanh(inputs A) B + noise with A and B drawn once: inputs f32 [size, features] standard
// normal, targets f32 [size, outputs].
Dataset regression(std::int64_t size, std::int64_t features, std::int64_t outputs = 1,
                   double noise = 0.1, std::uint64_t seed = 0);

}  // namespace brrr::data
