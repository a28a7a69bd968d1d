// What passes that replace one buffer by another share.
#pragma once

#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// How often each buffer is written to by the calls of a graph.
inline std::vector<int> writes_of(const Graph& graph) {
  std::vector<int> writes(graph.buffers.size());
  for (const Node& node : graph.nodes) {
    for (const Value& output : node.outputs) ++writes[static_cast<std::size_t>(output.buffer)];
  }
  return writes;
}

// Which buffers the caller gets: no two of them may become one, since he may write to either.
inline std::vector<bool> results_of(const Graph& graph) {
  std::vector<bool> results(graph.buffers.size());
  for (const Output& output : graph.outputs) {
    if (output.value.buffer >= 0) results[static_cast<std::size_t>(output.value.buffer)] = true;
  }
  for (const LeafGradient& gradient : graph.gradients) {
    if (gradient.value.buffer >= 0) results[static_cast<std::size_t>(gradient.value.buffer)] = true;
  }
  return results;
}

// Buffers that others stand for, as they are found.
class Renaming {
 public:
  explicit Renaming(const Graph& graph) : to_(graph.buffers.size()) {
    for (std::size_t i = 0; i < to_.size(); ++i) to_[i] = static_cast<int>(i);
  }
  void rename(int from, int to) { to_[static_cast<std::size_t>(from)] = to; }
  void apply(Value& value) const {
    if (value.buffer >= 0) value.buffer = to_[static_cast<std::size_t>(value.buffer)];
  }
  void apply(Node& node) const {
    for (Value& input : node.inputs) apply(input);
    for (Value& output : node.outputs) apply(output);
  }

 private:
  std::vector<int> to_;
};

}  // namespace brrr::graph
