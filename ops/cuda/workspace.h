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

// A workspace of at least `bytes`. During a capture it belongs to the graph, since two graphs may
// run concurrently; otherwise to the stream, has at least kMatmulWorkspace bytes and is allocated
// if there is none. Call this last: no other allocation may happen before the work that uses the
// workspace.
Workspace workspace_of(cu::CudaStream& stream, std::size_t bytes);

// Frees every stream's workspace. No product may be running, and no captured graph may be replayed
// afterwards.
void release_workspaces();

}  // namespace brrr::on_cuda
