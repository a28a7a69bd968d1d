// The policies of rematerialization: which of the candidates (graph/remat_search.h) each chooses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/remat_search.h"
#include "brrr/tensor/fail.h"

namespace brrr::graph {
namespace {

// Chooses a candidate by the policy.
class Choice {
 public:
  Choice(const Graph& graph, const RematOptions& options)
      : options_(options), search_(graph, options) {}

  Rewritten run(const Graph& graph, RematReport& report) {
    report.baseline = search_.simulate(graph, true);
    report.saves_nothing = !partition().saves_values();
    if (report.saves_nothing) {
      report.chosen = report.baseline;
      report.unfused_bytes = report.chosen.peak_bytes;
      return {graph, {}};
    }
    choice_ = choice_of(search_.candidates(report.baseline), report.baseline);
    report.plans = search_.plans();
    report.work = search_.work();
    report.ended_early = search_.ended_early();
    Rewritten chosen = search_.rewritten(choice_);
    report.chosen = search_.simulate(chosen.graph, true);
    if (options_.fuse) report.unfused_bytes = make_plan(chosen.graph, options_.plan).arena_bytes;
    return chosen;
  }

  // Why a value is kept or, if its call is in `recomputed`, computed again. `peak`: how many of its
  // bytes would be live at the peak if it were kept.
  std::string reason_for(int call, const std::set<int>& recomputed, ValueMemory memory,
                         std::int64_t peak) const {
    const std::int64_t store = partition().keep_time(call), chain = chain_of(call, recomputed);
    const auto ns = [](std::int64_t picoseconds) {
      return fmt::format("{:.0f} ns", static_cast<double>(picoseconds) * 1e-3);
    };
    if (partition().mark(call) != Partition::Mark::none) return "marked";
    if (recomputed.contains(call)) {
      if (memory == ValueMemory::registers) return "saves no memory";
      if (!partition().is_saved(call)) return "for values that are computed from it";
      if (chain <= store) return fmt::format("again {} <= storing {}", ns(chain), ns(store));
      if (memory == ValueMemory::gradients)
        return fmt::format("again {}, leaves {} bytes of the memory of gradients", ns(chain), peak);
      return fmt::format("again {}, saves {} bytes of the peak", ns(chain), peak);
    }
    if (const char* obstacle = partition().obstacle(call)) return obstacle;
    if (memory == ValueMemory::registers) return "takes no memory";
    const std::vector<int> segment = partition().segments(choice_.segments);
    if (segment[call] >= choice_.first) return "its segment is kept";
    if (partition().crosses(call, choice_.segments, segment)) return "crosses segments";
    return fmt::format("storing {} {} again {}", ns(store), store < chain ? "<" : ">=", ns(chain));
  }

  const Partition& partition() const { return search_.partition(); }

 private:
  const RematCandidate& choice_of(const std::vector<RematCandidate>& candidates,
                                  const Simulation& kept) const {
    const Remat& policy = options_.policy;
    const std::size_t baseline = kept.peak_bytes, aliased = kept.most_in_gradients();
    std::size_t limit = search_.limit_of(baseline);
    if (policy.kind() != Remat::Kind::budget)
      limit = std::max(limit, candidates[0].peak_bytes);  // marks may need more
    const auto fits = [&](const RematCandidate& each) { return each.peak_bytes <= limit; };
    std::int64_t fastest = INT64_MAX;
    std::size_t least = SIZE_MAX;
    for (const RematCandidate& each : candidates) {
      least = std::min(least, each.peak_bytes);
      if (fits(each)) fastest = std::min(fastest, each.picoseconds);
    }
    if (least > limit) {
      if (least > baseline) {
        fail(
            "[{}] expected a budget that the step can meet, got {}: remat::recompute alone needs "
            "{} "
            "bytes, "
            "{} with every value kept",
            options_.name, policy.fraction(), least, baseline);
      }
      fail(
          "[{}] expected a budget that the step can meet, got {}: of {} bytes with every value "
          "kept{} it needs at least {}, a fraction of {:.3f}",
          options_.name, policy.fraction(), baseline,
          aliased == 0 ? ""
                       : fmt::format(" ({} bytes of activations are in the memory of gradients, "
                                     "which no policy changes)",
                                     aliased),
          least,
          std::ceil(static_cast<double>(least) * 1000 / static_cast<double>(baseline)) / 1000);
    }
    const std::int64_t slowest = policy.kind() == Remat::Kind::full ? INT64_MAX
                                 : policy.kind() == Remat::Kind::budget
                                     ? fastest
                                     : RematSearch::as_fast_as(fastest, kept);
    const RematCandidate* best = nullptr;
    for (const RematCandidate& each : candidates) {
      if (!fits(each) || each.picoseconds > slowest) continue;
      if (!best || std::pair(each.peak_bytes, each.picoseconds) <
                       std::pair(best->peak_bytes, best->picoseconds))
        best = &each;
    }
    return *best;
  }

  // The time of a call and of all calls in `recomputed` that it depends on.
  std::int64_t chain_of(int call, const std::set<int>& recomputed) const {
    return partition().recompute_time(
        partition().chain(call, [&](int producer) { return recomputed.contains(producer); }));
  }

  const RematOptions& options_;
  const RematSearch search_;
  RematCandidate choice_;
};

// The values that the backward pass reads with or without the policy, and those that it recomputes.
std::vector<RematValue> describe_values(const Graph& graph, const Choice& choice,
                                        const Rewritten& chosen, const RematReport& report) {
  const Partition& partition = choice.partition();
  const std::set<int> recomputed(chosen.originals.begin(), chosen.originals.end());
  std::set<int> read;  // buffers
  for (const Node& node : chosen.graph.nodes) {
    if (node.role != Role::backward) continue;
    for (const Value& input : node.inputs) read.insert(input.buffer);
  }
  std::vector<RematValue> values;
  for (int call = 0; call < static_cast<int>(graph.nodes.size()); ++call) {
    const Node& node = graph.nodes[call];
    const bool is_read = std::ranges::any_of(
        node.outputs, [&](const Value& output) { return read.contains(output.buffer); });
    if (node.role != Role::forward ||
        (!partition.is_saved(call) && !recomputed.contains(call) && !is_read))
      continue;
    RematValue value;
    value.value = describe(graph, node.outputs[0]);
    value.op = op_info(node.call.op).name;
    if (node.module >= 0) value.module = graph.modules[node.module];
    value.site = node.site;
    value.bytes = partition.bytes(call);
    value.picoseconds = partition.recompute_time(call);
    value.recomputed = recomputed.contains(call);
    const Simulation& plan = value.recomputed ? report.baseline : report.chosen;
    value.memory = plan.memory[node.outputs[0].buffer];
    for (const Value& output : node.outputs) {
      const std::int64_t bytes = report.baseline.at_peak[output.buffer];
      value.at_peak |= bytes >= 0;
      value.peak_bytes += std::max<std::int64_t>(bytes, 0);
    }
    value.reason = choice.reason_for(call, recomputed, value.memory, value.peak_bytes);
    value.obstacle = partition.obstacle(call);
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace

RematReport rematerialize(Graph& graph, const RematOptions& options) {
  if (!graph.refused_mark.empty()) fail("{}", graph.refused_mark);
  graph.has_policy = true;
  RematReport report;
  report.policy = options.policy;
  Choice choice(graph, options);
  Rewritten chosen = choice.run(graph, report);
  report.recomputed_calls = static_cast<int>(chosen.originals.size());
  report.values = describe_values(graph, choice, chosen, report);
  report.notes_on_marks = choice.partition().notes_on_marks();
  graph = std::move(chosen.graph);
  return report;
}

}  // namespace brrr::graph
