// Launching hand-written kernels, and keeping them per device.
#pragma once

#include <algorithm>
#include <cstdint>

#include <brrr/ops/cuda/kernel_table.h>
#include <brrr/ops/cuda/programmatic_launch.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
};

// The arguments are passed as they are: their types must be those of the kernel's parameters, or
// begin with them.
template <class... Args>
void launch(CUfunction kernel, Grid grid, int threads, const cu::CudaStream& stream,
            const Args&... args) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  const Blocks blocks{static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                      static_cast<unsigned>(grid.z)};
  launch_programmatic(kernel, blocks, static_cast<unsigned>(threads), stream, pointers);
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// One block per `each` pieces of work, as many as keep every multiprocessor busy; kernels loop over
// the rest.
inline std::int64_t blocks_for(std::int64_t work, std::int64_t each, int multiprocessors,
                               int per_multiprocessor = 16) {
  return std::clamp<std::int64_t>(ceil_div(work, each), 1,
                                  std::int64_t{multiprocessors} * per_multiprocessor);
}

// The hand-written kernels, each under its file and what its text was made for.
enum class KernelFile : std::uint8_t {
  turn,
  matmul_integer,
  matmul_small,
  gather,
  scatter,
  radix,
  scan,
  cat,
  random,
  checked
};

KernelTable<CUfunction>& hand_written_kernels();

// `load` makes the kernel when it is not there; it may run twice when threads race.
template <class Load>
CUfunction hand_written(const cu::CudaStream& stream, KernelFile file, std::uint64_t variant,
                        Load&& load) {
  const KernelKey key{stream.on, static_cast<std::uint64_t>(file), variant};
  if (const CUfunction* found = hand_written_kernels().find(key)) [[likely]]
    return *found;
  return *hand_written_kernels().insert(key, load());
}

}  // namespace brrr::on_cuda
