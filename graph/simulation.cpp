// Computes where the values of a planned graph are, and which of them are live at its peak.
#include <algorithm>
#include <map>

#include "brrr/graph/rematerialize.h"

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

// Bytes of temporaries that alias gradients, at each call. Operands of an elided concatenation are
// parts of the gradient itself and do not count.
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
      Alias all = aliases[i++];  // joined with aliases that overlap in time at the same offset
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

// Sets where each buffer is, and which buffers are live at the peak.
void find_places(const Graph& graph, const Plan& plan, Simulation& simulation) {
  const Flow flow(graph);
  const int buffers = static_cast<int>(graph.buffers.size());
  const std::size_t calls = graph.nodes.size();
  std::vector<bool> is_gradient(graph.buffers.size());
  for (const GradientSlot& slot : graph.gradients) {
    if (graph.owns_gradient(slot)) is_gradient[plan.placement_of(slot.after->value).block] = true;
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

}  // namespace

void describe_memory(const Graph& graph, const PlanOptions& options, const Plan& plan,
                     Simulation& simulation) {
  simulation.live = live_bytes(graph, options, plan);
  find_places(graph, plan, simulation);
}

std::size_t Simulation::most_in_gradients() const {
  return in_gradients.empty() ? 0 : std::ranges::max(in_gradients);
}

}  // namespace brrr::graph
