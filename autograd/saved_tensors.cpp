// Lists the tensors that the tape of an output saves, with the ops that saved them.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/tape_node.h"
#include "brrr/tensor/error.h"

namespace brrr {

std::vector<SavedTensor> saved_tensors(const Tensor& output) {
  using namespace autograd;
  require_defined("saved_tensors", output);
  std::vector<TapeNode*> nodes;
  std::unordered_set<TapeNode*> seen;
  const auto visit = [&](TapeNode* node) {
    if (node && seen.insert(node).second) nodes.push_back(node);
  };
  if (const History* history = history_of(output)) visit(history->node);
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    TapeNode* node = nodes[at];
    for (int i = 0; i < node->operand_count(); ++i) visit(node->edge(i).node());
    if (!node->recomputed) continue;
    for (const Saved& input : node->recomputed->inputs) {
      if (input.tensor.defined() && requires_grad(input.tensor))
        visit(history_of(input.tensor)->node);
    }
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const TapeNode* a, const TapeNode* b) { return a->sequence < b->sequence; });
  std::vector<SavedTensor> result;
  for (TapeNode* node : nodes) {
    const auto add = [&](const char* kind, int i, const Saved& saved) {
      if (saved.tensor.defined())
        result.push_back({node->name(), fmt::format("{} {}", kind, i), detach(saved.tensor)});
    };
    for (int i = 0; i < node->operand_count(); ++i) add("operand", i, node->operand(i));
    for (int i = 0; i < node->n_outputs; ++i) add("output", i, node->output(i));
    if (!node->recomputed) continue;
    for (std::size_t i = 0; i < node->recomputed->inputs.size(); ++i)
      add("input", static_cast<int>(i), node->recomputed->inputs[i]);
  }
  return result;
}

std::size_t saved_bytes(std::span<const SavedTensor> saved) {
  std::unordered_set<const Storage*> storages;
  std::size_t bytes = 0;
  for (const SavedTensor& each : saved) {
    const Storage* storage = TensorImpl::of(each.tensor)->storage;
    if (storage && storages.insert(storage).second) bytes += storage->bytes;
  }
  return bytes;
}

std::string to_string(std::span<const SavedTensor> saved) {
  std::string text;
  for (const SavedTensor& each : saved) {
    text += fmt::format("{:<20} {:<12} {}, {} bytes\n", each.op, each.which, each.tensor.describe(),
                        each.tensor.bytes());
  }
  return text + fmt::format("{} bytes in all storages\n", saved_bytes(saved));
}

}  // namespace brrr
