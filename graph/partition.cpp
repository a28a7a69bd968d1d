#include "brrr/graph/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion_group.h"
#include "brrr/graph/min_cut.h"
#include "brrr/tensor/counted.h"
#include "brrr/tensor/fail.h"

namespace brrr::graph {

Partition::Partition(const Graph& graph, bool fused, const std::string& name)
    : graph_(graph),
      flow_(graph),
      fused_(fused),
      ceilings_(ceilings_for(graph)),
      calls_(graph.nodes.size()) {
  const int count = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < count; ++i) of(i).is_forward = graph.nodes[i].role != Role::backward;
  for (int i = count; i-- > 0;) find_readers(i);
  for (int i = 0; i < count; ++i) {
    if (!of(i).is_forward) continue;
    of(i).obstacle = find_obstacle(i);
    find_costs(i);
  }
  for (int i = 0; i < count; ++i) {
    if (feeds_backward(i)) time_ += time_of(graph.nodes[i], graph.device, ceilings_);
  }
  apply_marks(name);
}

void Partition::find_readers(int call) {
  Facts& facts = of(call);
  const Node& node = graph_.nodes[call];
  facts.sole_writer = facts.is_forward && !node.outputs.empty();
  for (const Value& output : node.outputs) {
    facts.sole_writer &= flow_.is_intermediate(output.buffer);
    for (const int reader : flow_.readers(output.buffer)) {
      if (reader <= call) continue;
      int& last = of(reader).is_forward ? facts.last_forward : facts.last_backward;
      last = std::max(last, reader);
      facts.until = std::max(facts.until, of(reader).is_forward ? of(reader).until : reader);
    }
  }
}

bool Partition::saves_values() const {
  return std::ranges::any_of(
      calls_, [](const Facts& facts) { return facts.is_forward && facts.last_backward >= 0; });
}

const char* Partition::find_obstacle(int call) const {
  const Node& node = graph_.nodes[call];
  const Facts& facts = of(call);
  if (!facts.sole_writer) return "it is a result of the step, or is written in place";
  if (!is_pure(node)) return "its call has side effects";
  if (facts.last_forward > facts.last_backward && facts.last_backward >= 0)
    return "it is read after the backward pass as well";
  for (const Value& output : node.outputs) {
    if (!is_whole(graph_, output)) return "its call writes to a part of its memory";
    for (const int reader : flow_.readers(output.buffer)) {
      if (graph_.nodes[reader].recomputation != 0) return "it is the input of a checkpoint";
    }
  }
  for (const Value& input : node.inputs) {
    if (facts.until >= 0 &&
        flow_.version(input.buffer, call) != flow_.version(input.buffer, facts.until))
      return "what it is computed from is written to before the backward pass reads it";
    const int producer = flow_.producer(input.buffer);
    if (graph_.is_temporary(input.buffer) && producer >= 0 && !of(producer).is_forward)
      return "it is computed from values of a backward pass";
  }
  return nullptr;
}

bool Partition::is_fusable(int call) const { return fused_ && !reads_memory(graph_.nodes[call]); }

bool Partition::reads_memory(const Node& node) const {
  return !graph::is_fusable(node) || op_info(node.call.op).algebra == Algebra::contraction;
}

bool Partition::is_cheap_in_reader(int call) const {
  constexpr int kCheap = 8;  // operations
  const Node& node = graph_.nodes[call];
  const OpInfo& op = op_info(node.call.op);
  if (!is_fusable(call) || op.kind == OpKind::reduction || op.effect != Effect::pure ||
      op.element_flops > kCheap)
    return false;
  const auto large = std::ranges::count_if(
      node.inputs, [&](const Value& input) { return 2 * input.numel() > node.outputs[0].numel(); });
  return large <= 1;
}

// A pointwise call that is recomputed in its reader's kernel moves no bytes. A value that an opaque
// kernel (a product) writes or reads in the forward pass is in memory anyway; if an opaque kernel
// reads it in the backward pass, a recomputation must write it to memory again.
void Partition::find_costs(int call) {
  Facts& facts = of(call);
  const Node& node = graph_.nodes[call];
  const bool in_reader = is_fusable(call) && op_info(node.call.op).kind != OpKind::reduction;
  facts.recompute_ps = 1 + (in_reader ? time_to_compute(node, graph_.device, ceilings_)
                                      : time_of(node, graph_.device, ceilings_));
  facts.recompute_traffic_ps = in_reader ? 1 : facts.recompute_ps;
  facts.chain_ps = facts.obstacle ? 0 : facts.recompute_ps;
  for (const Value& input : node.inputs) {
    const int producer = graph_.is_temporary(input.buffer) ? flow_.producer(input.buffer) : -1;
    if (producer >= 0 && !facts.obstacle)
      facts.chain_ps = std::min(facts.chain_ps + of(producer).chain_ps, std::int64_t{1} << 60);
  }
  if (!facts.sole_writer) return;
  bool is_written = !is_fusable(call), is_loaded = false;
  for (const Value& output : node.outputs) {
    facts.bytes += static_cast<std::int64_t>(graph_.buffers[output.buffer].bytes);
    for (const int reader : flow_.readers(output.buffer)) {
      if (!is_fusable(reader)) (of(reader).is_forward ? is_written : is_loaded) = true;
    }
  }
  if (!fused_) return;
  facts.keep_ps = time_to_move(facts.bytes * (!is_written + !is_loaded), ceilings_);
  if (!in_reader || !is_loaded) return;
  facts.recompute_ps += time_to_move(facts.bytes, ceilings_);
  facts.recompute_traffic_ps += time_to_move(facts.bytes, ceilings_);
}

namespace {

const char* name_of(bool recomputed) { return recomputed ? "recompute" : "save"; }

// Whether a name is that of the node's op, of its module or of an enclosing module.
bool is_named(const Graph& graph, const Node& node, const std::string& name) {
  if (node.outputs.empty()) return false;
  if (op_info(node.call.op).name == name) return true;
  const std::string module = node.module < 0 ? "" : graph.modules[node.module];
  return !name.empty() && (module + ".").starts_with(name + ".");
}

}  // namespace

void Partition::apply_marks(const std::string& name) {
  for (const RematMark& mark : graph_.marks) {
    const auto refuse = [&](const char* why) {
      fail("[{}] {} expected a value that the backward pass can {}, got {}: {} (at {})", name,
           name_of(mark.recomputed), mark.recomputed ? "compute again" : "read",
           describe(graph_, mark.value), why, describe(mark.site));
    };
    const auto note = [&](const char* why) {
      notes_.push_back(fmt::format("{} of {}: {} (at {})", name_of(mark.recomputed),
                                   describe(graph_, mark.value), why, describe(mark.site)));
    };
    if (flow_.writers(mark.value.buffer).empty()) {
      note("no call of a replay writes it");  // an argument, a constant, a value without readers
      continue;
    }
    const int producer = flow_.producer(mark.value.buffer);
    if (producer < 0) refuse("no single call of the step makes it");
    if (!of(producer).is_forward) refuse("it is made in the backward pass");
    if (mark.recomputed && of(producer).obstacle) refuse(of(producer).obstacle);
    if (of(producer).mark == (mark.recomputed ? Mark::save : Mark::recompute))
      refuse("save and recompute both name it");
    of(producer).mark = mark.recomputed ? Mark::recompute : Mark::save;
    if (!is_saved(producer)) note("the backward pass does not read it");
  }
  const std::vector<Facts> of_tensors = calls_;
  for (const NamedRematMark& mark : graph_.named_marks) apply_named(mark, name);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (of_tensors[i].mark != Mark::none) calls_[i].mark = of_tensors[i].mark;
  }
}

// remat::save ignores values that the backward pass does not read, or reads only for
// recomputations.
void Partition::apply_named(const NamedRematMark& mark, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    fail("[{}] {} expected {}, got \"{}\" (at {})", name, name_of(mark.recomputed), why, mark.name,
         describe(mark.site));
  };
  const Mark wanted = mark.recomputed ? Mark::recompute : Mark::save;
  int values = 0, read = 0, marked = 0;
  const char* obstacle = nullptr;
  for (int i = 0; i < static_cast<int>(calls_.size()); ++i) {
    const Node& node = graph_.nodes[i];
    if (!of(i).is_forward || !is_named(graph_, node, mark.name)) continue;
    ++values;
    read += is_saved(i);
    if (!(mark.recomputed ? feeds_backward(i) : is_saved(i))) continue;
    if (mark.recomputed && of(i).obstacle) {
      obstacle = of(i).obstacle;
      continue;
    }
    if (of(i).mark != Mark::none && of(i).mark != wanted)
      refuse("no value that save and recompute both name, such as " +
             describe(graph_, node.outputs[0]));
    of(i).mark = wanted;
    ++marked;
  }
  if (values == 0) refuse(names_in_forward());
  if (obstacle && marked == 0)
    refuse(fmt::format("values that the backward pass can compute again ({})", obstacle));
  notes_.push_back(
      fmt::format("{} \"{}\": {}, the backward pass reads {} of them{}", name_of(mark.recomputed),
                  mark.name, counted(values, "value"), read,
                  obstacle ? fmt::format("; not all can run again: {}", obstacle) : ""));
}

std::string Partition::names_in_forward() const {
  std::set<std::string> modules, ops;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (!calls_[i].is_forward) continue;
    if (node.module >= 0) modules.insert(graph_.modules[node.module]);
    ops.insert(op_info(node.call.op).name);
  }
  return fmt::format(
      "the name of a module ({}) or an op ({}) of the forward pass",
      modules.empty() ? "there is none" : fmt::format("{}", fmt::join(modules, ", ")),
      fmt::join(ops, ", "));
}

std::vector<std::int64_t> Partition::rates(bool only_saved) const {
  std::vector<std::int64_t> rates;
  for (const Facts& facts : calls_) {
    if (facts.sole_writer && !facts.obstacle && facts.bytes > 0 &&
        (only_saved ? facts.last_backward : facts.until) >= 0)
      rates.push_back(facts.recompute_ps * 1000 / facts.bytes);
  }
  std::ranges::sort(rates);
  return rates;
}

std::vector<std::int64_t> Partition::widths() const {
  std::vector<std::int64_t> widths(calls_.size() + 1);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (!calls_[i].sole_writer || calls_[i].last_forward < 0) continue;
    widths[i] += calls_[i].bytes;
    widths[calls_[i].last_forward] -= calls_[i].bytes;
  }
  for (std::size_t i = 1; i < widths.size(); ++i) widths[i] += widths[i - 1];
  return widths;
}

std::vector<int> Partition::segments(int count) const {
  std::vector<int> segments(calls_.size(), 0);
  if (count == 1 || calls_.empty()) return segments;
  std::vector<std::int64_t> made(calls_.size());  // bytes that the forward pass has made so far
  std::int64_t total = 0;
  for (std::size_t i = 0; i < calls_.size(); ++i)
    made[i] = total += feeds_backward(static_cast<int>(i)) ? calls_[i].bytes + 1 : 0;
  // The best end of each segment: first by the fewest live bytes, then by equal sizes.
  using End = std::pair<std::pair<std::int64_t, std::int64_t>, int>;
  std::vector<End> ends(count + 1, {{INT64_MAX, 0}, -1});
  const std::vector<std::int64_t> widths = this->widths();
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (!feeds_backward(static_cast<int>(i))) continue;
    const std::int64_t nearest = (made[i] * 2 * count + total) / (2 * total);
    const std::int64_t target = total / count * nearest;
    ends[static_cast<int>(nearest)] =
        std::min(ends[static_cast<int>(nearest)],
                 {{widths[i], std::abs(made[i] - target)}, static_cast<int>(i)});
  }
  for (int k = 1; k < count; ++k) {
    if (ends[k].second >= 0 && ends[k].second + 1 < static_cast<int>(calls_.size()))
      ++segments[ends[k].second + 1];
  }
  for (std::size_t i = 1; i < segments.size(); ++i) segments[i] += segments[i - 1];
  return segments;
}

// A value that crosses a segment boundary is kept, unless it is cheap to compute, like a mask that
// every layer reads.
bool Partition::is_kept(int call, const Objective& objective,
                        const std::vector<int>& segment) const {
  const Facts& facts = of(call);
  if (facts.obstacle || facts.mark == Mark::save) return true;
  if (facts.mark == Mark::recompute) return false;
  if (!objective.decided.empty()) return objective.decided[call] == Decision::kept;
  if (segment[call] >= objective.first) return true;
  return crosses(call, objective.segments, segment);
}

bool Partition::crosses(int call, int segments, const std::vector<int>& segment) const {
  const Facts& facts = of(call);
  return facts.last_forward >= 0 && segment[call] != segment[facts.last_forward] &&
         facts.chain_ps > time_ / (8 * segments);
}

Partition::Decision Partition::decision(int call, const Objective& objective) const {
  if (of(call).mark == Mark::recompute) return Decision::recomputed;
  if (objective.decided.empty() || of(call).obstacle || of(call).mark == Mark::save)
    return Decision::open;
  return objective.decided[call];
}

std::set<int> Partition::chain(int call, const std::function<bool(int call)>& runs_again) const {
  std::set<int> chain = {call};
  std::vector<int> open = {call};
  while (!open.empty()) {
    const int next = open.back();
    open.pop_back();
    for (const Value& input : graph_.nodes[next].inputs) {
      const int producer = flow_.producer(input.buffer);
      if (producer >= 0 && runs_again(producer) && chain.insert(producer).second)
        open.push_back(producer);
    }
  }
  return chain;
}

std::int64_t Partition::recompute_time(const std::set<int>& calls) const {
  std::int64_t picoseconds = 0;
  for (const int call : calls) picoseconds += of(call).recompute_ps;
  return picoseconds;
}

// Whether a call has to run again if its result is needed and only stored values are there.
bool Partition::runs_again_from(const std::function<bool(int buffer)>& is_stored, int call) const {
  return of(call).sole_writer && !of(call).obstacle &&
         !is_stored(graph_.nodes[call].outputs[0].buffer);
}

// Whether computing the last value again, from stored values, needs the one before.
bool Partition::is_chain(const std::vector<int>& calls,
                         const std::function<bool(int buffer)>& is_stored) const {
  if (calls.size() < 2) return false;
  const int before = calls[calls.size() - 2];
  return chain(calls.back(),
               [&](int call) { return call == before || runs_again_from(is_stored, call); })
      .contains(before);
}

namespace {

// Those at an even distance from the call `from_end` before the last one.
std::vector<int> every_second(const std::vector<int>& calls, std::size_t from_end) {
  std::vector<int> chosen;
  for (std::size_t i = from_end; i < calls.size(); i += 2)
    chosen.push_back(calls[calls.size() - 1 - i]);
  std::ranges::reverse(chosen);
  return chosen;
}

}  // namespace

std::vector<LayerValues> Partition::choices_of(
    std::vector<std::vector<int>> sets, const std::function<bool(int buffer)>& is_stored) const {
  std::vector<LayerValues> choices;
  int chains = 0;
  for (std::vector<int>& set : sets) {
    if (is_chain(set, is_stored)) {
      for (const std::size_t from_end : {1, 0})
        choices.push_back({every_second(set, from_end), chains});
      ++chains;
      continue;
    }
    std::vector<int> but_last(set.begin(), set.end() - 1);
    choices.push_back({std::move(set)});
    if (!but_last.empty()) choices.push_back({std::move(but_last)});
  }
  return choices;
}

namespace {

// The call in the user's code.
const void* site_of(const Node& node) {
  const auto frames = node.site.frames();
  return frames.empty() ? nullptr : frames.front();
}

}  // namespace

// For each call its place among those of its op in a layer. A module is one layer, or has several
// in a loop. What one call in the user's code makes belongs to as many layers as its rarest op has
// calls.
std::vector<int> Partition::places_in_layers() const {
  using Site = std::pair<int, const void*>;  // a module, and a call in the user's code
  std::map<Site, std::map<Op, int>> counts;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (calls_[i].is_forward) ++counts[{node.module, site_of(node)}][node.call.op];
  }
  std::map<std::pair<Site, Op>, int> made;  // so far
  std::vector<int> places(calls_.size(), 0);
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const Node& node = graph_.nodes[i];
    if (!calls_[i].is_forward) continue;
    const Site site = {node.module, site_of(node)};
    const std::map<Op, int>& of_site = counts.at(site);
    int layers = INT_MAX;
    for (const auto& [op, count] : of_site) layers = std::min(layers, count);
    const int count = of_site.at(node.call.op), index = made[{site, node.call.op}]++;
    places[i] = count % layers == 0 ? index % (count / layers) : index;
  }
  return places;
}

// Sets of calls for which `counts` returns true and that correspond to one another.
std::vector<std::vector<int>> Partition::corresponding(
    const std::function<bool(int call)>& counts) const {
  // Modules of different layers have names that differ in numbers only.
  const auto layers = [](std::string module) {
    std::erase_if(module, [](char c) { return c >= '0' && c <= '9'; });
    return module;
  };
  const std::vector<int> places = places_in_layers();
  using Place = std::tuple<std::string, const void*, std::string, int>;
  std::map<Place, std::vector<int>> sets;
  for (int i = 0; i < static_cast<int>(calls_.size()); ++i) {
    const Node& node = graph_.nodes[i];
    if (!of(i).sole_writer || !feeds_backward(i) || !counts(i)) continue;
    sets[{node.module < 0 ? "" : layers(graph_.modules[node.module]), site_of(node),
          op_info(node.call.op).name, places[i]}]
        .push_back(i);
  }
  std::vector<std::vector<int>> all;
  for (auto& [place, set] : sets) all.push_back(std::move(set));
  // Addresses of call sites differ from run to run.
  std::ranges::sort(all, {}, [](const std::vector<int>& set) { return set.front(); });
  return all;
}

std::vector<std::vector<int>> Partition::alike_in_layers(
    const std::function<bool(int buffer)>& is_stored) const {
  constexpr std::int64_t kMostTimes = 2;
  const auto runs_again = [&](int call) { return runs_again_from(is_stored, call); };
  return corresponding([&](int call) {
    return !of(call).obstacle && of(call).mark == Mark::none &&
           is_stored(graph_.nodes[call].outputs[0].buffer) &&
           recompute_time(chain(call, runs_again)) <=
               kMostTimes * time_to_move(2 * of(call).bytes, ceilings_);
  });
}

int Partition::layers() const {
  std::map<std::size_t, std::int64_t> bytes;  // by the number of calls in a set
  for (const std::vector<int>& set : corresponding([](int) { return true; })) {
    for (const int call : set) bytes[set.size()] += of(call).bytes;
  }
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& each) { return each.second; });
  return most == bytes.end() ? 1 : static_cast<int>(most->first);
}

namespace {

// The price of some bytes in picoseconds; `price`: femtoseconds per byte. Saturates, since the sum
// of all capacities must not overflow (MinCut::run).
std::int64_t priced(std::int64_t bytes, std::int64_t price) {
  constexpr double kMost = 1e12;  // a second
  return static_cast<std::int64_t>(
      std::min(static_cast<double>(bytes) * static_cast<double>(price) / 1000, kMost));
}

}  // namespace

bool Partition::is_in_registers(int call, const Objective& objective,
                                const std::vector<int>& segment) const {
  return !objective.decided.empty() && decision(call, objective) == Decision::open &&
         of(call).sole_writer && is_fusable(call) && !is_kept(call, objective, segment);
}

// The calls that run again by a decision: those decided, and calls with results in registers that
// read theirs.
std::vector<bool> Partition::decided_again(const Objective& objective,
                                           const std::vector<int>& segment) const {
  std::vector<bool> again(calls_.size(), false);
  for (int i = 0; i < static_cast<int>(calls_.size()); ++i) {
    again[i] = decision(i, objective) == Decision::recomputed ||
               (is_in_registers(i, objective, segment) &&
                std::ranges::any_of(graph_.nodes[i].inputs, [&](const Value& input) {
                  const int producer = flow_.producer(input.buffer);
                  return producer >= 0 && again[producer];
                }));
  }
  return again;
}

// The network has two vertices per call. The edge from the source to the first one is cut if the
// call runs again, the edge between the two if its results are kept. Unbounded edges lead from
// results that the backward pass reads to the sink, and from a call's operands to the call, since
// running it again needs them. So the capacity of a cut is the cost of whole chains of calls, back
// to the nearest kept values.
std::vector<bool> Partition::cut(const Objective& objective) const {
  const int count = static_cast<int>(calls_.size()), source = 2 * count, sink = source + 1;
  const std::vector<int> segment = segments(objective.segments);
  const std::vector<bool> again = decided_again(objective, segment);
  MinCut network(2 * count + 2);
  for (int i = 0; i < count; ++i) {
    const Facts& facts = of(i);
    if (!facts.sole_writer || !feeds_backward(i)) continue;
    const std::int64_t recompute = objective.least_bytes    ? 0
                                   : objective.traffic_only ? facts.recompute_traffic_ps
                                                            : facts.recompute_ps;
    const Decision decided = decision(i, objective);
    const std::int64_t keep =
        again[i] || is_in_registers(i, objective, segment) ? MinCut::kUnbounded
        : decided == Decision::kept                        ? 0
        : objective.least_bytes                            ? facts.bytes
                                : facts.keep_ps + priced(facts.bytes, objective.price);
    network.add_edge(source, 2 * i,
                     is_kept(i, objective, segment) ? MinCut::kUnbounded : recompute);
    network.add_edge(2 * i, 2 * i + 1, keep);
    const bool is_read = facts.last_backward >= 0 && (objective.decided.empty() || again[i]);
    if (is_read) network.add_edge(2 * i + 1, sink, MinCut::kUnbounded);
    for (const Value& input : graph_.nodes[i].inputs) {
      const int producer = flow_.producer(input.buffer);
      if (producer >= 0 && of(producer).sole_writer)
        network.add_edge(2 * producer + 1, 2 * i, MinCut::kUnbounded);
    }
  }
  // The capacity is finite: no call has two unbounded edges, since a call that cannot run again
  // cannot be marked for recomputation.
  network.run(source, sink);
  std::vector<bool> recomputed(calls_.size(), false);
  for (int i = 0; i < count; ++i) {
    const Facts& facts = of(i);
    recomputed[i] = facts.sole_writer && feeds_backward(i) && !network.is_on_source_side(2 * i);
  }
  return recomputed;
}

}  // namespace brrr::graph
