// Scratch memory for matrix products: one block per stream, kept for good, since captured graphs
// may name it.
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

// At least `bytes`: the graph's own, while the stream is being captured into one, since two graphs
// may run side by side; else the stream's, of kMatmulWorkspace bytes or more, allocated now if
// there is none. Ask last: until the call that uses it is made, nothing else may
// be allocated.
Workspace workspace_of(cu::CudaStream& stream, std::size_t bytes);

// Gives every stream's workspace back; nothing may be in flight, and no graph may be replayed after
// it.
void release_workspaces();

}  // namespace brrr::on_cuda
