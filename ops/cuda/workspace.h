// Workspaces of matrix products: one block per stream, freed only by release_workspaces, since
// captured graphs have its address.
#pragma once

#include <cstddef>

#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

// The most that an algorithm may ask for.
inline constexpr std::size_t kMatmulWorkspace = std::size_t{32} << 20;

struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// At least `bytes`: while the stream is captured, the graph's own, since two graphs may run side by
// side; else the stream's, of kMatmulWorkspace bytes or more, allocated now if there is none. Ask
// last: nothing else may be allocated before the call that uses it.
Workspace workspace_of(cu::CudaStream& stream, std::size_t bytes);

// Frees every stream's workspace. No product may be running, and no captured graph may be replayed
// afterwards.
void release_workspaces();

}  // namespace brrr::on_cuda
