// The dependences between the calls of a graph before memory is planned, by the bytes of its
// values, and the result that each input reads. Two calls may be exchanged if neither precedes the
// other along these dependences. plan.h has those of planned memory, where blocks alias.
#pragma once

#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// The result that an input reads: the last one written to its bytes before the call.
struct Source {
  int node = -1, output = -1;

  friend bool operator==(const Source&, const Source&) = default;
};

struct CallDependences {
  explicit CallDependences(const Graph& graph);

  // By call.
  std::vector<std::vector<Source>> sources;    // of each of its inputs
  std::vector<std::vector<int>> predecessors;  // calls that it must follow
  std::vector<std::vector<int>> successors;    // calls that must follow it
  std::vector<std::vector<int>> readers;       // calls that read any of what it writes
};

}  // namespace brrr::graph
