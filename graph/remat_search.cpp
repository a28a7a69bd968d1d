#include "brrr/graph/remat_search.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion_group.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::graph {

// A budget that no candidate meets is tried with variants that run calls several times. Variants
// that are faster than the smallest other candidate are left out: a larger budget does not try
// them.
std::vector<RematCandidate> RematSearch::candidates(const Simulation& kept) const {
  const Remat::Kind policy = options_.policy.kind();
  std::vector<RematCandidate> all = cuts_for(objectives());
  if (options_.fuse) keep_best(all);
  add_layers(all);
  if (options_.fuse) {
    keep_affordable(all);
    measure_all(all);
    add_own_copies(all);
    add_stored(all, kept);
  }
  if (policy == Remat::Kind::full) {
    add_least_memory(all);
    return all;
  }
  add_mixtures(all, kept.peak_bytes);
  if (policy == Remat::Kind::budget) {
    const std::size_t limit = limit_of(kept.peak_bytes);
    add_repeated(limit, all);
    add_mixtures_near(limit, all);
  }
  return all;
}

// Prices of a kept byte that separate cheap calls from others.
std::set<std::int64_t> RematSearch::prices() const {
  std::set<std::int64_t> prices = {0};
  for (const bool only_saved : {false, true}) {
    const std::vector<std::int64_t> rates = partition_.rates(only_saved);
    for (std::size_t quarter = 1; quarter < 4 && !rates.empty(); ++quarter)
      prices.insert(2 * rates[rates.size() * quarter / 4]);
  }
  return prices;
}

// For calls that may run again in all segments or in the first ones alone: several prices of a kept
// byte; the least memory traffic, for kernels bound by it; and the fewest kept bytes at any cost.
void RematSearch::add_objectives(int segments, const std::set<int>& first,
                                 std::vector<Partition::Objective>& all) const {
  const std::set<std::int64_t> prices = this->prices();
  for (const int each : first) {
    if (each == 0) continue;
    for (const std::int64_t price : prices) all.push_back({segments, each, price, false});
    all.push_back({segments, each, 0, false, true});
    all.push_back({segments, each, 0, true});
  }
}

std::vector<Partition::Objective> RematSearch::objectives() const {
  std::vector<Partition::Objective> all;
  for (int segments = 1; segments <= most_segments(); segments *= 2) {
    // The backward pass begins with the last segment, so recomputing that one saves no memory.
    add_objectives(segments, {segments / 4, segments / 2, segments * 3 / 4, segments - 1, segments},
                   all);
  }
  return all;
}

int RematSearch::most_segments() const {
  const auto calls = static_cast<unsigned>(partition_.rates(false).size());
  return static_cast<int>(std::bit_floor(std::clamp(calls / 2, 1U, 64U)));
}

namespace {

// Predicted times depend on the precision of products, which each thread chooses for itself.
template <class Each>
void in_parallel(std::vector<RematCandidate>& candidates, const Each& each) {
  const Precision precision = matmul_precision();
  parallel_for(static_cast<std::int64_t>(candidates.size()), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 const MatmulPrecisionGuard guard(precision);
                 for (std::int64_t i = begin; i < end; ++i)
                   each(candidates[static_cast<std::size_t>(i)]);
               });
}

// The Pareto front of measured candidates, by rising memory.
std::vector<std::size_t> front_of(const std::vector<RematCandidate>& candidates) {
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

// Sets the size of values between fusable calls of one pass to 0, since fusion keeps them in
// registers.
void leave_out_registers(Graph& graph) {
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

}  // namespace

// The distinct candidates, first the one that recomputes only marked values. Their memory is that
// of unfused calls.
std::vector<RematCandidate> RematSearch::cuts_for(
    const std::vector<Partition::Objective>& all) const {
  constexpr std::size_t kMostCalls = 300'000, kFewest = 12;  // of all candidates
  const std::size_t most = std::max(kFewest, kMostCalls / (graph_.nodes.size() + 1));
  std::vector<RematCandidate> candidates(1);
  candidates[0].recomputed = partition_.cut({.first = 0});
  std::set<std::pair<std::vector<bool>, int>> known = {{candidates[0].recomputed, 1}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Samples a long list evenly. The last objective is always included, since it saves the most
    // memory.
    if (all.size() > most && (all.size() - 1 - i) * most % all.size() >= most) continue;
    RematCandidate each{partition_.cut(all[i]), all[i].segments, all[i].first};
    if (std::ranges::count(each.recomputed, true) == 0) continue;
    if (known.emplace(each.recomputed, each.segments).second) candidates.push_back(std::move(each));
  }
  in_parallel(candidates, [this](RematCandidate& each) { estimate(each); });
  return candidates;
}

// Estimates memory and time. For unfused steps this is exact; for fused steps the time is the
// cut's.
void RematSearch::estimate(RematCandidate& candidate) const {
  auto [graph, originals] = rewritten(candidate);
  if (options_.fuse) leave_out_registers(graph);
  candidate.peak_bytes = make_plan(graph, options_.plan).arena_bytes;
  candidate.picoseconds = options_.fuse ? 0 : time_of(graph, ceilings_);
  if (!options_.fuse) return;
  for (const int call : originals) {
    candidate.picoseconds += partition_.recompute_time(call);
    candidate.traffic += partition_.recompute_traffic(call);
    candidate.stores += partition_.is_saved(call) ? time_to_move(partition_.bytes(call), ceilings_)
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
void RematSearch::keep_best(std::vector<RematCandidate>& candidates) const {
  constexpr std::size_t kMostCalls = 6000, kFewest = 3, kMost = 8;  // of each
  const std::size_t most = std::clamp(kMostCalls / (graph_.nodes.size() + 1), kFewest, kMost);
  std::set<std::size_t> chosen = {0};
  for (const auto time :
       {&RematCandidate::picoseconds, &RematCandidate::traffic, &RematCandidate::stores}) {
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
  std::vector<RematCandidate> kept;
  for (const std::size_t i : chosen) kept.push_back(std::move(candidates[i]));
  candidates = std::move(kept);
}

std::size_t RematSearch::affordable(std::size_t wanted) const {
  const std::int64_t left = most_work() - work_, of_plan = work_ / std::max(1, plans_.load());
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(left / 2 / of_plan, 0));
  ended_early_ |= most < wanted;
  return std::min(most, wanted);
}

// Samples candidates evenly by their estimated memory, including the first one and the smallest.
void RematSearch::keep_affordable(std::vector<RematCandidate>& candidates) const {
  const std::size_t most = std::max<std::size_t>(affordable(candidates.size()), 2);
  if (candidates.size() <= most) return;
  std::vector<std::size_t> order(candidates.size() - 1);
  std::iota(order.begin(), order.end(), std::size_t{1});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return candidates[i].peak_bytes; });
  std::set<std::size_t> chosen = {0};
  for (std::size_t i = 0; i + 1 < most; ++i) chosen.insert(order[i * order.size() / (most - 1)]);
  std::vector<RematCandidate> kept;
  for (const std::size_t i : chosen) kept.push_back(std::move(candidates[i]));
  candidates = std::move(kept);
}

// Candidates with equal plans are planned once. Drops those for which there is no time, but for the
// first two of the search.
void RematSearch::measure_all(std::vector<RematCandidate>& candidates) const {
  std::vector<RematCandidate> fresh;
  for (const RematCandidate& each : candidates) {
    if (measured_.try_emplace(each.plan()).second) fresh.push_back(each);
  }
  if (options_.fuse) {
    const std::size_t least = plans_ == 1 ? 2 : 0;
    const std::size_t most = std::max(affordable(fresh.size()), least);
    for (; fresh.size() > most; fresh.pop_back()) measured_.erase(fresh.back().plan());
  }
  in_parallel(fresh, [this](RematCandidate& each) {
    const Simulation simulation = simulate(rewritten(each).graph);
    each.picoseconds = simulation.picoseconds;
    each.peak_bytes = simulation.peak_bytes;
  });
  for (const RematCandidate& each : fresh)
    measured_[each.plan()] = {each.picoseconds, each.peak_bytes};
  const auto dropped = std::ranges::find_if(candidates, [this](RematCandidate& each) {
    const auto known = measured_.find(each.plan());
    if (known != measured_.end()) std::tie(each.picoseconds, each.peak_bytes) = known->second;
    return known == measured_.end();
  });
  candidates.erase(dropped, candidates.end());
}

int RematSearch::segments_of_layers() const {
  const int layers = partition_.layers(), most = most_segments();
  return layers / ((layers + most - 1) / most);
}

// Adds cuts with a segment for each layer, and for each two.
void RematSearch::add_layers(std::vector<RematCandidate>& candidates) const {
  const int layers = segments_of_layers();
  std::vector<Partition::Objective> all;
  for (const int segments : {layers, layers / 2}) {
    if (segments > 2 && !std::has_single_bit(static_cast<unsigned>(segments)))
      add_objectives(segments, {segments - 1, segments}, all);
  }
  if (all.empty()) return;
  std::vector<RematCandidate> more = cuts_for(all);
  if (options_.fuse) keep_best(more);
  std::move(more.begin() + 1, more.end(), std::back_inserter(candidates));
}

// Adds variants of the candidates of the Pareto front in which products have copies of their own.
void RematSearch::add_own_copies(std::vector<RematCandidate>& candidates) const {
  std::vector<RematCandidate> more;
  for (const std::size_t i : front_of(candidates)) {
    RematCandidate each = candidates[i];
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
void RematSearch::add_stored(std::vector<RematCandidate>& candidates,
                             const Simulation& kept) const {
  std::vector<LayerValues> sets = partition_.choices_of(
      large_sets(kept), [&](int buffer) { return kept.at_peak[buffer] >= 0; });
  sets.resize(affordable(sets.size()));
  std::vector<RematCandidate> alone;
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
std::vector<std::vector<int>> RematSearch::large_sets(const Simulation& kept) const {
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
void RematSearch::add_unions(const std::vector<LayerValues>& sets,
                             const std::vector<std::size_t>& order, const Simulation& kept,
                             std::vector<RematCandidate>& candidates) const {
  std::vector<std::vector<int>> unions(1);
  for (const std::size_t i : order) {
    std::vector<int> all;
    std::ranges::set_union(unions.back(), sets[i].calls, std::back_inserter(all));
    if (all.size() > unions.back().size()) unions.push_back(std::move(all));
  }
  std::vector<RematCandidate> more;
  for (std::size_t i = 1; i < unions.size(); ++i) more.push_back(stored(unions[i], kept));
  measure_all(more);
  std::int64_t fastest = kept.picoseconds;
  for (const RematCandidate& each : candidates) fastest = std::min(fastest, each.picoseconds);
  for (const RematCandidate& each : more) fastest = std::min(fastest, each.picoseconds);
  const std::int64_t slowest = as_fast_as(fastest, kept);
  const auto slow = std::ranges::find_if(
      more, [&](const RematCandidate& each) { return each.picoseconds > slowest; });
  if (slow != more.end()) {
    const auto i = static_cast<std::size_t>(slow - more.begin());
    add_parts(unions[i], unions[i + 1], slowest, kept, more);
  }
  std::ranges::move(more, std::back_inserter(candidates));
}

// Adds the calls `fast` with some of the calls `slow`, bisecting how many.
void RematSearch::add_parts(const std::vector<int>& fast, const std::vector<int>& slow,
                            std::int64_t slowest, const Simulation& kept,
                            std::vector<RematCandidate>& candidates) const {
  std::vector<int> others;
  std::ranges::set_difference(slow, fast, std::back_inserter(others));
  std::size_t fits = 0, too_many = others.size();
  while (fits + 1 < too_many) {
    const std::size_t count = (fits + too_many) / 2;
    std::vector<int> calls = fast;
    calls.insert(calls.end(), others.begin(), others.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<RematCandidate> part = {stored(calls, kept)};
    measure_all(part);
    if (part.empty()) return;
    (part[0].picoseconds <= slowest ? fits : too_many) = count;
    candidates.push_back(std::move(part[0]));
  }
}

// The cut that recomputes the values of these calls, and keeps the other values that are in
// memory.
RematCandidate RematSearch::stored(const std::vector<int>& calls, const Simulation& kept) const {
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
void RematSearch::add_mixtures(std::vector<RematCandidate>& candidates,
                               std::size_t baseline) const {
  constexpr std::size_t kGap = 16;
  const std::vector<std::size_t> front = front_of(candidates);
  std::vector<RematCandidate> mixtures;
  for (std::size_t k = 1; k < front.size(); ++k) {
    const RematCandidate &small = candidates[front[k - 1]], &large = candidates[front[k]];
    if ((large.peak_bytes - small.peak_bytes) * kGap >= baseline)
      mixtures.push_back(mixture(small, large, 1, 2));
  }
  measure_all(mixtures);
  std::ranges::move(mixtures, std::back_inserter(candidates));
}

// Adds mixtures of the two candidates between which the limit lies, repeatedly for the narrowed
// interval. A mixture must lie between the two in memory and must not be faster than the larger
// one: otherwise a larger budget, which tries other mixtures, could give a slower step.
void RematSearch::add_mixtures_near(std::size_t limit,
                                    std::vector<RematCandidate>& candidates) const {
  constexpr int kRounds = 3, kParts = 4;
  constexpr std::ptrdiff_t kSmaller = 2;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<std::size_t> front = front_of(candidates);
    const auto above = std::ranges::find_if(
        front, [&](std::size_t i) { return candidates[i].peak_bytes > limit; });
    if (above == front.begin() || above == front.end()) return;
    const std::size_t least = candidates[above[-1]].peak_bytes;
    const RematCandidate large = candidates[*above];
    std::vector<RematCandidate> mixtures;
    for (auto i = above - std::min(kSmaller, above - front.begin()); i != above; ++i) {
      for (int part = 1; part < kParts; ++part)
        mixtures.push_back(mixture(candidates[*i], large, part, kParts));
    }
    measure_all(mixtures);
    std::ranges::copy_if(mixtures, std::back_inserter(candidates), [&](const RematCandidate& each) {
      return each.peak_bytes > least && each.peak_bytes < large.peak_bytes &&
             each.picoseconds >= large.picoseconds;
    });
  }
}

RematCandidate RematSearch::mixture(const RematCandidate& small, const RematCandidate& large,
                                    int part, int parts) const {
  RematCandidate mixed{large.recomputed, small.segments, small.segments,
                       small.own_copies || large.own_copies};
  std::copy_n(small.recomputed.begin(), mixture_end(small, large, part, parts),
              mixed.recomputed.begin());
  return mixed;
}
// The call before which `part` / `parts` of the bytes that the two treat differently are made.
std::ptrdiff_t RematSearch::mixture_end(const RematCandidate& small, const RematCandidate& large,
                                        std::int64_t part, std::int64_t parts) const {
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

// Adds variants of the smallest candidates that are fused without extending lifetimes.
void RematSearch::add_least_memory(std::vector<RematCandidate>& candidates) const {
  constexpr std::size_t kSmallest = 4;
  if (!options_.fuse) return;
  std::vector<RematCandidate> more;
  for (const std::size_t i : front_of(candidates)) {
    if (more.size() == kSmallest) break;
    more.push_back(candidates[i]);
    more.back().least_memory = true;
  }
  measure_all(more);
  std::ranges::move(more, std::back_inserter(candidates));
}

// Adds variants of the smallest candidates that share copies in smaller segments than those between
// which they keep values. A call runs again for each of the smaller ones that needs its result.
void RematSearch::add_repeated(std::size_t limit, std::vector<RematCandidate>& candidates) const {
  const RematCandidate smallest = candidates[front_of(candidates).front()];
  if (smallest.peak_bytes <= limit) return;
  constexpr std::size_t kSmallest = 6;
  const int layers = segments_of_layers(), most = most_segments();
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return candidates[i].peak_bytes; });
  std::vector<RematCandidate> more;
  std::set<std::pair<std::vector<bool>, int>> known;
  for (std::size_t k = 0; k < std::min(order.size(), kSmallest); ++k) {
    for (int segments = layers; segments <= most; segments *= 2) {
      RematCandidate each = candidates[order[k]];
      if (each.segments >= segments) continue;
      each.segments = each.first = segments;
      if (known.emplace(each.recomputed, segments).second) more.push_back(std::move(each));
    }
  }
  measure_all(more);
  if (options_.fuse) {
    add_own_copies(more);
    add_least_memory(more);
  }
  std::ranges::copy_if(more, std::back_inserter(candidates), [&](const RematCandidate& each) {
    return each.picoseconds >= smallest.picoseconds;
  });
}

Rewritten RematSearch::rewritten(const RematCandidate& candidate) const {
  Rewritten result = recompute_calls(graph_, partition_, candidate.recomputed,
                                     partition_.segments(candidate.segments), candidate.own_copies);
  result.graph.least_memory = candidate.least_memory;
  return result;
}

Simulation RematSearch::simulate(Graph graph, bool in_detail) const {
  const auto calls = static_cast<std::int64_t>(graph.nodes.size());
  if (options_.fuse) options_.fuse(graph);
  work_ += kWorkOfCall * calls + graph.fusion_work;
  ++plans_;
  const Plan plan = make_plan(graph, options_.plan);
  Simulation simulation;
  simulation.picoseconds = time_of(graph, ceilings_);
  simulation.peak_bytes = plan.arena_bytes;
  if (in_detail) describe_memory(graph, options_.plan, plan, simulation);
  return simulation;
}

}  // namespace brrr::graph
