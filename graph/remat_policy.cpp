// Owns the policies.
//
// Candidates are minimum cuts (graph/partition.h) of several prices of a kept byte, over several
// numbers of segments, and for budgets mixtures of two cuts that are neighbours in memory. Each is
// rewritten, fused and planned, so that its memory is that of the step and not an estimate; a
// policy takes one of them. But for mixtures the candidates do not depend on the budget, so a
// larger one never needs more time.
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

// The candidates of a graph, and what a policy takes of them.
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
    if (options_.policy.kind() == Remat::Kind::budget) {
      add_mixtures(candidates, report.baseline.peak_bytes);
      add_mixtures_near(limit_of(report.baseline.peak_bytes), candidates);
    }
    choice_ = choice_of(candidates, report.baseline);
    Rewritten chosen = rewritten(choice_);
    report.chosen = simulate(chosen.graph, true);
    if (options_.fuse) report.unfused_bytes = make_plan(chosen.graph, options_.plan).arena_bytes;
    return chosen;
  }

  // Why a value is kept or, if it is in `again`, computed again. `peak`: of its bytes, those of the
  // peak if it is kept.
  std::string reason_for(int call, const std::set<int>& again, ValueMemory memory,
                         std::int64_t peak) const {
    const std::int64_t store = partition_.time_to_keep(call), chain = chain_of(call, again);
    const auto ns = [](std::int64_t picoseconds) {
      return fmt::format("{:.0f} ns", static_cast<double>(picoseconds) * 1e-3);
    };
    if (partition_.mark(call) != Partition::Mark::none) return "marked";
    if (again.contains(call)) {
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
    std::vector<bool> again;  // of each call
    int segments = 1;
    int first = 1;            // as in Partition::Objective; of a mixture all
    bool own_copies = false;  // of products: see compute_again
    // Predicted; `traffic`: without what readers compute again; `stores`: if all values that the
    // backward pass reads are written again.
    std::int64_t picoseconds = 0, traffic = 0, stores = 0;
    std::size_t peak_bytes = 0;
  };

  // Cuts for powers of two as numbers of segments, each by several prices of a kept byte, in all of
  // the segments or in the first of them alone; by memory traffic alone, where kernels are bound by
  // it; and by the bytes kept, whatever that costs, except under min_cut.
  std::vector<Partition::Objective> objectives() const {
    const bool is_fastest = options_.policy.kind() == Remat::Kind::min_cut;
    std::set<std::int64_t> prices = {0};
    for (const bool only_saved : {false, true}) {
      const std::vector<std::int64_t> rates = partition_.rates(only_saved);
      for (std::size_t quarter = 1; quarter < 4 && !rates.empty(); ++quarter)
        prices.insert(2 * rates[rates.size() * quarter / 4]);
    }
    std::vector<Partition::Objective> all;
    for (int segments = 1; segments <= most_segments(); segments *= 2) {
      // The backward pass reads the last segment at once: it may as well be kept.
      for (const int first :
           std::set{segments / 4, segments / 2, segments * 3 / 4, segments - 1, segments}) {
        if (first == 0) continue;
        for (const std::int64_t price : prices) all.push_back({segments, first, price, false});
        all.push_back({segments, first, 0, false, true});
        if (!is_fastest) all.push_back({segments, first, 0, true});
      }
    }
    return all;
  }

  int most_segments() const {
    const auto calls = static_cast<unsigned>(partition_.rates(false).size());
    return static_cast<int>(std::bit_floor(std::clamp(calls / 2, 1U, 64U)));
  }

  // Each candidate once, that of the marks alone first, with the memory of the calls one by one.
  std::vector<Candidate> find_candidates() const {
    constexpr std::size_t kMostCalls = 300'000, kFewest = 12;  // of all candidates
    std::vector<Partition::Objective> all = objectives();
    const std::size_t most = std::max(kFewest, kMostCalls / (graph_.nodes.size() + 1));
    std::vector<Candidate> candidates(1);
    candidates[0].again = partition_.cut({.first = 0});
    std::set<std::pair<std::vector<bool>, int>> known = {{candidates[0].again, 1}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      // The last ones of a long list first: they save the most memory.
      if (all.size() > most && (all.size() - 1 - i) * most % all.size() >= most) continue;
      Candidate each{partition_.cut(all[i]), all[i].segments, all[i].first};
      if (std::ranges::count(each.again, true) == 0) continue;
      if (known.emplace(each.again, each.segments).second) candidates.push_back(std::move(each));
    }
    in_parallel(candidates, [this](Candidate& each) { estimate(each); });
    return candidates;
  }

  // Sets the size of values that fusion keeps in registers to 0: those between fusable calls of one
  // pass.
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

  // Of calls one by one this is the simulation; of fused calls the time is that of the cut.
  void estimate(Candidate& candidate) const {
    auto [graph, again] = rewritten(candidate);
    if (options_.fuse) leave_out_registers(graph);
    candidate.peak_bytes = make_plan(graph, options_.plan).arena_bytes;
    candidate.picoseconds = options_.fuse ? 0 : time_of(graph, ceilings_);
    if (!options_.fuse) return;
    for (const int call : again) {
      candidate.picoseconds += partition_.time_again(call);
      candidate.traffic += partition_.traffic_again(call);
      candidate.stores += partition_.is_saved(call)
                              ? time_to_move(partition_.bytes(call), ceilings_)
                              : partition_.traffic_again(call);
    }
    for (std::size_t i = 0; i < candidate.again.size(); ++i) {
      if (candidate.again[i] || !partition_.is_saved(static_cast<int>(i))) continue;
      candidate.picoseconds += partition_.time_to_keep(static_cast<int>(i));
      candidate.traffic += partition_.time_to_keep(static_cast<int>(i));
      candidate.stores += partition_.time_to_keep(static_cast<int>(i));
    }
  }

  // Keeps the first candidate and the Pareto front of time and memory, a few for each of
  // three estimates of time: recomputed arithmetic delays kernels, or hides behind memory traffic,
  // or several kernels read its results, so that one has to write them.
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

  // The candidates of the Pareto front, with copies of their own for products.
  void add_own_copies(std::vector<Candidate>& candidates) const {
    std::vector<Candidate> more;
    for (const std::size_t i : front_of(candidates)) {
      Candidate each = candidates[i];
      each.own_copies = true;
      if (rewritten(each).again.size() > rewritten(candidates[i]).again.size())
        more.push_back(std::move(each));
    }
    measure_all(more);
    std::ranges::move(more, std::back_inserter(candidates));
  }

  // Values that are alike in all layers and in memory at the peak: each such set alone, with and
  // without the last layer, whose values the backward pass reads at once; then together those that
  // cost the least time for a byte. A cut knows the memory traffic of a value, but not into which
  // kernels the calls that make it merge: the plans tell.
  void add_stored(std::vector<Candidate>& candidates, const Simulation& kept) const {
    std::vector<std::vector<int>> sets;
    for (std::vector<int>& set : large_sets(kept)) {
      std::vector<int> but_last(set.begin(), set.end() - 1);
      sets.push_back(std::move(set));
      if (!but_last.empty()) sets.push_back(std::move(but_last));
    }
    std::vector<Candidate> alone;
    for (const std::vector<int>& set : sets) alone.push_back(stored(set, kept));
    measure_all(alone);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (alone[i].peak_bytes < kept.peak_bytes) order.push_back(i);
    }
    std::ranges::stable_sort(order, {}, [&](std::size_t i) {
      return static_cast<double>(alone[i].picoseconds - kept.picoseconds) /
             static_cast<double>(kept.peak_bytes - alone[i].peak_bytes);
    });
    add_unions(sets, order, kept, candidates);
    std::ranges::move(alone, std::back_inserter(candidates));
  }

  // The largest sets, of those that are no small part of the peak.
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

  // The first set, the first two and so on. Of the first one that takes longer than what counts as
  // equal also the largest part that does not.
  void add_unions(const std::vector<std::vector<int>>& sets, const std::vector<std::size_t>& order,
                  const Simulation& kept, std::vector<Candidate>& candidates) const {
    std::vector<std::vector<int>> unions(1);
    for (const std::size_t i : order) {
      std::vector<int> all;
      std::ranges::set_union(unions.back(), sets[i], std::back_inserter(all));
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

  // Between the calls `fast` and those with others, bisecting the number of the others.
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

  // The cut in which of the values that are in memory these calls' are computed again.
  Candidate stored(const std::vector<int>& calls, const Simulation& kept) const {
    using Decision = Partition::Decision;
    Partition::Objective objective = {.segments = most_segments(), .first = most_segments()};
    for (const Node& node : graph_.nodes) {
      const bool is_stored = std::ranges::any_of(
          node.outputs, [&](const Value& output) { return kept.at_peak[output.buffer] >= 0; });
      objective.decided.push_back(is_stored ? Decision::kept : Decision::open);
    }
    for (const int call : calls) objective.decided[call] = Decision::again;
    return {partition_.cut(objective), objective.segments, objective.first};
  }

  // A mixture of two neighbours of the Pareto front has the calls up to one as the smaller step has
  // them, the others as the larger one. One in the middle of all neighbours that are far apart.
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

  // Mixtures of the candidate above the limit with those next below it; then again, of what the
  // limit lies between now. They have to lie between the two next to the limit in memory, and may
  // not be faster than the larger one: so a larger budget, which has others, is never slower.
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
    Candidate mixed{large.again, small.segments, small.segments,
                    small.own_copies || large.own_copies};
    std::copy_n(small.again.begin(), mixture_end(small, large, part, parts), mixed.again.begin());
    return mixed;
  }
  // The call before which `part` of `parts` of the bytes are made that the two treat differently.
  std::ptrdiff_t mixture_end(const Candidate& small, const Candidate& large, std::int64_t part,
                             std::int64_t parts) const {
    std::int64_t all = 0, made = 0;
    const auto bytes_of = [&](std::size_t call) {
      return small.again[call] != large.again[call] ? partition_.bytes(static_cast<int>(call)) : 0;
    };
    for (std::size_t call = 0; call < small.again.size(); ++call) all += bytes_of(call);
    std::size_t call = 0;
    while (call < small.again.size() && made * parts < all * part) made += bytes_of(call++);
    return static_cast<std::ptrdiff_t>(call);
  }

  std::size_t limit_of(std::size_t baseline) const {
    return static_cast<std::size_t>(static_cast<double>(baseline) * options_.policy.fraction());
  }

  // The longest time that min_cut takes less memory for: predictions that differ by less than a
  // hundredth count as equal, and a step that is no slower than with every value kept is welcome.
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
    return compute_again(graph_, partition_, candidate.again,
                         partition_.segments(candidate.segments), candidate.own_copies);
  }

  // `in_detail`: with all that reports print.
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

  // Of a call, with all in `again` that it depends on.
  std::int64_t chain_of(int call, const std::set<int>& again) const {
    std::set<int> chain = {call};
    std::vector<int> open = {call};
    std::int64_t picoseconds = 0;
    while (!open.empty()) {
      const int next = open.back();
      open.pop_back();
      picoseconds += partition_.time_again(next);
      for (const Value& input : graph_.nodes[next].inputs) {
        const int maker = partition_.flow().producer(input.buffer);
        if (again.contains(maker) && chain.insert(maker).second) open.push_back(maker);
      }
    }
    return picoseconds;
  }

  const Graph& graph_;
  const RematOptions& options_;
  const Ceilings ceilings_;
  const Partition partition_;
  Candidate choice_;
};

// The values that the backward pass read before and reads now, and those that it computes again.
std::vector<RematValue> describe_values(const Graph& graph, const Search& search,
                                        const Rewritten& chosen, const RematReport& report) {
  const Partition& partition = search.partition();
  const std::set<int> again(chosen.again.begin(), chosen.again.end());
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
        (!partition.is_saved(call) && !again.contains(call) && !is_read))
      continue;
    RematValue value;
    value.value = describe(graph, node.outputs[0]);
    value.op = op_info(node.call.op).name;
    if (node.module >= 0) value.module = graph.modules[node.module];
    value.site = node.site;
    value.bytes = partition.bytes(call);
    value.picoseconds = partition.time_again(call);
    value.recomputed = again.contains(call);
    const Simulation& plan = value.recomputed ? report.baseline : report.chosen;
    value.memory = plan.memory[node.outputs[0].buffer];
    for (const Value& output : node.outputs) {
      const std::int64_t bytes = report.baseline.at_peak[output.buffer];
      value.at_peak |= bytes >= 0;
      value.peak_bytes += std::max<std::int64_t>(bytes, 0);
    }
    value.reason = search.reason_for(call, again, value.memory, value.peak_bytes);
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
  report.recomputed_calls = static_cast<int>(chosen.again.size());
  report.values = describe_values(graph, search, chosen, report);
  report.notes_on_marks = search.partition().notes_on_marks();
  graph = std::move(chosen.graph);
  return report;
}

}  // namespace brrr::graph
