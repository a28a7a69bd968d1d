// Which calls of a graph read and write which memory, before anything is planned: the one analysis
// that passes, the planner, the linter and the printer ask.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// A list of calls for each buffer, side by side.
class CallLists {
 public:
  CallLists() = default;
  // `uses`: buffers and calls, by call.
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

  // The graph must not change while the flow is used, but for the buffers that its nodes name.
  explicit Flow(const Graph& graph);

  // The calls that write to a buffer, and those that read it, in order.
  std::span<const int> writers(int buffer) const { return writers_.of(buffer); }
  std::span<const int> readers(int buffer) const { return readers_.of(buffer); }
  // The only call that writes to a buffer; kNone where there is none, or several.
  int producer(int buffer) const {
    return writers(buffer).size() == 1 ? writers(buffer)[0] : kNone;
  }
  // The last call that reads or writes a buffer.
  int last_use(int buffer) const;
  // The last call that writes bytes of a value before call number `time` of the trace; kNone.
  int writer(const Value& value, int time) const;
  // How many calls before this one write to the buffer: values with equal versions are equal.
  int version(int buffer, int call) const;
  // Whether the caller or a leaf gets the buffer: it must not be merged with another escaping
  // buffer, since the caller may write to either.
  bool escapes(int buffer) const { return escapes_[buffer]; }
  // Written by one call alone, and neither a result nor a gradient: its readers may read
  // an equal value in its place.
  bool is_intermediate(int buffer) const {
    return graph_->is_temporary(buffer) && producer(buffer) != kNone && !escapes(buffer);
  }

 private:
  const Graph* graph_;
  CallLists writers_, readers_;
  std::vector<bool> escapes_;
};

// The sizes of all buffers that a graph's calls read or write, as if no two shared memory.
std::int64_t bytes_touched(const Graph& graph);
// Bytes that a call reads and writes, what a broadcast repeats counted once.
std::int64_t bytes_moved(std::span<const Value> inputs, std::span<const Value> outputs);
// Of what a call gathers from, as many bytes as it gathers.
std::int64_t bytes_moved(const Node& node);

// Whether a call does nothing but write its results, which its inputs alone decide.
bool is_pure(const Node& node);
// Whether a call is needed even if no call reads its results.
bool has_effect(const Node& node);

// Whether a value is all of its buffer, in order.
bool is_whole(const Graph& graph, const Value& value);

// Buffers whose readers read another one instead, as a pass finds them.
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

// Removes each node of which `is_removed` is true; returns how many they are. It is called for
// every node in order, and may change the node.
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

// The pass that removes calls whose results no call reads, except those that check values.
int remove_dead(Graph& graph);

// Makes `nodes` those of the graph; returns how many fewer they are.
int replace_nodes(Graph& graph, std::vector<Node> nodes);

// The view with the last two dimensions exchanged.
Value transposed(Value x);

}  // namespace brrr::graph
