// Built without CUDA's headers: no tensor can be on CUDA, so no program is.
#include "brrr/graph/executor.h"

namespace brrr::graph {

std::unique_ptr<Executor> make_cuda_graph_executor(const Executable&) {
  fail("[compile] was built without CUDA");
}

}  // namespace brrr::graph
