// Hand-written kernels: the .cu files of this folder, compiled by NVRTC at first use. The .cpp that
// launches a kernel names the file and prepends the types and constants that it expects; there is
// no list of kernels to update. tests/ops/test_cuda_sources.cpp compiles them without a GPU.
#pragma once

#include <cstdint>
#include <utility>

#include <brrr/ops/cuda/kernel_table.h>
#include <brrr/ops/cuda/launch.h>
#include <brrr/ops/jit/compiler.h>
#include <brrr/ops/jit/render.h>

namespace brrr::on_cuda {

using jit::pieces::typedef_of, jit::pieces::typedef_of_bits;

KernelTable<CUfunction>& hand_written_kernels();

// The kernel `entry` of `file`, a source that the library carries (ops/jit/sources.h). `variant`
// packs the entry and everything else that `make_source` depends on.
template <class MakeSource>
CUfunction hand_written(const cu::CudaStream& stream, const char* file, std::uint64_t variant,
                        const char* entry, MakeSource&& make_source,
                        const jit::KernelOptions& options = {}) {
  const KernelKey key{stream.on, reinterpret_cast<std::uintptr_t>(file), variant};
  if (const CUfunction* found = hand_written_kernels().find(key)) [[likely]]
    return *found;
  return *hand_written_kernels().insert(
      key, jit::load_kernel(stream.device, entry, make_source(), options));
}

}  // namespace brrr::on_cuda
