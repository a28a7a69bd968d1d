// Built without CUDA's headers: no tensor can be on CUDA, so no program is.
#include "brrr/graph/cuda_replay.h"
#include "brrr/tensor/error.h"

namespace brrr::graph {

std::unique_ptr<CudaReplay> make_cuda_replay(Program&) { fail("[compile] was built without CUDA"); }

}  // namespace brrr::graph
