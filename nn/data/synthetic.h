// Synthetic datasets. The same arguments give the same examples; the generator of rand and randn is
// not used.
#pragma once

#include <cstdint>

#include <brrr/nn/data/dataset.h>

namespace brrr::data {

// Two interleaved spirals of `turns` turns, in [-1, 1]² before noise is added: inputs f32 [size,
// 2], targets i64 [size], alternating 0 and 1.
Dataset two_spirals(std::int64_t size, double noise = 0.02, double turns = 1.5,
                    std::uint64_t seed = 0);

// targets = tanh(inputs A) B + noise, with random A and B: inputs f32 [size, features], standard
// normal; targets f32 [size, outputs].
Dataset regression(std::int64_t size, std::int64_t features, std::int64_t outputs = 1,
                   double noise = 0.1, std::uint64_t seed = 0);

}  // namespace brrr::data
