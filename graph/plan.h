// The plan of a graph: the placements of its buffers in memory, and which calls may run
// concurrently. Made once, before anything runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <brrr/graph/flow.h>
#include <brrr/graph/ir.h>

namespace brrr::graph {

inline constexpr std::size_t kAlignment = 256;  // of every buffer, as of a tensor's memory

struct PlanOptions {
  // Arguments are copied into the arena before the first call; else they are read in place.
  bool inputs_in_arena = false;
  // Results are copied out of the arena; else each run allocates their blocks for the caller.
  bool outputs_in_arena = false;
  bool lanes = true;  // independent calls may run at the same time
};

// Where a buffer is. A block is memory for one buffer, whose number it has, and for its aliases.
struct Placement {
  int block = -1;
  std::size_t offset = 0;  // in bytes, in the block
};

struct Plan {
  std::vector<Placement> placements;           // of each buffer
  std::vector<std::int64_t> arena_offset;      // of each block; -1: it is outside of the arena
  std::vector<bool> elided;                    // calls whose results are already in place
  std::vector<std::vector<int>> predecessors;  // direct ones, of each call
  std::vector<int> lane;                       // of each call; the calls of a lane run in order
  int lanes = 1;
  std::size_t arena_bytes = 0;
  std::size_t least_bytes = 0;  // peak live bytes: the lower bound of the arena

  const Placement& placement_of(const Value& value) const { return placements[value.buffer]; }
};

Plan make_plan(const Graph& graph, const PlanOptions& options);

// --- The parts of make_plan, in this order; each fills its fields ---

// A pointwise result aliases an operand that no later call reads.
void alias_operands(const Graph& graph, const Flow& flow, Plan& plan);
// The parts of a concatenation are made in place in its result.
void make_parts_in_place(const Graph& graph, const Flow& flow, Plan& plan);
// Temporaries alias gradients that are written later.
void alias_gradients(const Graph& graph, const PlanOptions& options, const Flow& flow, Plan& plan);
// Whether two blocks with disjoint live ranges may share memory; empty: always.
using MayAlias = std::function<bool(int earlier, int later)>;
void lay_out_arena(const Graph& graph, const PlanOptions& options, const Flow& flow,
                   const MayAlias& may_alias, Plan& plan);
void find_dependences(const Graph& graph, const PlanOptions& options, Plan& plan);
void choose_lanes(const Graph& graph, Plan& plan);

// --- Shared by the parts ---

// Sets of calls, one bit each.
class CallSet {
 public:
  explicit CallSet(std::size_t calls) : words_((calls + 63) / 64) {}
  bool has(int call) const { return words_[call / 64] >> (call % 64) & 1; }
  void add(int call) { words_[call / 64] |= std::uint64_t{1} << (call % 64); }
  void add(const CallSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

 private:
  std::vector<std::uint64_t> words_;
};

// A set for each call of a graph of so many is 32 MB. Longer graphs do without.
inline constexpr std::size_t kMostCallsInSets = 16384;

// The plan with the dependences of a graph whose blocks share no memory.
Plan without_reuse(const Graph& graph, const PlanOptions& options, Plan plan);
// The calls of the longest chain of dependences.
int longest_chain(const Plan& plan);
// All calls that a call depends on, directly or not.
std::vector<CallSet> all_predecessors(const Plan& plan);

// The calls that touch each block, in order.
CallLists calls_of_blocks(const Graph& graph, const Plan& plan);

// The buffers in each block, as linked lists: a step has many blocks of one buffer.
class Members {
 public:
  explicit Members(const Plan& plan);
  template <class F>
  void for_each(int block, F f) const {
    for (int buffer = first_[block]; buffer >= 0; buffer = next_[buffer]) f(buffer);
  }
  // Moves a block, with its members, into another one.
  void embed(Plan& plan, int block, int into, std::size_t offset);

 private:
  void append(int block, int buffer);

  std::vector<int> first_, last_;  // of each block; -1: none
  std::vector<int> next_;          // of each buffer
};

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// From the first write to the last access, in calls. -1 is before the first call, the number
// of calls is after the last one. If no call accesses the block, `last` is less than
// `first`.
struct LiveRange {
  int first = 0, last = -1;

  bool overlaps(const LiveRange& other) const { return first <= other.last && other.first <= last; }
};
std::vector<LiveRange> live_ranges(const Graph& graph, const PlanOptions& options, const Flow& flow,
                                   const Plan& plan);

// The memory that a planned step touches.
std::int64_t bytes_touched(const Graph& graph, const Plan& plan);

}  // namespace brrr::graph
