// Rematerialization: the backward pass recomputes values of the forward pass just before it reads
// them, so that they need not be kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <brrr/graph/partition.h>
#include <brrr/graph/plan.h>
#include <brrr/graph/remat.h>

namespace brrr::graph {

// Where a value is. gradients: it aliases a gradient that is written later; registers: within a
// fused kernel; outside: it is a result of the step.
enum class ValueMemory : std::uint8_t { arena, gradients, registers, outside };

// A value of the forward pass that the backward pass reads or computes again.
struct RematValue {
  std::string value, op, module;  // "%7 f32[64, 64]"
  CallSite site;
  std::int64_t bytes = 0;
  std::int64_t picoseconds = 0;  // predicted time to run its call again
  bool recomputed = false;
  bool at_peak = false;                     // live at the peak of the plan with every value kept
  ValueMemory memory = ValueMemory::arena;  // of a recomputed value: where it would be if kept
  // The value's share of the peak with every value kept; shared bytes count for one value only.
  std::int64_t peak_bytes = 0;
  std::string reason;              // why it is kept or computed again
  const char* obstacle = nullptr;  // why it cannot be computed again
};

// The predicted time and memory of a planned graph.
struct Simulation {
  std::int64_t picoseconds = 0;
  std::size_t peak_bytes = 0;             // the arena
  std::vector<std::size_t> live;          // bytes of the arena that are in use, at each call
  std::vector<std::size_t> in_gradients;  // of temporaries that alias gradients, at each call
  std::vector<ValueMemory> memory;        // of each buffer
  // By buffer, at the call where the most bytes are live (arena and gradients together): -1 if the
  // buffer is not live; else its bytes, without those already counted for an earlier buffer.
  std::vector<std::int64_t> at_peak;

  std::size_t most_in_gradients() const;
};
// Sets all members but the time and the peak.
void describe_memory(const Graph& graph, const PlanOptions& options, const Plan& plan,
                     Simulation& simulation);

struct RematReport {
  Remat policy = Remat::none();
  std::vector<RematValue> values;
  std::vector<std::string> notes_on_marks;
  int recomputed_calls = 0;
  // The plans that the search made, and whether it ended early (RematSearch::kMostWork).
  int plans = 0;
  std::int64_t work = 0;
  bool ended_early = false;
  bool saves_nothing = false;  // no backward pass reads values of the forward pass
  Simulation baseline, chosen;
  std::size_t unfused_bytes = 0;  // of a fused step: the arena if its calls ran one by one
};

struct RematOptions {
  Remat policy = Remat::none();
  std::string name;  // of the step
  PlanOptions plan;
  std::function<void(Graph&)> fuse;  // empty: calls run one by one
};

// Rewrites the graph so that its backward pass runs the calls in `recomputed` a second time. Copies
// are placed before their first reader, and shared within a segment only. `own_copies`: products
// get their own copies of cheap calls. A copy for a product is written to memory, possibly by an
// earlier kernel than the one that keeps the shared copy in registers, which frees the product's
// other factor earlier.
struct Rewritten {
  Graph graph;
  std::vector<int> originals;  // for each copy: the call that it repeats
};
Rewritten recompute_calls(const Graph& graph, const Partition& partition,
                          const std::vector<bool>& recomputed, std::vector<int> segments,
                          bool own_copies = false);

// Rewrites the graph by a policy, and returns a report.
RematReport rematerialize(Graph& graph, const RematOptions& options);

// The report for a reader, with the live bytes before and after as bars.
std::string to_string(const RematReport& report);
std::string to_json(const RematReport& report);

}  // namespace brrr::graph
