// Rematerialization by hand: a node that keeps a function and its inputs. When the gradients of its
// outputs are known, the function runs again on the same inputs, recorded this time. The new nodes
// lead to those of the inputs and join the backward that is running.

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/tape_node.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace autograd {
namespace {

// Marks the calls of a rerun checkpoint with a number, for traces.
struct Recomputation : ContextScope<&ThreadContext::recomputation> {
  Recomputation() : ContextScope(++thread_context.last_recomputation) {}
};

struct Again final : Recomputed {
  Checkpointed fn;
  RandomPlaces places;
  std::size_t outputs = 0;

  const char* name() const override { return "checkpoint"; }

  void forget() override {
    fn = nullptr;
    inputs.clear();
  }

  std::vector<Tensor> again() override {
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Saved& saved = inputs[i];
      if (saved.tensor.defined() && saved.tensor.version() != saved.version) {
        fail(
            "[checkpoint] input {}, {}, was written to in place since: it is at version {} and was "
            "saved at {}",
            i, saved.tensor.describe(), saved.tensor.version(), saved.version);
      }
      values.push_back(saved.tensor);
    }
    const RandomReplay replay(places);
    const Recomputation recomputation;
    std::vector<Tensor> result = fn(values);
    if (result.size() != outputs) {
      fail("[checkpoint] expected as many outputs as the first time, {}, got {}", outputs,
           result.size());
    }
    return result;
  }
};

}  // namespace
}  // namespace autograd

std::vector<Tensor> checkpoint(const Checkpointed& fn, std::vector<Tensor> inputs) {
  using namespace autograd;
  if (!fn) fail("[checkpoint] expected a function, got none");
  if (!grad_enabled()) return fn(inputs);
  auto again = std::make_unique<Again>();
  again->places = random_places();
  bool any = false;
  std::vector<Tensor> outputs;
  {
    const ContextScope<&ThreadContext::checkpoint_notices> notices(&any);
    outputs = fn(inputs);
  }
  if (!any || outputs.empty()) return outputs;
  constexpr std::size_t kMost = 255;
  if (outputs.size() > kMost)
    fail("[checkpoint] expected at most {} outputs, got {}", kMost, outputs.size());
  again->fn = fn;
  again->outputs = outputs.size();
  auto* node = new TapeNode(Op::first_registered);
  node->n_outputs = static_cast<std::uint8_t>(outputs.size());
  node->rest = std::make_unique<TapeNodeRest>();
  std::uint64_t latest = 0;
  for (const Tensor& input : inputs) {
    again->inputs.push_back({input, input.defined() ? input.version() : 0});
    if (input.defined() && requires_grad(input) && history_of(input)->node)
      latest = std::max(latest, history_of(input)->node->sequence);
  }
  node->rest->slots.resize(outputs.size());
  node->rest->results.resize(outputs.size());
  node->recomputed = std::move(again);
  node->sequence = next_sequence(latest);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !is_floating(outputs[i].dtype())) continue;
    // A tensor with other owners, such as an input that fn returns, keeps its history.
    if (TensorImpl::of(outputs[i])->refs.load() > 1) outputs[i] = without_history(outputs[i]);
    node->retain();
    attach(outputs[i], node, static_cast<int>(i));
  }
  node->drop();
  return outputs;
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input) {
  if (!fn) fail("[checkpoint] expected a function, got none");
  return checkpoint(
      [fn](std::span<const Tensor> inputs) { return std::vector<Tensor>{fn(inputs[0])}; },
      std::vector<Tensor>{input})[0];
}

}  // namespace brrr
