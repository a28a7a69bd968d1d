// Data-flow analysis of a graph, before memory is planned: which calls read and write which
// buffers. Passes, the planner, the linter and the printer share it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// A list of calls for each buffer, in one array.
class CallLists {
 public:
  CallLists() = default;
  // `uses`: pairs of a buffer and a call, sorted by call.
  CallLists(std::size_t buffers, std::span<const std::pair<int, int>> uses);
  std::span<const int> of(int buffer) const {
    return std::span(calls_).subspan(start_[buffer], start_[buffer + 1] - start_[buffer]);
  }

 private:
  std::vector<int> start_, calls_;
};

class Flow {
 public:
  static constexpr int kNone = -1;

  // While the flow is used, the graph must not change, except that nodes may refer to other
  // buffers.
  explicit Flow(const Graph& graph);

  // The calls that write to a buffer, and those that read it, in order. A call of unknown effect
  // counts as a writer of its operands.
  std::span<const int> writers(int buffer) const { return writers_.of(buffer); }
  std::span<const int> readers(int buffer) const { return readers_.of(buffer); }
  // The only call that writes to a buffer; kNone if no call does, or several do.
  int producer(int buffer) const {
    return writers(buffer).size() == 1 ? writers(buffer)[0] : kNone;
  }
  // The last call that reads or writes a buffer.
  int last_use(int buffer) const;
  // The last call that writes bytes of a value before call number `time` of the trace; or kNone.
  int writer(const Value& value, int time) const;
  // The number of calls before this one that write to the buffer, or that may: equal versions,
  // equal contents.
  int version(int buffer, int call) const;
  // The last of them that is a writer; or kNone.
  int writer_before(int buffer, int call) const;
  // Whether the buffer is a result or a leaf's gradient. Two escaping buffers must not be merged,
  // since the caller may write to either.
  bool escapes(int buffer) const { return escapes_[buffer]; }
  // Whether one call alone writes the buffer, and it does not escape: then its readers may read an
  // equal value in its place.
  bool is_intermediate(int buffer) const {
    return graph_->is_temporary(buffer) && producer(buffer) != kNone && !escapes(buffer);
  }

 private:
  const Graph* graph_;
  CallLists writers_, readers_;
  std::vector<int> unknown_;  // calls of unknown effect, which may write to memory from outside
  std::vector<bool> escapes_;
};

// The total size of all buffers that a graph's calls access, as if no two shared memory.
std::int64_t bytes_touched(const Graph& graph);
// Bytes that a call reads and writes; elements repeated by a broadcast count once.
std::int64_t bytes_moved(std::span<const Value> inputs, std::span<const Value> outputs);
// The same of a node. A gather reads only as many bytes of its source as it returns.
std::int64_t bytes_moved(const Node& node);

// Whether a buffer is memory of a tensor from outside of the step.
inline bool is_outside(const Graph& graph, int buffer) {
  const Buffer::Kind kind = graph.buffers[buffer].kind;
  return kind == Buffer::Kind::captured || kind == Buffer::Kind::input;
}
bool has_unknown_effect(const Node& node);
// Whether the inputs alone determine a call's results, and it has no other effect.
bool is_pure(const Node& node);
// Whether a call is needed even if no call reads its results.
bool has_effect(const Node& node);

// The number that a pointwise call multiplies its one tensor by; none if it does not.
std::optional<double> factor_of(const Node& node);
// Buffers that the user asked about, by save, recompute or require_fused.
std::vector<int> marked_buffers(const Graph& graph);

// Whether a value covers its whole buffer, contiguously.
bool is_whole(const Graph& graph, const Value& value);

// Replacements of buffers that a pass collects: readers of one buffer will read another.
class Substitution {
 public:
  explicit Substitution(const Graph& graph);
  void replace(int buffer, int by) { by_[buffer] = by; }
  void apply(Node& node) const;
  // Applies the replacement to the values that the user marked with save, recompute or
  // require_fused.
  void apply_to_marks(Graph& graph) const;

 private:
  std::vector<int> by_;
};

// Removes the nodes for which `is_removed` returns true, and returns their number. `is_removed` is
// called for every node in order, and may change the node.
template <class F>
int remove_nodes(Graph& graph, F is_removed) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (is_removed(graph.nodes[i])) continue;
    if (i != kept) graph.nodes[kept] = std::move(graph.nodes[i]);
    ++kept;
  }
  const std::size_t removed = graph.nodes.size() - kept;
  graph.nodes.erase(graph.nodes.end() - static_cast<std::ptrdiff_t>(removed), graph.nodes.end());
  return static_cast<int>(removed);
}

// The pass that removes calls without an effect whose results no call reads.
int remove_dead(Graph& graph);

// Replaces the nodes of the graph; returns by how many their number decreased.
int replace_nodes(Graph& graph, std::vector<Node> nodes);

// The view with the last two dimensions exchanged.
Value transposed(Value x);

}  // namespace brrr::graph
