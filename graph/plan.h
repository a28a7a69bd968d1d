// Where a graph's values lie and what must wait for what: decided once, before anything runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

inline constexpr std::size_t kAlignment = 256;  // of every buffer, as of a tensor's memory

struct PlanOptions {
  // Arguments are copied into the arena before the first call; else they are read where they are.
  bool inputs_in_arena = false;
  // Buffers of results are copied out of the arena; else they have memory of their own.
  bool outputs_in_arena = false;
  bool lanes = true;  // independent calls may run side by side
};

// A buffer's place: in the memory of its root, which is the arena, or a block of its own.
struct Place {
  int root = -1;           // a buffer
  std::size_t offset = 0;  // in bytes, in the root
};

struct Plan {
  std::vector<Place> places;            // of each buffer
  std::vector<std::int64_t> in_arena;   // of each root; -1: it has a block of its own
  std::vector<bool> dropped;            // calls that the places make needless
  std::vector<std::vector<int>> after;  // the calls that each one waits for, and no others
  std::vector<int> lane;                // of each call; calls of a lane run in turn
  int lanes = 1;
  std::size_t arena_bytes = 0;
  std::size_t least_bytes = 0;  // the most that is live at a time: no arena can be smaller
};

Plan make_plan(const Graph& graph, const PlanOptions& options);

// The parts of it, in this order. Each fills its fields.
void place_results_in_operands(const Graph& graph, Plan& plan);
void place_parts_in_joined(const Graph& graph, Plan& plan);
void place_in_gradients(const Graph& graph, const PlanOptions& options, Plan& plan);
// `apart` says of two roots whether they may not share memory even where they live one after the
// other; empty: they may.
using KeptApart = std::function<bool(int earlier, int later)>;
void lay_out_arena(const Graph& graph, const PlanOptions& options, const KeptApart& apart,
                   Plan& plan);
void find_order(const Graph& graph, const PlanOptions& options, Plan& plan);
void choose_lanes(const Graph& graph, Plan& plan);

// Sets of calls, one bit each.
class CallSet {
 public:
  explicit CallSet(std::size_t calls) : words_((calls + 63) / 64) {}
  bool has(int call) const {
    const auto bit = static_cast<std::size_t>(call);
    return words_[bit / 64] >> (bit % 64) & 1;
  }
  void add(int call) {
    const auto bit = static_cast<std::size_t>(call);
    words_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  void add(const CallSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

 private:
  std::vector<std::uint64_t> words_;
};

// Sets for each call of a graph of that many are 32 MB.
inline constexpr std::size_t kMostCallsInSets = 16384;

// The order that there would be if no memory were used again.
Plan without_reuse(const Graph& graph, const PlanOptions& options, Plan plan);
// Of each call, all that it comes after by `plan.after`.
std::vector<CallSet> all_before(const Plan& plan);
// The calls of the longest chain.
int longest_chain(const Plan& plan);

// Of each root, the calls that touch it, in order.
std::vector<std::vector<int>> calls_of_roots(const Graph& graph, const Plan& plan);
// Puts a root, and all that lies in it, into another.
void put(Plan& plan, int root, int into, std::size_t offset);

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// From the first write to the last access, in calls; -1 is before the first, and the number of
// calls after the last one.
struct Life {
  int from = 0, to = -1;
};
// Of each root.
std::vector<Life> lives_of(const Graph& graph, const Plan& plan, const PlanOptions& options);

}  // namespace brrr::graph
