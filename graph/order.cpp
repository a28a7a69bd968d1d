// What must wait for what, and which calls may run side by side.
#include <algorithm>
#include <numeric>

#include "brrr/graph/plan.h"

namespace brrr::graph {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Bytes of the arena or of a block of its own, as calls touch them.
class Memory {
 public:
  Memory(const Graph& graph, const Plan& plan) : plan_(plan) {
    touched_.resize(graph.buffers.size() + 1);  // the last is the arena
  }

  // The calls that a call with this access must wait for are added to `after`.
  void wait_for(const Value& value, bool write, std::vector<int>& after) const {
    const auto [space, extent] = place_of(value);
    for (const Touch& touch : touched_[space]) {
      if ((touch.write || write) && touch.extent.low < extent.high &&
          extent.low < touch.extent.high && !are_distinct_parts(*touch.value, value))
        after.push_back(touch.call);
    }
  }
  void touch(const Value& value, bool write, int call) {
    const auto [space, extent] = place_of(value);
    if (extent.low == extent.high) return;
    if (write && value.is_contiguous()) {
      // Whoever comes later waits for this call, which has waited for those.
      std::erase_if(touched_[space], [&, e = extent](const Touch& touch) {
        return touch.call != call && e.low <= touch.extent.low && touch.extent.high <= e.high;
      });
    }
    touched_[space].push_back({&value, extent, call, write});
  }

 private:
  struct Touch {
    const Value* value;
    Extent extent;
    int call;
    bool write;
  };

  // Halves of the rows of one buffer, say: their extents cross, and no byte is in both.
  static bool are_distinct_parts(const Value& one, const Value& other) {
    return one.buffer == other.buffer && !may_overlap(one.region(), other.region());
  }

  std::pair<std::size_t, Extent> place_of(const Value& value) const {
    const Place& place = plan_.places[at(value.buffer)];
    const std::int64_t in_arena = plan_.in_arena[at(place.root)];
    const std::int64_t base =
        static_cast<std::int64_t>(place.offset) + std::max<std::int64_t>(in_arena, 0);
    Extent extent = extent_of(value.region());
    extent.low += base;
    extent.high += base;
    return {in_arena >= 0 ? touched_.size() - 1 : at(place.root), extent};
  }

  const Plan& plan_;
  std::vector<std::vector<Touch>> touched_;
};

}  // namespace

void find_order(const Graph& graph, const PlanOptions& options, Plan& plan) {
  const std::size_t count = graph.nodes.size();
  plan.after.assign(count, {});
  if (!options.lanes) {
    int last = -1;
    for (std::size_t i = 0; i < count; ++i) {
      if (plan.dropped[i]) continue;
      if (last >= 0) plan.after[i] = {last};
      last = static_cast<int>(i);
    }
    return;
  }
  Memory memory(graph, plan);
  // Longer graphs keep needless edges.
  std::vector<CallSet> before(count <= kMostCallsInSets ? count : 0, CallSet(count));
  for (std::size_t i = 0; i < count; ++i) {
    if (plan.dropped[i]) continue;
    const Node& node = graph.nodes[i];
    std::vector<int> after;
    for (const Value& input : node.inputs) memory.wait_for(input, false, after);
    for (const Value& output : node.outputs) memory.wait_for(output, true, after);
    std::ranges::sort(after, std::greater{});
    after.erase(std::unique(after.begin(), after.end()), after.end());
    if (!before.empty()) {
      CallSet& mine = before[i];
      std::erase_if(after, [&](int call) {
        if (mine.has(call)) return true;
        mine.add(before[at(call)]);
        mine.add(call);
        return false;
      });
    }
    plan.after[i] = after;
    for (const Value& input : node.inputs) memory.touch(input, false, static_cast<int>(i));
    for (const Value& output : node.outputs) memory.touch(output, true, static_cast<int>(i));
  }
}

Plan without_reuse(const Graph& graph, const PlanOptions& options, Plan plan) {
  plan.in_arena.assign(graph.buffers.size(), -1);
  find_order(graph, options, plan);
  return plan;
}

std::vector<CallSet> all_before(const Plan& plan) {
  std::vector<CallSet> before(plan.after.size(), CallSet(plan.after.size()));
  for (std::size_t i = 0; i < plan.after.size(); ++i) {
    for (const int call : plan.after[i]) {
      before[i].add(before[at(call)]);
      before[i].add(call);
    }
  }
  return before;
}

int longest_chain(const Plan& plan) {
  std::vector<int> length(plan.after.size());
  int longest = 0;
  for (std::size_t i = 0; i < plan.after.size(); ++i) {
    for (const int call : plan.after[i]) length[i] = std::max(length[i], length[at(call)]);
    longest = std::max(longest, ++length[i]);
  }
  return longest;
}

namespace {

constexpr int kMostLanes = 16;
// A call over as many elements as this fills the device by itself: beside another it wins nothing.
constexpr std::int64_t kFillsDevice = std::int64_t{1} << 19;

bool fills_device(const Node& node) {
  std::int64_t most = 0;
  for (const Value& v : node.inputs) most = std::max(most, v.numel());
  for (const Value& v : node.outputs) most = std::max(most, v.numel());
  return most >= kFillsDevice;
}

}  // namespace

// A call goes on in the lane of a call that it waits for, if that is the lane's last one; the one
// with the longest way behind it first. What waits only for calls that others have gone on from
// takes a lane whose last call it need not wait for longer than it must, or a new one. The first
// call of all is waited for by the others, so that a graph has one root.
void choose_lanes(const Graph& graph, Plan& plan) {
  const std::size_t count = graph.nodes.size();
  plan.lane.assign(count, 0);
  std::vector<int> depth(count);
  std::vector<int> tail;  // the last call of each lane
  int first = -1;
  for (std::size_t i = 0; i < count; ++i) {
    if (plan.dropped[i]) continue;
    std::vector<int>& after = plan.after[i];
    if (first < 0) {
      first = static_cast<int>(i);
    } else if (after.empty()) {
      after.push_back(first);
    }
    for (int call : after) depth[i] = std::max(depth[i], depth[at(call)] + 1);
    const bool fills = fills_device(graph.nodes[i]);
    int lane = fills ? 0 : -1;
    for (int call : fills ? std::vector<int>() : after) {
      const int of = plan.lane[at(call)];
      if (tail[at(of)] != call) continue;
      if (lane < 0 || depth[at(call)] > depth[at(tail[at(lane)])]) lane = of;
    }
    if (lane < 0) {
      // The side lane whose last call is the earliest; none waits longer than it must there.
      for (int l = 1; l < static_cast<int>(tail.size()); ++l) {
        if (depth[at(tail[at(l)])] < depth[i] &&
            (lane < 0 || depth[at(tail[at(l)])] < depth[at(tail[at(lane)])]))
          lane = l;
      }
      if (lane < 0 && static_cast<int>(tail.size()) < kMostLanes) {
        lane = static_cast<int>(tail.size());
        tail.push_back(-1);
      }
      if (lane < 0) {
        lane = static_cast<int>(
            std::ranges::min_element(tail, {}, [&](int call) { return depth[at(call)]; }) -
            tail.begin());
      }
    }
    while (static_cast<int>(tail.size()) <= lane) tail.push_back(-1);
    plan.lane[i] = lane;
    if (tail[at(lane)] >= 0) depth[i] = std::max(depth[i], depth[at(tail[at(lane)])] + 1);
    tail[at(lane)] = static_cast<int>(i);
  }
  plan.lanes = std::max<int>(1, static_cast<int>(tail.size()));
}

}  // namespace brrr::graph
