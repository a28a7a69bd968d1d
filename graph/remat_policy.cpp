// Owns the policies.
//
// Candidates are minimum cuts (graph/partition.h) of several prices of a kept byte, over several
// numbers of segments, and for budgets mixtures of two cuts that are neighbours in memory. Each is
// rewritten, fused and planned, so that its memory is that of the step and not an estimate; a
// policy takes one of them. But for mixtures the candidates do not depend on the budget, so a
// larger one never needs more time.
#include <fmt/format.h>

#include <algorithm>
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

// Bytes of the arena in use at each call.
std::vector<std::size_t> live_bytes(const Graph& graph, const PlanOptions& options,
                                    const Plan& plan) {
  std::vector<std::int64_t> change(graph.nodes.size() + 1);
  const std::vector<LiveRange> ranges = live_ranges(graph, options, Flow(graph), plan);
  const int end = static_cast<int>(graph.nodes.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (plan.arena_offset[i] < 0 || ranges[i].last < ranges[i].first) continue;
    const auto bytes = static_cast<std::int64_t>(aligned(graph.buffers[i].bytes));
    change[std::max(ranges[i].first, 0)] += bytes;
    change[std::min(ranges[i].last + 1, end)] -= bytes;
  }
  std::vector<std::size_t> live(graph.nodes.size());
  std::int64_t now = 0;
  for (std::size_t i = 0; i < live.size(); ++i)
    live[i] = static_cast<std::size_t>(now += change[i]);
  return live;
}

ValueMemory memory_of(const Graph& graph, const Flow& flow, const Plan& plan,
                      const std::vector<bool>& is_gradient, int buffer) {
  if (graph.is_temporary(buffer) && flow.writers(buffer).empty()) return ValueMemory::registers;
  const int block = plan.placements[buffer].block;
  if (plan.arena_offset[block] >= 0) return ValueMemory::arena;
  return is_gradient[block] ? ValueMemory::gradients : ValueMemory::outside;
}

// Bytes of temporaries that alias gradients, at each call. A buffer that an elided concatenation
// reads is a part of a gradient.
std::vector<std::size_t> bytes_in_gradients(const Graph& graph, const Flow& flow, const Plan& plan,
                                            const std::vector<ValueMemory>& memory) {
  struct Alias {
    LiveRange range;
    std::size_t bytes;
    bool is_part;
  };
  const int calls = static_cast<int>(graph.nodes.size());
  std::map<std::pair<int, std::size_t>, std::vector<Alias>> places;  // by block and offset
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const int buffer = static_cast<int>(i);
    const Placement& place = plan.placements[i];
    if (memory[i] != ValueMemory::gradients || place.block == buffer) continue;
    const bool is_part =
        std::ranges::any_of(flow.readers(buffer), [&](int reader) { return plan.elided[reader]; });
    places[{place.block, place.offset}].push_back(
        {{flow.writers(buffer).front(), std::min(flow.last_use(buffer), calls - 1)},
         graph.buffers[i].bytes,
         is_part});
  }
  std::vector<std::size_t> bytes(graph.nodes.size());
  for (auto& [place, aliases] : places) {
    std::ranges::sort(aliases, {}, [](const Alias& alias) { return alias.range.first; });
    for (std::size_t i = 0; i < aliases.size();) {
      Alias all = aliases[i++];  // with those that are computed in its place
      for (; i < aliases.size() && aliases[i].range.first <= all.range.last; ++i) {
        all.range.last = std::max(all.range.last, aliases[i].range.last);
        all.bytes = std::max(all.bytes, aliases[i].bytes);
        all.is_part |= aliases[i].is_part;
      }
      for (int call = all.range.first; call <= all.range.last && !all.is_part; ++call)
        bytes[call] += all.bytes;
    }
  }
  for (int call = 1; call < calls; ++call) {
    if (plan.elided[call]) bytes[call] = bytes[call - 1];
  }
  return bytes;
}

// Where buffers are, and which of them are live where most bytes are.
void find_places(const Graph& graph, const Plan& plan, Simulation& simulation) {
  const Flow flow(graph);
  const int buffers = static_cast<int>(graph.buffers.size());
  const std::size_t calls = graph.nodes.size();
  std::vector<bool> is_gradient(graph.buffers.size());
  for (const GradientSlot& slot : graph.gradients) {
    if (graph.makes(slot)) is_gradient[plan.placement_of(slot.after->value).block] = true;
  }
  for (int buffer = 0; buffer < buffers; ++buffer)
    simulation.memory.push_back(memory_of(graph, flow, plan, is_gradient, buffer));
  simulation.in_gradients = bytes_in_gradients(graph, flow, plan, simulation.memory);
  std::size_t peak = 0;
  for (std::size_t call = 0; call < calls; ++call) {
    const auto all = [&](std::size_t at) {
      return simulation.live[at] + simulation.in_gradients[at];
    };
    if (all(call) > all(peak)) peak = call;
  }
  std::vector<std::int64_t> uncounted;
  for (const Buffer& buffer : graph.buffers)
    uncounted.push_back(static_cast<std::int64_t>(buffer.bytes));
  for (int buffer = 0; buffer < buffers; ++buffer) {
    std::int64_t& at_peak = simulation.at_peak.emplace_back(-1);
    const auto writers = flow.writers(buffer);
    const ValueMemory memory = simulation.memory[buffer];
    if (writers.empty() || (memory != ValueMemory::arena && memory != ValueMemory::gradients) ||
        writers.front() > static_cast<int>(peak) || static_cast<int>(peak) > flow.last_use(buffer))
      continue;
    std::int64_t& rest = uncounted[plan.placements[buffer].block];
    at_peak = std::min(rest, static_cast<std::int64_t>(graph.buffers[buffer].bytes));
    rest -= at_peak;
  }
}

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
    const int most = std::clamp(static_cast<int>(partition_.rates(false).size() / 2), 1, 64);
    for (int segments = 1; segments <= most; segments *= 2) {
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

  // The predictions of two steps that differ by less than a hundredth count as equal where no
  // budget is given.
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
                                                                        : fastest + fastest / 100;
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
    simulation.live = live_bytes(run, options_.plan, plan);
    find_places(run, plan, simulation);
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

std::size_t Simulation::most_in_gradients() const {
  return in_gradients.empty() ? 0 : std::ranges::max(in_gradients);
}

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
