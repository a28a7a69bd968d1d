// Copies of arguments into a captured graph's memory, of results out of it, and of written
// arguments back: kernel nodes whose addresses each replay sets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <brrr/tensor/cuda_stream.h>

namespace brrr::graph {

enum class BoundaryCopyKind : std::uint8_t { arguments, results, written_arguments };

std::string boundary_copies_source();

// Any number of copies of one kind. Their sizes are fixed; source and destination are set before
// each launch.
class BoundaryCopies {
 public:
  BoundaryCopies(BoundaryCopyKind kind, Device device) : kind_(kind), device_(device) {}

  struct CopyRange {
    const void* from;
    void* to;
    std::size_t bytes;
  };
  void add(const CopyRange& copy);
  bool empty() const { return copies_.empty(); }
  CopyRange& operator[](std::size_t i) { return copies_[i]; }
  std::size_t size() const { return copies_.size(); }

  // Compiles the kernels that `launch` needs. Must not be called during a capture.
  static void prepare(std::span<BoundaryCopies* const> all);
  void launch(cu::CudaStream& stream);
  // Finds the graph nodes that the captured `launch` made.
  void find_nodes(std::span<const CUgraphNode> nodes);
  // Sets the current addresses of the copies in the nodes of an executable graph.
  void set_addresses(CUgraphExec exec);

 private:
  static constexpr std::size_t kMost = 16;
  // The argument of boundary_copies.cu.
  struct CopyRanges {
    CopyRange range[kMost];
  };
  struct CopyKernel {
    CopyRanges ranges{};
    unsigned count = 0, blocks = 1;
    CUgraphNode node = nullptr;
  };

  BoundaryCopyKind kind_;
  Device device_;
  std::vector<CopyRange> copies_;
  std::vector<CopyKernel> kernels_;
  CUfunction function_ = nullptr;
};

}  // namespace brrr::graph
