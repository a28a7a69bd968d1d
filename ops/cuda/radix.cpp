#include "brrr/ops/cuda/radix.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "brrr/ops/cuda/hand_written.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::sources {
extern const char radix_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {
namespace {

Tensor words(std::int64_t count, Device device) { return make_tensor(i32, {&count, 1}, device); }

std::uint32_t* word_pointer(const Tensor& memory) {
  return reinterpret_cast<std::uint32_t*>(memory.data());
}

}  // namespace

SortedPairs new_pairs(std::int64_t count, Device device) {
  SortedPairs pairs;
  pairs.memory = words(2 * count, device);
  pairs.keys = word_pointer(pairs.memory);
  pairs.values = pairs.keys + count;
  return pairs;
}

SortedPairs sort_pairs(const SortedPairs& pairs, std::int64_t count, std::uint32_t largest,
                       cu::CudaStream& stream) {
  const auto kernel = [&](std::uint64_t which, const char* entry) {
    return hand_written(stream, sources::radix_cu, which, entry, [] { return sources::radix_cu; });
  };
  const CUfunction count_digits = kernel(0, "radix_count"), add_up = kernel(1, "radix_offsets"),
                   place = kernel(2, "radix_place");
  constexpr std::int64_t kTile = 4096, kDigits = 256;
  const std::int64_t tiles = ceil_div(count, kTile);
  const Tensor counts = words(kDigits * tiles, stream.device);
  SortedPairs from = pairs, to = new_pairs(count, stream.device);
  for (int shift = 0; shift < std::max(1, static_cast<int>(std::bit_width(largest))); shift += 8) {
    launch(count_digits, {tiles}, 256, stream, from.keys, count, shift, word_pointer(counts));
    launch(add_up, {}, 1024, stream, word_pointer(counts), kDigits * tiles);
    launch(place, {tiles}, 256, stream, from.keys, from.values, count, shift, word_pointer(counts),
           to.keys, to.values);
    std::swap(from, to);
  }
  return from;
}

}  // namespace brrr::on_cuda
