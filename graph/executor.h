// Runs the launches of a program: as a list of calls on the CPU, as a CUDA graph on a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <brrr/graph/lower.h>

namespace brrr::graph {

// Memory for a result of one run, which the caller gets.
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
  bool programmatic;  // CUDA: kernels of a lane start while the one before them ends
};

class Executor {
 public:
  // Of the CUDA graph, where not said otherwise; 0 on the CPU, and before it is captured.
  struct Stats {
    int nodes = 0;
    std::size_t scratch_bytes = 0;  // memory that it keeps for its kernels
    // On the CPU: the most that a kernel had at a time, beside its operands, in the first run.
    std::size_t kernel_bytes = 0;
    double capture_ms = 0;
  };

  virtual ~Executor() = default;
  virtual void run(std::span<const Tensor> arguments, std::span<const ResultBlock> results) = 0;
  // Addresses of blocks have changed.
  virtual void invalidate() {}
  virtual Stats stats() const { return {}; }
};

std::unique_ptr<Executor> make_list_executor(const Executable& executable);
std::unique_ptr<Executor> make_cuda_graph_executor(const Executable& executable);

// The blocks of results, which each run gives new memory, each once.
std::vector<int> result_blocks(const Graph& graph, const Plan& plan, const Memory& memory);

}  // namespace brrr::graph
