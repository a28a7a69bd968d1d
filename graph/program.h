// A graph with a place for every value and a kernel for every call: what a replay runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <brrr/dispatch/op_info.h>
#include <brrr/graph/ir.h>
#include <brrr/graph/plan.h>
#include <brrr/tensor/error.h>

namespace brrr::graph {

struct ProgramOptions {
  bool lanes = true;
  bool programmatic = true;  // CUDA: kernels of a lane start while the one before ends
};

// Memory that programs which never run side by side may share: it grows to what the largest needs.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Storage* reserve(Device device, std::size_t bytes);
  // What comes next on this stream is after all that used the memory.
  void order(StreamState& stream);

 private:
  StreamState* last_ = nullptr;
  Storage* storage_ = nullptr;
};

// One call, ready to run.
struct Step {
  KernelFn kernel = nullptr;
  const char* name = "";
  const char* composite = nullptr;
  Call call;
  Tensor* outputs = nullptr;
  int node = 0;

  explicit Step(const Call& c) : call(c) {}
  void run() const {
    const OpScope scope(name);
    const CompositeScope in(composite);
    kernel(call, outputs);
  }
};

class CudaReplay;

class Program {
 public:
  Program(Graph graph, std::shared_ptr<Arena> arena, const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Runs the step on arguments like those that it was traced with.
  std::vector<Tensor> run(std::span<const Tensor> arguments);

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  const std::vector<Step>& steps() const { return steps_; }
  // What belongs to the program beside the shared arena: gradients and scratch of a captured graph.
  std::size_t kept_bytes() const { return kept_bytes_; }
  const CudaReplay* cuda() const { return cuda_.get(); }
  const ProgramOptions& options() const { return options_; }
  Arena& arena() { return *arena_; }
  Storage* arena_storage() const { return arena_storage_; }
  // Runs the calls in turn. What goes wrong is told with the line of the program that made the
  // call.
  void run_steps() const;
  // Blocks of their own: of a root, and all of them.
  Storage* storage_of(int root) const { return blocks_[static_cast<std::size_t>(root)].storage; }
  const std::vector<Storage*>& outside() const { return outside_; }
  // An argument that lies in memory that the step writes to by another name, in words; "" when
  // there is none. The graph knows nothing of that.
  std::string shared_memory(std::span<const Tensor> arguments) const;

  // --- Gradients of leaves ---

  enum class Fit : std::uint8_t {
    yes,
    moved,  // those that the step looks at are other tensors than the trace met
    no,
  };
  Fit fit_of_gradients() const;
  // In their place: while that is done nobody else may change them.
  bool adds_to_gradients() const { return adds_to_gradients_; }
  // Whether somebody else holds a gradient that this program made, and would write over.
  bool made_gradients_are_held() const;
  // Gives leaves copies of gradients that others hold too and that the step would add to in their
  // place; whether there were any.
  bool copy_held_gradients() const;

 private:
  struct Block {
    Storage* storage = nullptr;        // owned
    std::uint32_t own_references = 0;  // of the program
  };

  void make_blocks();
  void make_steps();
  Tensor tensor_of(const Value& value);
  void run_on_cpu(std::span<const Tensor> arguments, std::vector<Tensor>& results);
  void point(int buffer, char* data);
  void count_own(const Tensor& handle);
  void tell_of_references(bool there) const;
  bool is_bound(const TensorImpl* made) const;
  bool is_held(const Tensor& gradient, const Tensor& leaf, bool made_here) const;
  void bind_gradients(std::span<const Tensor> arguments);
  // Their memory serves the calls before them too: after a run that throws it may have anything.
  void forget_gradients() const;
  void count_versions(std::span<const Tensor> arguments);

  Graph graph_;
  Plan plan_;
  ProgramOptions options_;
  std::shared_ptr<Arena> arena_;
  Storage* arena_storage_ = nullptr;
  std::vector<Block> blocks_;            // of each root outside of the arena
  std::vector<Tensor> tensors_;          // operands and results of the steps
  std::vector<const Tensor*> pointers_;  // to the operands
  std::vector<std::vector<std::pair<TensorImpl*, std::int64_t>>> views_;  // of each buffer: where
  std::vector<Step> steps_;
  std::vector<Tensor> gradients_;  // of graph_.gradients
  std::vector<Storage*> outside_;  // of the blocks
  std::vector<Storage*> written_;  // captured ones, whose versions each run counts up
  std::vector<int> written_arguments_;
  std::size_t kept_bytes_ = 0;
  bool adds_to_gradients_ = false;
  std::unique_ptr<CudaReplay> cuda_;
};

}  // namespace brrr::graph
