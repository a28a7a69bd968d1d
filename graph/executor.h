// Runs the launches of a program: as a list of calls on the CPU, as a CUDA graph on a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <brrr/graph/lower.h>

namespace brrr::graph {

// Newly allocated memory for a result of one run, which the caller will own.
struct ResultBlock {
  int block = -1;
  Storage* storage = nullptr;
};

// The parts of a program that an executor runs. The program outlives the executor.
struct Executable {
  const Graph& graph;
  const Plan& plan;
  Memory& memory;
  std::span<const Launch> launches;
  bool programmatic;  // CUDA: programmatic dependent launch within a lane
};

// A kernel of a fused node that cannot be made: no schedule walks its body, or its source does not
// compile. Nothing has run.
class RefusedKernel : public Error {
 public:
  RefusedKernel(const std::string& message, const Node& node);
  std::string kernel;      // "mul + sum (at train.cpp:12 in step)"
  std::vector<int> calls;  // of the kernel, by number
};

class Executor {
 public:
  // Statistics of the CUDA graph, 0 before it is captured and on the CPU; except kernel_bytes.
  struct Stats {
    int nodes = 0;
    std::size_t scratch_bytes = 0;  // workspaces that the graph owns
    // On the CPU: the largest workspace of a kernel in the first run.
    std::size_t kernel_bytes = 0;
    double capture_ms = 0;
  };

  virtual ~Executor() = default;
  // Compiles and loads all generated kernels. Throws a RefusedKernel for the first that cannot be
  // made.
  virtual void prepare() {}
  virtual void run(std::span<const Tensor> arguments, std::span<const ResultBlock> results) = 0;
  // Must be called after addresses of blocks have changed.
  virtual void invalidate() {}
  virtual Stats stats() const { return {}; }
};

std::unique_ptr<Executor> make_list_executor(const Executable& executable);
std::unique_ptr<Executor> make_cuda_graph_executor(const Executable& executable);

// The blocks of results, without duplicates. Each run allocates new memory for them.
std::vector<int> result_blocks(const Graph& graph, const Plan& plan, const Memory& memory);

}  // namespace brrr::graph
