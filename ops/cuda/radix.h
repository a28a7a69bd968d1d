// A stable sort of pairs on the device.
#pragma once

#include <brrr/tensor/cuda_stream.h>
#include <brrr/tensor/tensor.h>

namespace brrr::on_cuda {

struct SortedPairs {
  Tensor memory;  // of both arrays
  std::uint32_t* keys = nullptr;
  std::uint32_t* values = nullptr;
};

// Pairs to be sorted: `count` keys and as many values, to be written by the caller in `stream`'s
// order.
SortedPairs new_pairs(std::int64_t count, Device device);
// The same pairs by rising key, equal keys in their order. Keys are at most `largest`.
SortedPairs sort_pairs(const SortedPairs& pairs, std::int64_t count, std::uint32_t largest,
                       cu::CudaStream& stream);

}  // namespace brrr::on_cuda
