// The candidates of rematerialization.
//
// A candidate is a minimum cut (graph/partition.h) for one of several prices of a kept byte and
// numbers of segments, or for a set of values of all layers; or a mixture of two cuts with
// neighbouring memory; or a variant of a cut with other copies. Each is rewritten, fused and
// planned, so that its memory is that of the step and not an estimate.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <brrr/graph/partition.h>
#include <brrr/graph/rematerialize.h>

namespace brrr::graph {

struct RematCandidate {
  std::vector<bool> recomputed;  // by call
  int segments = 1;
  int first = 1;              // as in Partition::Objective; all in mixtures and add_repeated()
  bool own_copies = false;    // products get copies of their own: see recompute_calls
  bool least_memory = false;  // as in Graph
  // Predicted times. `traffic`: without arithmetic that fuses into readers; `stores`: as if every
  // recomputed value were written to memory.
  std::int64_t picoseconds = 0, traffic = 0, stores = 0;
  std::size_t peak_bytes = 0;

  // What its plan follows from.
  using PlanKey = std::tuple<std::vector<bool>, int, bool, bool>;
  PlanKey plan() const { return {recomputed, segments, own_copies, least_memory}; }
};

class RematSearch {
 public:
  RematSearch(const Graph& graph, const RematOptions& options)
      : graph_(graph),
        options_(options),
        ceilings_(ceilings_for(graph)),
        partition_(graph, static_cast<bool>(options.fuse), options.name) {}

  // The candidates, first the one that recomputes only marked values. `kept`: the step with every
  // value kept. Except near a budget's limit they do not depend on the budget, so a larger budget
  // never makes a step slower.
  std::vector<RematCandidate> candidates(const Simulation& kept) const;

  Rewritten rewritten(const RematCandidate& candidate) const;

  // `in_detail`: also computes the facts that only reports print.
  Simulation simulate(Graph graph, bool in_detail = false) const;

  // The longest time that min_cut accepts in exchange for less memory: predictions within 1 % count
  // as equal, and a step no slower than with every value kept is always acceptable.
  static std::int64_t as_fast_as(std::int64_t fastest, const Simulation& kept) {
    return std::max(fastest + fastest / 100, kept.picoseconds);
  }
  // The most bytes that the policy allows; `baseline`: those with every value kept.
  std::size_t limit_of(std::size_t baseline) const {
    return static_cast<std::size_t>(static_cast<double>(baseline) * options_.policy.fraction());
  }

  const Partition& partition() const { return partition_; }

  // How much the search may do, so that planning a step takes seconds. It is counted in calls that
  // are planned or that fusion tries to merge, each about a microsecond, and not in seconds: the
  // same program gets the same plan each time. A search that ends early chooses among the plans it
  // has made. Each plan of a long step takes a good part of a second, so it gets only a few.
  static constexpr std::int64_t kMostWork = 8'000'000, kMostWorkOfLong = 1'000'000;
  static constexpr std::size_t kLong = 2000;  // calls
  std::int64_t most_work() const {
    return graph_.nodes.size() > kLong ? kMostWorkOfLong : kMostWork;
  }
  std::int64_t work() const { return work_; }
  static constexpr std::int64_t kWorkOfCall = 8;  // of planning one
  int plans() const { return plans_; }
  bool ended_early() const { return ended_early_; }

 private:
  // How many more plans the search may make of `wanted`: a batch gets half of the remaining work.
  std::size_t affordable(std::size_t wanted) const;
  std::set<std::int64_t> prices() const;
  void add_objectives(int segments, const std::set<int>& first,
                      std::vector<Partition::Objective>& all) const;
  std::vector<Partition::Objective> objectives() const;
  int most_segments() const;
  // As many segments as the model has layers, or a few layers in each; 1: no layers were found.
  int segments_of_layers() const;
  std::vector<RematCandidate> cuts_for(const std::vector<Partition::Objective>& all) const;
  void estimate(RematCandidate& candidate) const;
  void keep_best(std::vector<RematCandidate>& candidates) const;
  void keep_affordable(std::vector<RematCandidate>& candidates) const;
  void measure_all(std::vector<RematCandidate>& candidates) const;
  void add_layers(std::vector<RematCandidate>& candidates) const;
  void add_own_copies(std::vector<RematCandidate>& candidates) const;
  void add_stored(std::vector<RematCandidate>& candidates, const Simulation& kept) const;
  std::vector<std::vector<int>> large_sets(const Simulation& kept) const;
  void add_unions(const std::vector<LayerValues>& sets, const std::vector<std::size_t>& order,
                  const Simulation& kept, std::vector<RematCandidate>& candidates) const;
  void add_parts(const std::vector<int>& fast, const std::vector<int>& slow, std::int64_t slowest,
                 const Simulation& kept, std::vector<RematCandidate>& candidates) const;
  RematCandidate stored(const std::vector<int>& calls, const Simulation& kept) const;
  void add_mixtures(std::vector<RematCandidate>& candidates, std::size_t baseline) const;
  void add_mixtures_near(std::size_t limit, std::vector<RematCandidate>& candidates) const;
  RematCandidate mixture(const RematCandidate& small, const RematCandidate& large, int part,
                         int parts) const;
  std::ptrdiff_t mixture_end(const RematCandidate& small, const RematCandidate& large,
                             std::int64_t part, std::int64_t parts) const;
  void add_least_memory(std::vector<RematCandidate>& candidates) const;
  void add_repeated(std::size_t limit, std::vector<RematCandidate>& candidates) const;

  const Graph& graph_;
  const RematOptions& options_;
  const Ceilings ceilings_;
  const Partition partition_;
  // Picoseconds and bytes of the peak.
  mutable std::map<RematCandidate::PlanKey, std::pair<std::int64_t, std::size_t>> measured_;
  mutable std::atomic<std::int64_t> work_ = 0;
  mutable std::atomic<int> plans_ = 0;  // that were fused
  mutable bool ended_early_ = false;
};

}  // namespace brrr::graph
