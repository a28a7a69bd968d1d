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

// Where a value is: temporaries alias gradients that are written later, fused kernels keep values
// in registers. `outside`: a result of the step.
enum class ValueMemory : std::uint8_t { arena, gradients, registers, outside };

// A value of the forward pass that the backward pass reads or computes again.
struct RematValue {
  std::string value, op, module;  // "%7 f32[64, 64]"
  CallSite site;
  std::int64_t bytes = 0;
  std::int64_t picoseconds = 0;  // of its call again, by prediction
  bool recomputed = false;
  bool at_peak = false;                     // in memory where most is, with every value kept
  ValueMemory memory = ValueMemory::arena;  // of a value that is computed again: if it were kept
  // Of the peak with every value kept; bytes that values share count for one of them.
  std::int64_t peak_bytes = 0;
  std::string reason;              // why it is kept or computed again
  const char* obstacle = nullptr;  // why it cannot be computed again
};

// A planned graph, by prediction.
struct Simulation {
  std::int64_t picoseconds = 0;
  std::size_t peak_bytes = 0;             // the arena
  std::vector<std::size_t> live;          // bytes of the arena that are in use, at each call
  std::vector<std::size_t> in_gradients;  // of temporaries that alias gradients, at each call
  std::vector<ValueMemory> memory;        // of each buffer
  // Of each buffer, where most bytes are live (of both): -1: it is not; else its bytes, without
  // those that are counted for a buffer before it.
  std::vector<std::int64_t> at_peak;

  std::size_t most_in_gradients() const;
};
// Sets all but the time and the peak.
void describe_memory(const Graph& graph, const PlanOptions& options, const Plan& plan,
                     Simulation& simulation);

struct RematReport {
  Remat policy = Remat::none();
  std::vector<RematValue> values;
  std::vector<std::string> notes_on_marks;
  int recomputed_calls = 0;
  Simulation baseline, chosen;
  std::size_t unfused_bytes = 0;  // of a fused step: the arena if its calls ran one by one
};

struct RematOptions {
  Remat policy = Remat::none();
  std::string name;  // of the step
  PlanOptions plan;
  std::function<void(Graph&)> fuse;  // empty: calls run one by one
};

// The graph whose backward pass runs calls again: `again`, of those that can. Copies are made where
// they are read, and not shared beyond a segment. `own_copies`: of cheap calls products get copies
// of their own. They can then be written by another kernel than the one that has the shared copies
// in registers, such as an earlier one: it frees the product's other factor earlier.
struct Rewritten {
  Graph graph;
  std::vector<int> again;  // for each copy the call that it is of
};
Rewritten compute_again(const Graph& graph, const Partition& partition,
                        const std::vector<bool>& again, std::vector<int> segments,
                        bool own_copies = false);

// Rewrites the graph by a policy, and says what it did.
RematReport rematerialize(Graph& graph, const RematOptions& options);

// The report for a reader, with the live bytes before and after as bars.
std::string to_string(const RematReport& report);
std::string to_json(const RematReport& report);

}  // namespace brrr::graph
