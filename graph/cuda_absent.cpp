// Stubs for a build without CUDA's headers, in which no program can run on CUDA.
#include "brrr/graph/ceilings.h"
#include "brrr/graph/executor.h"
#include "brrr/tensor/runtime.h"

namespace brrr::graph {

std::unique_ptr<Executor> make_cuda_graph_executor(const Executable&) {
  fail("[compile] was built without CUDA");
}

Ceilings default_cuda_ceilings(Device device) {
  require_device(device, "ceilings");
  return {};
}
std::string cuda_machine(Device device) {
  require_device(device, "ceilings");
  return "";
}
std::string cuda_software() { return ""; }

}  // namespace brrr::graph
