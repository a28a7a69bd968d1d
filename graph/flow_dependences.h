// The dependences between the calls of a graph before memory is planned, by the bytes of its values
// and by effects, and the result that each input reads. Two calls may be exchanged if neither
// precedes the other along these dependences. plan.h has those of planned memory, where blocks
// alias.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// The order that effects demand beside that of values. A call of unknown effect follows the earlier
// calls that have an effect or touch memory from outside of the step, and later ones follow it.
// Calls of one channel follow one another.
class EffectOrder {
 public:
  explicit EffectOrder(const Graph& graph);
  // Adds the calls that a call must follow to `before`; called for the calls in order.
  void add(int call, std::vector<int>& before);

 private:
  const Graph& graph_;
  bool any_unknown_;
  int unknown_ = -1;                          // the last call of unknown effect
  std::vector<int> since_;                    // the calls after it that the next one must follow
  std::map<std::string_view, int> channels_;  // the last call of each
};

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
