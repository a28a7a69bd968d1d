// The minimum cut of a directed graph with capacities: Dinic's algorithm over flat arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace brrr::graph {

class MinCut {
 public:
  // The capacity of an edge that no cut may contain.
  static constexpr std::int64_t kUnbounded = -1;

  explicit MinCut(int vertices) : vertices_(vertices) {}

  void add_edge(int from, int to, std::int64_t capacity) { added_.push_back({from, to, capacity}); }

  // The capacity of the minimum cut; none: every cut contains an unbounded edge. The sum of all
  // capacities must be below 2^62.
  std::optional<std::int64_t> run(int source, int sink);

  // After `run`: the cut edges go from this side to the other one. Of several minimum cuts it is
  // the one with the fewest vertices on the source's side.
  bool is_on_source_side(int vertex) const { return level_[vertex] >= 0; }

 private:
  struct Added {
    int from, to;
    std::int64_t capacity;
  };
  // An edge in one direction.
  struct Arc {
    int to, reverse;  // a vertex, and the index of the arc back
    std::int64_t residual;
  };

  void lay_out(std::int64_t unbounded);
  bool find_levels(int source, int sink);
  std::int64_t augment(int source, int sink);

  int vertices_;
  std::vector<Added> added_;
  std::vector<int> start_;  // of each vertex's arcs
  std::vector<Arc> arcs_;   // those of a vertex side by side
  std::vector<int> level_;  // the distance from the source; -1: out of reach
  std::vector<int> next_;   // of each vertex: the first arc that may still carry flow
  std::vector<int> path_;   // arcs from the source to the vertex at hand
  std::vector<int> queue_;
};

}  // namespace brrr::graph
