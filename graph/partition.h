// The forward pass of a traced graph as rematerialization sees it: which calls may run again in the
// backward pass, what that and keeping their results costs, and the minimum cut of both.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <brrr/graph/flow.h>
#include <brrr/graph/ir.h>
#include <brrr/graph/predicted_time.h>

namespace brrr::graph {

class Partition {
 public:
  // `fused`: kernels of many calls will run the graph. `name`: of the step.
  Partition(const Graph& graph, bool fused, const std::string& name);

  enum class Decision : std::uint8_t { open, kept, again };
  // The objective that a cut minimizes.
  struct Objective {
    int segments = 1;           // of the forward pass; values that go from one to the next are kept
    int first = 1;              // the segments from the beginning in which calls may run again
    std::int64_t price = 0;     // of a byte that is kept, in femtoseconds
    bool least_bytes = false;   // the bytes that are kept, at any cost
    bool traffic_only = false;  // what runs again in the kernel of its reader is free
    // If not empty, of each call: its results are in memory anyway, or have to be computed again.
    std::vector<Decision> decided = {};
  };
  // Of each call whether it runs again in the backward pass.
  std::vector<bool> cut(const Objective& objective) const;

  // The segment of each call. Segments produce about equal numbers of bytes. Each ends where the
  // fewest live bytes cross to the next one.
  std::vector<int> segments(int count) const;

  const Flow& flow() const { return flow_; }
  bool is_forward(int call) const { return of(call).is_forward; }
  // Whether the call's results are temporaries that the backward pass reads.
  bool is_saved(int call) const { return of(call).makes && of(call).last_backward >= 0; }
  enum class Mark : std::uint8_t { none, save, recompute };
  Mark mark(int call) const { return of(call).mark; }
  // What the marks by name mark, and the marks without effect, a line each.
  const std::vector<std::string>& notes_on_marks() const { return notes_; }
  // Values that the backward pass reads and that `is_stored`, by their calls: a set for each call
  // of a layer, with the same call of the other layers. Without those that take longer to compute
  // again than to store and reload twice.
  std::vector<std::vector<int>> alike_in_layers(
      const std::function<bool(int buffer)>& is_stored) const;
  // Whether a value is kept because it goes from one of so many segments to another.
  bool crosses(int call, int segments, const std::vector<int>& segment) const;
  // Why a call cannot run again; null: it can.
  const char* obstacle(int call) const { return of(call).obstacle; }
  std::int64_t bytes(int call) const { return of(call).bytes; }  // of its results
  // Picoseconds to compute the results again; of these not what the kernel of a reader computes;
  // and of memory traffic to store and reload them.
  std::int64_t time_again(int call) const { return of(call).again; }
  std::int64_t traffic_again(int call) const { return of(call).again_traffic; }
  std::int64_t time_to_keep(int call) const { return of(call).keep; }
  // Of fused steps: whether a call is a few operations on one element in the kernel of its reader;
  // and whether a call reads its operands from memory, whatever computes them.
  bool is_cheap_in_reader(int call) const;
  bool reads_memory(const Node& node) const;
  // For prices that separate cheap calls from others: the femtoseconds again for a byte of the
  // calls that can run again, ascending; of all, or of those whose results the backward pass reads.
  std::vector<std::int64_t> rates(bool only_saved) const;

 private:
  struct Facts {
    bool is_forward = false;
    bool makes = false;  // all results are temporaries that only this call writes
    const char* obstacle = nullptr;
    Mark mark = Mark::none;
    int last_forward = -1, last_backward = -1;  // readers
    int until = -1;  // the last call of the backward pass that depends on the results
    std::int64_t bytes = 0, again = 0, keep = 0;  // `keep`: picoseconds of memory traffic
    std::int64_t again_traffic = 0;  // of `again`: what is not computed in the kernel of a reader
    std::int64_t chain = 0;          // picoseconds again with all that the call depends on
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
  // Of each call the bytes of the forward pass that later forward calls read.
  Decision decision(int call, const Objective& objective) const;
  std::vector<std::int64_t> widths() const;

  const Graph& graph_;
  Flow flow_;
  bool fused_;
  Ceilings ceilings_;
  std::vector<Facts> calls_;
  std::vector<std::string> notes_;
  std::int64_t time_ = 0;  // of the calls of the forward pass, in picoseconds
};

}  // namespace brrr::graph
