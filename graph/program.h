// A graph with its plan, memory, launches and executor: the unit that replays run.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <brrr/graph/executor.h>
#include <brrr/graph/prediction.h>

namespace brrr::graph {

struct ProgramOptions {
  bool lanes = true;
  bool programmatic = true;
};

// The view of an argument that a value describes.
Tensor part_of(const Tensor& argument, const Value& value);

class Program {
 public:
  // How a program on this device is planned.
  static PlanOptions plan_options(Device device, const ProgramOptions& options) {
    const bool on_cuda = device.is_cuda();
    return {
        .inputs_in_arena = on_cuda, .outputs_in_arena = on_cuda, .lanes = options.lanes && on_cuda};
  }

  Program(Graph graph, std::shared_ptr<Arena> arena, const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Makes all kernels, so that none can be refused once the first has run.
  void prepare() { executor_->prepare(); }

  // Runs the step on arguments like those that it was traced with.
  std::vector<Tensor> run(std::span<const Tensor> arguments);

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  std::span<const Launch> launches() const { return lowered_.launches; }
  const Memory& memory() const { return *memory_; }
  const Prediction& prediction() const { return prediction_; }
  // Times each kernel by itself; the prediction is made of these times from now on.
  void measure_kernels();
  Executor::Stats stats() const { return executor_->stats(); }
  std::size_t result_bytes() const;  // that each run allocates

  // Describes an argument that aliases memory which the step writes through another argument or
  // tensor; "" if there is none. The plan assumes that there is none.
  std::string alias_problem(std::span<const Tensor> arguments) const;

  // --- Gradients of leaves (gradients.cpp) ---

  enum class Fit : std::uint8_t {
    yes,
    moved,  // leaves have other gradient tensors than those that the step reads
    no,
  };
  Fit fit_of_gradients() const;
  // Where leaves have other gradient tensors than those that the step reads, of the same layout,
  // the program reads these from now on. False, and nothing changed: a trace with them would
  // differ.
  bool rebind_gradients();
  // The first gradient that does not fit: "the gradient of f32[4] has strides [1], and had [2]".
  std::string difference_of_gradients() const;
  // Whether the step adds to gradients in place, so that no other thread may change them meanwhile.
  bool accumulates() const { return accumulates_; }
  // Gives new memory to each gradient block whose old values the caller still holds; returns
  // whether there was any.
  bool renew_gradients();
  // Copies every leaf gradient that the step adds to in place while the caller still holds it.
  bool copy_accumulated_gradients() const;

 private:
  std::vector<Tensor> make_results(std::span<const Tensor> arguments,
                                   std::vector<ResultBlock>& fresh) const;
  void find_writes();
  void publish_references(bool published) const;
  void count_versions(std::span<const Tensor> arguments) const;
  bool may_rebind(const GradientSlot& slot, const Tensor& now) const;
  void rebind(GradientSlot& slot, const Tensor& now);
  void bind_gradients(std::span<const Tensor> arguments) const;
  void forget_gradients() const;

  Graph graph_;
  Plan plan_;
  std::unique_ptr<Memory> memory_;
  Lowered lowered_;
  Prediction prediction_;
  std::unique_ptr<Executor> executor_;
  std::vector<int> result_blocks_;
  std::vector<Storage*> written_;       // captured ones, whose versions each run increments
  std::vector<int> written_arguments_;  // the same of arguments
  // Arguments that a replay writes to. On CUDA it does to those whose copies calls of unknown
  // effect may have changed.
  std::vector<int> copied_back_;
  bool accumulates_ = false;
};

}  // namespace brrr::graph
