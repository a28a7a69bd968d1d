// The policies of rematerialization.
//
// Candidates are minimum cuts (graph/partition.h) for several prices of a kept byte and several
// numbers of segments, and for budgets mixtures of two cuts with neighbouring memory. Each
// candidate is rewritten, fused and planned, so that its memory is that of the step and not an
// estimate; a policy chooses one of them. Except for mixtures the candidates do not depend on the
// budget, so a larger budget never makes a step slower.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion_group.h"
#include "brrr/graph/rematerialize.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::graph {
namespace {

// Generates the candidates of a graph, and chooses one by the policy.
class Search {
 public:
  Search(const Graph& graph, const RematOptions& options)
      : graph_(graph),
        options_(options),
        ceilings_(ceilings_for(graph)),
        partition_(graph, static_cast<bool>(options.fuse), options.name) {}

  Rewritten run(RematReport& report) {
    std::vector<Candidate> candidates = find_candidates();
    if (options_.fuse) {
      keep_best(candidates);
      measure_all(candidates);
      add_own_copies(candidates);
    }
    report.baseline = simulate(graph_, true);
    if (options_.fuse) add_stored(candidates, report.baseline);
    if (options_.policy.kind() != Remat::Kind::full)
      add_mixtures(candidates, report.baseline.peak_bytes);
    if (options_.policy.kind() == Remat::Kind::budget)
      add_mixtures_near(limit_of(report.baseline.peak_bytes), candidates);
    choice_ = choice_of(candidates, report.baseline);
    Rewritten chosen = rewritten(choice_);
    report.chosen = simulate(chosen.graph, true);
    if (options_.fuse) report.unfused_bytes = make_plan(chosen.graph, options_.plan).arena_bytes;
    return chosen;
  }

  // Why a value is kept or, if its call is in `recomputed`, computed again. `peak`: how many of its
  // bytes would be live at the peak if it were kept.
  std::string reason_for(int call, const std::set<int>& recomputed, ValueMemory memory,
                         std::int64_t peak) const {
    const std::int64_t store = partition_.keep_time(call), chain = chain_of(call, recomputed);
    const auto ns = [](std::int64_t picoseconds) {
      return fmt::format("{:.0f} ns", static_cast<double>(picoseconds) * 1e-3);
    };
    if (partition_.mark(call) != Partition::Mark::none) return "marked";
    if (recomputed.contains(call)) {
      if (memory == ValueMemory::registers) return "saves no memory";
      if (!partition_.is_saved(call)) return "for values that are computed from it";
      if (chain <= store) return fmt::format("again {} <= storing {}", ns(chain), ns(store));
      if (memory == ValueMemory::gradients)
        return fmt::format("again {}, leaves {} bytes of the memory of gradients", ns(chain), peak);
      return fmt::format("again {}, saves {} bytes of the peak", ns(chain), peak);
    }
    if (const char* obstacle = partition_.obstacle(call)) return obstacle;
    if (memory == ValueMemory::registers) return "takes no memory";
    const std::vector<int> segment = partition_.segments(choice_.segments);
    if (segment[call] >= choice_.first) return "its segment is kept";
    if (partition_.crosses(call, choice_.segments, segment)) return "crosses segments";
    return fmt::format("storing {} {} again {}", ns(store), store < chain ? "<" : ">=", ns(chain));
  }

  const Partition& partition() const { return partition_; }

 private:
  struct Candidate {
    std::vector<bool> recomputed;  // by call
    int segments = 1;
    int first = 1;            // as in Partition::Objective; of a mixture all
    bool own_copies = false;  // products get copies of their own: see recompute_calls
    // Predicted times. `traffic`: without arithmetic that fuses into readers; `stores`: as if every
    // recomputed value were written to memory.
    std::int64_t picoseconds = 0, traffic = 0, stores = 0;
    std::size_t peak_bytes = 0;
  };

  // The objectives of the cuts. For each power of two as the number of segments, in all segments or
  // in the first ones alone: several prices of a kept byte; the least memory traffic, for kernels
  // bound by it; and the fewest kept bytes at any cost.
  std::vector<Partition::Objective> objectives() const {
    std::set<std::int64_t> prices = {0};
    for (const bool only_saved : {false, true}) {
      const std::vector<std::int64_t> rates = partition_.rates(only_saved);
      for (std::size_t quarter = 1; quarter < 4 && !rates.empty(); ++quarter)
        prices.insert(2 * rates[rates.size() * quarter / 4]);
    }
    std::vector<Partition::Objective> all;
    for (int segments = 1; segments <= most_segments(); segments *= 2) {
      // The backward pass begins with the last segment, so recomputing that one saves no memory.
      for (const int first :
           std::set{segments / 4, segments / 2, segments * 3 / 4, segments - 1, segments}) {
        if (first == 0) continue;
        for (const std::int64_t price : prices) all.push_back({segments, first, price, false});
        all.push_back({segments, first, 0, false, true});
        all.push_back({segments, first, 0, true});
      }
    }
    return all;
  }

  int most_segments() const {
    const auto calls = static_cast<unsigned>(partition_.rates(false).size());
    return static_cast<int>(std::bit_floor(std::clamp(calls / 2, 1U, 64U)));
  }

  // The distinct candidates, first the one that recomputes only marked values. Their memory is that
  // of unfused calls.
  std::vector<Candidate> find_candidates() const {
    constexpr std::size_t kMostCalls = 300'000, kFewest = 12;  // of all candidates
    std::vector<Partition::Objective> all = objectives();
    const std::size_t most = std::max(kFewest, kMostCalls / (graph_.nodes.size() + 1));
    std::vector<Candidate> candidates(1);
    candidates[0].recomputed = partition_.cut({.first = 0});
    std::set<std::pair<std::vector<bool>, int>> known = {{candidates[0].recomputed, 1}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      // Samples a long list evenly. The last objective is always included, since it saves the most
      // memory.
      if (all.size() > most && (all.size() - 1 - i) * most % all.size() >= most) continue;
      Candidate each{partition_.cut(all[i]), all[i].segments, all[i].first};
      if (std::ranges::count(each.recomputed, true) == 0) continue;
      if (known.emplace(each.recomputed, each.segments).second)
        candidates.push_back(std::move(each));
    }
    in_parallel(candidates, [this](Candidate& each) { estimate(each); });
    return candidates;
  }

  // Sets the size of values between fusable calls of one pass to 0, since fusion keeps them in
  // registers.
  static void leave_out_registers(Graph& graph) {
    const Flow flow(graph);
    const auto fuses = [&](const Node& node) {
      return is_fusable(node) && op_info(node.call.op).algebra != Algebra::contraction;
    };
    for (const Node& node : graph.nodes) {
      if (!fuses(node)) continue;
      for (const Value& output : node.outputs) {
        if (flow.is_intermediate(output.buffer) &&
            std::ranges::all_of(flow.readers(output.buffer), [&](int reader) {
              return fuses(graph.nodes[reader]) && graph.nodes[reader].role == node.role;
            }))
          graph.buffers[output.buffer].bytes = 0;
      }
    }
  }

  // Estimates memory and time. For unfused steps this is exact; for fused steps the time is the
  // cut's.
  void estimate(Candidate& candidate) const {
    auto [graph, originals] = rewritten(candidate);
    if (options_.fuse) leave_out_registers(graph);
    candidate.peak_bytes = make_plan(graph, options_.plan).arena_bytes;
    candidate.picoseconds = options_.fuse ? 0 : time_of(graph, ceilings_);
    if (!options_.fuse) return;
    for (const int call : originals) {
      candidate.picoseconds += partition_.recompute_time(call);
      candidate.traffic += partition_.recompute_traffic(call);
      candidate.stores += partition_.is_saved(call)
                              ? time_to_move(partition_.bytes(call), ceilings_)
                              : partition_.recompute_traffic(call);
    }
    for (std::size_t i = 0; i < candidate.recomputed.size(); ++i) {
      if (candidate.recomputed[i] || !partition_.is_saved(static_cast<int>(i))) continue;
      candidate.picoseconds += partition_.keep_time(static_cast<int>(i));
      candidate.traffic += partition_.keep_time(static_cast<int>(i));
      candidate.stores += partition_.keep_time(static_cast<int>(i));
    }
  }

  // Keeps the first candidate and the Pareto fronts of time and memory, a few candidates for each
  // of three estimates of time: recomputed arithmetic delays kernels; or overlaps with memory
  // traffic; or has several readers, so that one kernel must write the results.
  void keep_best(std::vector<Candidate>& candidates) const {
    constexpr std::size_t kMostCalls = 6000, kFewest = 3, kMost = 8;  // of each
    const std::size_t most = std::clamp(kMostCalls / (graph_.nodes.size() + 1), kFewest, kMost);
    std::set<std::size_t> chosen = {0};
    for (const auto time : {&Candidate::picoseconds, &Candidate::traffic, &Candidate::stores}) {
      std::vector<std::size_t> order(candidates.size() - 1), best;
      std::iota(order.begin(), order.end(), std::size_t{1});
      std::ranges::stable_sort(order, {}, [&](std::size_t i) {
        return std::pair(candidates[i].*time, candidates[i].peak_bytes);
      });
      for (const std::size_t i : order) {
        if (best.empty() || candidates[i].peak_bytes < candidates[best.back()].peak_bytes)
          best.push_back(i);
      }
      const std::size_t count = std::min(best.size(), most);
      for (std::size_t i = 1; i <= count; ++i) chosen.insert(best[i * best.size() / count - 1]);
    }
    std::vector<Candidate> kept;
    for (const std::size_t i : chosen) kept.push_back(std::move(candidates[i]));
    candidates = std::move(kept);
  }

  void measure_all(std::vector<Candidate>& candidates) const {
    in_parallel(candidates, [this](Candidate& each) {
      const Simulation simulation = simulate(rewritten(each).graph);
      each.picoseconds = simulation.picoseconds;
      each.peak_bytes = simulation.peak_bytes;
    });
  }

  // Predicted times depend on the precision of products, which each thread chooses for itself.
  template <class Each>
  static void in_parallel(std::vector<Candidate>& candidates, const Each& each) {
    const Precision precision = matmul_precision();
    parallel_for(static_cast<std::int64_t>(candidates.size()), 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   const MatmulPrecisionGuard guard(precision);
                   for (std::int64_t i = begin; i < end; ++i)
                     each(candidates[static_cast<std::size_t>(i)]);
                 });
  }

  // The Pareto front of measured candidates, by rising memory.
  static std::vector<std::size_t> front_of(const std::vector<Candidate>& candidates) {
    std::vector<std::size_t> order(candidates.size()), front;
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) {
      return std::pair(candidates[i].peak_bytes, candidates[i].picoseconds);
    });
    for (const std::size_t i : order) {
      if (front.empty() || candidates[i].picoseconds < candidates[front.back()].picoseconds)
        front.push_back(i);
    }
    return front;
  }

  // Adds variants of the candidates of the Pareto front in which products have copies of their own.
  void add_own_copies(std::vector<Candidate>& candidates) const {
    std::vector<Candidate> more;
    for (const std::size_t i : front_of(candidates)) {
      Candidate each = candidates[i];
      each.own_copies = true;
      if (rewritten(each).originals.size() > rewritten(candidates[i]).originals.size())
        more.push_back(std::move(each));
    }
    measure_all(more);
    std::ranges::move(more, std::back_inserter(candidates));
  }

  // Adds candidates that recompute sets of corresponding values of layers that are live at the
  // peak: each set alone, with and without the last layer, whose values the backward pass reads
  // first; then unions of the sets that cost the least time per byte. A cut cannot tell which
  // kernels the recomputed calls merge into; the plans of these candidates can.
  void add_stored(std::vector<Candidate>& candidates, const Simulation& kept) const {
    const std::vector<LayerValues> sets = partition_.choices_of(
        large_sets(kept), [&](int buffer) { return kept.at_peak[buffer] >= 0; });
    std::vector<Candidate> alone;
    for (const LayerValues& set : sets) alone.push_back(stored(set.calls, kept));
    measure_all(alone);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (alone[i].peak_bytes < kept.peak_bytes) order.push_back(i);
    }
    std::ranges::stable_sort(order, {}, [&](std::size_t i) {
      return static_cast<double>(alone[i].picoseconds - kept.picoseconds) /
             static_cast<double>(kept.peak_bytes - alone[i].peak_bytes);
    });
    std::set<int> chains;
    std::erase_if(order, [&](std::size_t i) {
      return sets[i].chain >= 0 && !chains.insert(sets[i].chain).second;
    });
    add_unions(sets, order, kept, candidates);
    std::ranges::move(alone, std::back_inserter(candidates));
  }

  // The largest of the sets that are more than a small part of the peak.
  std::vector<std::vector<int>> large_sets(const Simulation& kept) const {
    constexpr std::int64_t kLeast = 64;                               // parts of the peak
    constexpr std::size_t kMostCalls = 6000, kFewest = 3, kMost = 8;  // of all plans; sets
    std::vector<std::vector<int>> sets =
        partition_.alike_in_layers([&](int buffer) { return kept.at_peak[buffer] > 0; });
    const auto bytes_of = [&](const std::vector<int>& set) {
      std::int64_t bytes = 0;
      for (const int call : set) bytes += partition_.bytes(call);
      return bytes;
    };
    std::erase_if(sets, [&](const std::vector<int>& set) {
      return bytes_of(set) * kLeast < static_cast<std::int64_t>(kept.peak_bytes);
    });
    std::ranges::stable_sort(sets, std::greater(), bytes_of);
    const std::size_t most = std::clamp(kMostCalls / (graph_.nodes.size() + 1), kFewest, kMost);
    if (sets.size() > most) sets.resize(most);
    return sets;
  }

  // Adds the first set, the union of the first two and so on. If a union takes longer than min_cut
  // tolerates, also adds the largest part of it that does not.
  void add_unions(const std::vector<LayerValues>& sets, const std::vector<std::size_t>& order,
                  const Simulation& kept, std::vector<Candidate>& candidates) const {
    std::vector<std::vector<int>> unions(1);
    for (const std::size_t i : order) {
      std::vector<int> all;
      std::ranges::set_union(unions.back(), sets[i].calls, std::back_inserter(all));
      if (all.size() > unions.back().size()) unions.push_back(std::move(all));
    }
    std::vector<Candidate> more;
    for (std::size_t i = 1; i < unions.size(); ++i) more.push_back(stored(unions[i], kept));
    measure_all(more);
    std::int64_t fastest = kept.picoseconds;
    for (const Candidate& each : candidates) fastest = std::min(fastest, each.picoseconds);
    for (const Candidate& each : more) fastest = std::min(fastest, each.picoseconds);
    const std::int64_t slowest = as_fast_as(fastest, kept);
    const auto slow = std::ranges::find_if(
        more, [&](const Candidate& each) { return each.picoseconds > slowest; });
    if (slow != more.end()) {
      const auto i = static_cast<std::size_t>(slow - more.begin());
      add_parts(unions[i], unions[i + 1], slowest, kept, more);
    }
    std::ranges::move(more, std::back_inserter(candidates));
  }

  // Adds the calls `fast` with some of the calls `slow`, bisecting how many.
  void add_parts(const std::vector<int>& fast, const std::vector<int>& slow, std::int64_t slowest,
                 const Simulation& kept, std::vector<Candidate>& candidates) const {
    std::vector<int> others;
    std::ranges::set_difference(slow, fast, std::back_inserter(others));
    std::size_t fits = 0, too_many = others.size();
    while (fits + 1 < too_many) {
      const std::size_t count = (fits + too_many) / 2;
      std::vector<int> calls = fast;
      calls.insert(calls.end(), others.begin(),
                   others.begin() + static_cast<std::ptrdiff_t>(count));
      std::vector<Candidate> part = {stored(calls, kept)};
      measure_all(part);
      (part[0].picoseconds <= slowest ? fits : too_many) = count;
      candidates.push_back(std::move(part[0]));
    }
  }

  // The cut that recomputes the values of these calls, and keeps the other values that are in
  // memory.
  Candidate stored(const std::vector<int>& calls, const Simulation& kept) const {
    using Decision = Partition::Decision;
    // Readers in one segment share a copy. With more segments the calls of one layer would have
    // several copies of a value, which one kernel computes.
    const int segments = std::min(16, most_segments());
    Partition::Objective objective = {.segments = segments, .first = segments};
    for (const Node& node : graph_.nodes) {
      const bool is_stored = std::ranges::any_of(
          node.outputs, [&](const Value& output) { return kept.at_peak[output.buffer] >= 0; });
      objective.decided.push_back(is_stored ? Decision::kept : Decision::open);
    }
    for (const int call : calls) objective.decided[call] = Decision::recomputed;
    return {partition_.cut(objective), objective.segments, objective.first};
  }

  // Adds mixtures of neighbours on the Pareto front that are far apart in memory. A mixture treats
  // the calls up to some call as the smaller step does, the others as the larger step does.
  void add_mixtures(std::vector<Candidate>& candidates, std::size_t baseline) const {
    constexpr std::size_t kGap = 16;
    const std::vector<std::size_t> front = front_of(candidates);
    std::vector<Candidate> mixtures;
    for (std::size_t k = 1; k < front.size(); ++k) {
      const Candidate &small = candidates[front[k - 1]], &large = candidates[front[k]];
      if ((large.peak_bytes - small.peak_bytes) * kGap >= baseline)
        mixtures.push_back(mixture(small, large, 1, 2));
    }
    measure_all(mixtures);
    std::ranges::move(mixtures, std::back_inserter(candidates));
  }

  // Adds mixtures of the two candidates between which the limit lies, repeatedly for the narrowed
  // interval. A mixture must lie between the two in memory and must not be faster than the larger
  // one: otherwise a larger budget, which tries other mixtures, could give a slower step.
  void add_mixtures_near(std::size_t limit, std::vector<Candidate>& candidates) const {
    constexpr int kRounds = 3, kParts = 4;
    constexpr std::ptrdiff_t kSmaller = 2;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<std::size_t> front = front_of(candidates);
      const auto above = std::ranges::find_if(
          front, [&](std::size_t i) { return candidates[i].peak_bytes > limit; });
      if (above == front.begin() || above == front.end()) return;
      const std::size_t least = candidates[above[-1]].peak_bytes;
      const Candidate large = candidates[*above];
      std::vector<Candidate> mixtures;
      for (auto i = above - std::min(kSmaller, above - front.begin()); i != above; ++i) {
        for (int part = 1; part < kParts; ++part)
          mixtures.push_back(mixture(candidates[*i], large, part, kParts));
      }
      measure_all(mixtures);
      std::ranges::copy_if(mixtures, std::back_inserter(candidates), [&](const Candidate& each) {
        return each.peak_bytes > least && each.peak_bytes < large.peak_bytes &&
               each.picoseconds >= large.picoseconds;
      });
    }
  }

  Candidate mixture(const Candidate& small, const Candidate& large, int part, int parts) const {
    Candidate mixed{large.recomputed, small.segments, small.segments,
                    small.own_copies || large.own_copies};
    std::copy_n(small.recomputed.begin(), mixture_end(small, large, part, parts),
                mixed.recomputed.begin());
    return mixed;
  }
  // The call before which `part` / `parts` of the bytes that the two treat differently are made.
  std::ptrdiff_t mixture_end(const Candidate& small, const Candidate& large, std::int64_t part,
                             std::int64_t parts) const {
    std::int64_t all = 0, made = 0;
    const auto bytes_of = [&](std::size_t call) {
      return small.recomputed[call] != large.recomputed[call]
                 ? partition_.bytes(static_cast<int>(call))
                 : 0;
    };
    for (std::size_t call = 0; call < small.recomputed.size(); ++call) all += bytes_of(call);
    std::size_t call = 0;
    while (call < small.recomputed.size() && made * parts < all * part) made += bytes_of(call++);
    return static_cast<std::ptrdiff_t>(call);
  }

  std::size_t limit_of(std::size_t baseline) const {
    return static_cast<std::size_t>(static_cast<double>(baseline) * options_.policy.fraction());
  }

  // The longest time that min_cut accepts in exchange for less memory: predictions within 1 % count
  // as equal, and a step no slower than with every value kept is always acceptable.
  static std::int64_t as_fast_as(std::int64_t fastest, const Simulation& kept) {
    return std::max(fastest + fastest / 100, kept.picoseconds);
  }

  const Candidate& choice_of(const std::vector<Candidate>& candidates,
                             const Simulation& kept) const {
    const Remat& policy = options_.policy;
    const std::size_t baseline = kept.peak_bytes, aliased = kept.most_in_gradients();
    std::size_t limit = limit_of(baseline);
    if (policy.kind() != Remat::Kind::budget)
      limit = std::max(limit, candidates[0].peak_bytes);  // marks may need more
    const auto fits = [&](const Candidate& each) { return each.peak_bytes <= limit; };
    std::int64_t fastest = INT64_MAX;
    std::size_t least = SIZE_MAX;
    for (const Candidate& each : candidates) {
      least = std::min(least, each.peak_bytes);
      if (fits(each)) fastest = std::min(fastest, each.picoseconds);
    }
    if (least > limit) {
      if (least > baseline) {
        fail(
            "[{}] expected a budget that the step can meet, got {}: recompute() alone needs {} "
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
    const std::int64_t slowest = policy.kind() == Remat::Kind::full     ? INT64_MAX
                                 : policy.kind() == Remat::Kind::budget ? fastest
                                                                        : as_fast_as(fastest, kept);
    const Candidate* best = nullptr;
    for (const Candidate& each : candidates) {
      if (!fits(each) || each.picoseconds > slowest) continue;
      if (!best || std::pair(each.peak_bytes, each.picoseconds) <
                       std::pair(best->peak_bytes, best->picoseconds))
        best = &each;
    }
    return *best;
  }

  Rewritten rewritten(const Candidate& candidate) const {
    return recompute_calls(graph_, partition_, candidate.recomputed,
                           partition_.segments(candidate.segments), candidate.own_copies);
  }

  // `in_detail`: also computes the facts that only reports print.
  Simulation simulate(const Graph& graph, bool in_detail = false) const {
    std::optional<Graph> fused;
    if (options_.fuse) options_.fuse(fused.emplace(graph));
    const Graph& run = fused ? *fused : graph;
    const Plan plan = make_plan(run, options_.plan);
    Simulation simulation;
    simulation.picoseconds = time_of(run, ceilings_);
    simulation.peak_bytes = plan.arena_bytes;
    if (!in_detail) return simulation;
    describe_memory(run, options_.plan, plan, simulation);
    return simulation;
  }

  // The time of a call and of all calls in `recomputed` that it depends on.
  std::int64_t chain_of(int call, const std::set<int>& recomputed) const {
    return partition_.recompute_time(
        partition_.chain(call, [&](int producer) { return recomputed.contains(producer); }));
  }

  const Graph& graph_;
  const RematOptions& options_;
  const Ceilings ceilings_;
  const Partition partition_;
  Candidate choice_;
};

// The values that the backward pass reads with or without the policy, and those that it recomputes.
std::vector<RematValue> describe_values(const Graph& graph, const Search& search,
                                        const Rewritten& chosen, const RematReport& report) {
  const Partition& partition = search.partition();
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
    value.reason = search.reason_for(call, recomputed, value.memory, value.peak_bytes);
    value.obstacle = partition.obstacle(call);
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace

RematReport rematerialize(Graph& graph, const RematOptions& options) {
  RematReport report;
  report.policy = options.policy;
  graph.least_memory = options.policy.kind() == Remat::Kind::full;
  Search search(graph, options);
  Rewritten chosen = search.run(report);
  report.recomputed_calls = static_cast<int>(chosen.originals.size());
  report.values = describe_values(graph, search, chosen, report);
  report.notes_on_marks = search.partition().notes_on_marks();
  graph = std::move(chosen.graph);
  return report;
}

}  // namespace brrr::graph
