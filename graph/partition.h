// The forward pass of a traced graph as rematerialization sees it: which calls may run again in the
// backward pass, the cost of doing so and of keeping their results instead, and the minimum cut
// that weighs the two.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <brrr/graph/flow.h>
#include <brrr/graph/ir.h>
#include <brrr/graph/predicted_time.h>

namespace brrr::graph {

// Corresponding calls of some layers. In a residual stream each value is computed from that of the
// layer before, so only every second one can be computed again from values in memory. There are two
// such choices; a union of sets has at most one of a chain.
struct LayerValues {
  std::vector<int> calls;
  int chain = -1;  // a number of a residual stream; -1: of none
};

class Partition {
 public:
  // `fused`: the graph will be fused. `name`: the step's, for messages.
  Partition(const Graph& graph, bool fused, const std::string& name);

  enum class Decision : std::uint8_t { open, kept, recomputed };
  // The objective that a cut minimizes.
  struct Objective {
    int segments = 1;           // of the forward pass; values that cross a boundary are kept
    int first = 1;              // calls may run again only in this many first segments
    std::int64_t price = 0;     // of a kept byte, in femtoseconds
    bool least_bytes = false;   // minimize the kept bytes at any cost
    bool traffic_only = false;  // recomputation in a reader's kernel costs nothing
    // If not empty, decisions by call that the cut must respect. Open calls that fuse into their
    // readers have results in registers, which the cut does not keep in place of a decided value.
    std::vector<Decision> decided = {};
  };
  // For each call, whether it runs again in the backward pass.
  std::vector<bool> cut(const Objective& objective) const;

  // The segment of each call. Segments produce about equal numbers of bytes. Each ends where the
  // fewest live bytes cross to the next one.
  std::vector<int> segments(int count) const;

  const Flow& flow() const { return flow_; }
  bool is_forward(int call) const { return of(call).is_forward; }
  // Whether the call's results are temporaries that the backward pass reads.
  bool is_saved(int call) const { return of(call).sole_writer && of(call).last_backward >= 0; }
  // Whether the backward pass reads any results of the forward pass.
  bool saves_values() const;
  enum class Mark : std::uint8_t { none, save, recompute };
  Mark mark(int call) const { return of(call).mark; }
  // A line for each mark by name, with the values that it marks, and for each mark without effect.
  const std::vector<std::string>& notes_on_marks() const { return notes_; }
  // Sets of corresponding calls of all layers whose results the backward pass depends on and for
  // which `is_stored` returns true. Excludes calls that take longer to run again, from stored
  // values, than it takes to store and reload their results twice.
  std::vector<std::vector<int>> alike_in_layers(
      const std::function<bool(int buffer)>& is_stored) const;
  // The number of layers: the most frequent size of a set of corresponding calls, weighted by
  // bytes.
  int layers() const;
  // For each set: all layers, and all but the last one, whose values the backward pass reads first;
  // or of a chain every second layer.
  std::vector<LayerValues> choices_of(std::vector<std::vector<int>> sets,
                                      const std::function<bool(int buffer)>& is_stored) const;
  // A call, and the calls that it depends on by way of calls for which `runs_again` returns true.
  std::set<int> chain(int call, const std::function<bool(int call)>& runs_again) const;
  std::int64_t recompute_time(const std::set<int>& calls) const;
  // Whether a value is kept because it crosses a boundary of this number of segments.
  bool crosses(int call, int segments, const std::vector<int>& segment) const;
  // Why a call cannot run again; null: it can.
  const char* obstacle(int call) const { return of(call).obstacle; }
  std::int64_t bytes(int call) const { return of(call).bytes; }  // of its results
  // In picoseconds: the time to compute the results again; the part of it that does not fuse into a
  // reader's kernel; and the memory traffic to store and reload the results.
  std::int64_t recompute_time(int call) const { return of(call).recompute_ps; }
  std::int64_t recompute_traffic(int call) const { return of(call).recompute_traffic_ps; }
  std::int64_t keep_time(int call) const { return of(call).keep_ps; }
  // In fused steps: whether a call is a few operations per element in its reader's kernel; whether
  // a call reads its operands from memory, whichever kernel computes them.
  bool is_cheap_in_reader(int call) const;
  bool reads_memory(const Node& node) const;
  // Femtoseconds of recomputation per byte of the calls that can run again, ascending: prices
  // between them separate cheap calls from others. `only_saved`: calls whose results the backward
  // pass reads.
  std::vector<std::int64_t> rates(bool only_saved) const;

 private:
  struct Facts {
    bool is_forward = false;
    bool sole_writer = false;  // all results are temporaries that only this call writes
    const char* obstacle = nullptr;
    Mark mark = Mark::none;
    int last_forward = -1, last_backward = -1;  // readers
    int until = -1;  // the last call of the backward pass that depends on the results
    std::int64_t bytes = 0, recompute_ps = 0, keep_ps = 0;  // keep_ps: of memory traffic
    std::int64_t recompute_traffic_ps = 0;  // the part that does not fuse into a reader's kernel
    std::int64_t chain_ps = 0;  // recompute_ps with that of all calls that this one depends on
  };

  const Facts& of(int call) const { return calls_[call]; }
  // Whether the backward pass depends on a call of the forward pass.
  bool feeds_backward(int call) const { return of(call).is_forward && of(call).until >= 0; }
  Facts& of(int call) { return calls_[call]; }
  void find_readers(int call);
  void find_costs(int call);
  const char* find_obstacle(int call) const;
  bool is_fusable(int call) const;
  void apply_marks(const std::string& name);
  void apply_named(const NamedRematMark& mark, const std::string& name);
  std::string names_in_forward() const;
  bool is_kept(int call, const Objective& objective, const std::vector<int>& segment) const;
  Decision decision(int call, const Objective& objective) const;
  std::vector<int> places_in_layers() const;
  std::vector<std::vector<int>> corresponding(const std::function<bool(int call)>& counts) const;
  bool runs_again_from(const std::function<bool(int buffer)>& is_stored, int call) const;
  bool is_chain(const std::vector<int>& calls,
                const std::function<bool(int buffer)>& is_stored) const;
  bool is_in_registers(int call, const Objective& objective, const std::vector<int>& segment) const;
  std::vector<bool> decided_again(const Objective& objective,
                                  const std::vector<int>& segment) const;
  std::vector<std::int64_t> widths() const;

  const Graph& graph_;
  Flow flow_;
  bool fused_;
  Ceilings ceilings_;
  std::vector<Facts> calls_;
  std::vector<std::string> notes_;
  std::int64_t time_ = 0;  // picoseconds of all calls of the forward pass
};

}  // namespace brrr::graph
