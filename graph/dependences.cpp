// Finds the dependences between calls, by the bytes that they access in planned memory and by their
// effects, and assigns calls to lanes.
#include <algorithm>
#include <map>

#include "brrr/graph/flow_dependences.h"
#include "brrr/graph/plan.h"

namespace brrr::graph {
namespace {

// The bytes of one block, or of the arena, cut into pieces where accesses begin and end. Each piece
// lists the accesses that a later access may depend on.
class AccessedBytes {
 public:
  struct PastAccess {
    const Value* value;
    int call;
  };

  // Adds the calls that this access depends on to `found`, then records the access. A contiguous
  // write replaces all earlier accesses of its bytes: later calls depend on the write, which itself
  // depends on these.
  void access(const Value& value, const Extent& extent, bool write, int call,
              std::vector<int>& found) {
    if (extent.low == extent.high) return;
    auto piece = cut(extent.low);
    const auto end = cut(extent.high);
    const bool replaces = write && value.is_contiguous();
    for (; piece != end; ++piece) {
      Piece& of = piece->second;
      collect(of.writes, value, found);
      if (write) collect(of.reads, value, found);
      if (replaces) of = {};
      (write ? of.writes : of.reads).push_back({&value, call});
    }
    if (replaces) join(extent);
  }

 private:
  struct Piece {
    std::vector<PastAccess> writes, reads;
  };
  using Pieces = std::map<std::int64_t, Piece>;  // by first byte; the last one has no end

  Pieces::iterator cut(std::int64_t byte) {
    auto after = pieces_.upper_bound(byte);
    const auto before = std::prev(after);
    return before->first == byte ? before : pieces_.emplace_hint(after, byte, before->second);
  }

  // Joins the pieces that a call has overwritten.
  void join(const Extent& extent) {
    pieces_.erase(std::next(pieces_.find(extent.low)), pieces_.find(extent.high));
  }

  static void collect(const std::vector<PastAccess>& accesses, const Value& value,
                      std::vector<int>& found) {
    for (const PastAccess& access : accesses) {
      if (!are_distinct_parts(*access.value, value)) found.push_back(access.call);
    }
  }

  // Whether two views of a buffer share no byte although their extents overlap: the left and right
  // halves of its rows, for example.
  static bool are_distinct_parts(const Value& one, const Value& other) {
    return one.buffer == other.buffer && !may_overlap(one.region(), other.region());
  }

  Pieces pieces_{{INT64_MIN, {}}};
};

// The accesses of a planned graph's calls so far, by address.
class AccessHistory {
 public:
  AccessHistory(const Graph& graph, const Plan& plan)
      : plan_(plan), spaces_(graph.buffers.size() + 1) {}

  void access(const Value& value, bool write, int call, std::vector<int>& found) {
    const Placement& placement = plan_.placement_of(value);
    const std::int64_t in_arena = plan_.arena_offset[placement.block];
    const std::int64_t base =
        static_cast<std::int64_t>(placement.offset) + std::max<std::int64_t>(in_arena, 0);
    Extent extent = extent_of(value.region());
    if (extent.low == extent.high) return;
    extent.low += base;
    extent.high += base;
    (in_arena >= 0 ? spaces_.back() : spaces_[placement.block])
        .access(value, extent, write, call, found);
  }

 private:
  const Plan& plan_;
  std::vector<AccessedBytes> spaces_;  // of each block outside of the arena; the last is the arena
};

void run_in_order(Plan& plan) {
  int last = -1;
  for (std::size_t i = 0; i < plan.predecessors.size(); ++i) {
    if (plan.elided[i]) continue;
    if (last >= 0) plan.predecessors[i] = {last};
    last = static_cast<int>(i);
  }
}

}  // namespace

void find_dependences(const Graph& graph, const PlanOptions& options, Plan& plan) {
  const std::size_t count = graph.nodes.size();
  plan.predecessors.assign(count, {});
  if (!options.lanes) return run_in_order(plan);
  AccessHistory history(graph, plan);
  EffectOrder effects(graph);
  // Drops edges that follow from other edges. Graphs too long for sets keep all edges.
  std::vector<CallSet> before(count <= kMostCallsInSets ? count : 0, CallSet(count));
  for (std::size_t i = 0; i < count; ++i) {
    if (plan.elided[i]) continue;
    const Node& node = graph.nodes[i];
    const int call = static_cast<int>(i);
    std::vector<int>& direct = plan.predecessors[i];
    const bool writes_inputs = has_unknown_effect(node);
    for (const Value& input : node.inputs) history.access(input, writes_inputs, call, direct);
    for (const Value& output : node.outputs) history.access(output, true, call, direct);
    effects.add(call, direct);
    std::ranges::sort(direct, std::greater{});
    direct.erase(std::unique(direct.begin(), direct.end()), direct.end());
    std::erase(direct, call);
    if (before.empty()) continue;
    std::erase_if(direct, [&, &all = before[i]](int other) {
      if (all.has(other)) return true;
      all.add(before[other]);
      all.add(other);
      return false;
    });
  }
}

Plan without_reuse(const Graph& graph, const PlanOptions& options, Plan plan) {
  plan.arena_offset.assign(graph.buffers.size(), -1);
  find_dependences(graph, options, plan);
  return plan;
}

std::vector<CallSet> all_predecessors(const Plan& plan) {
  const std::size_t count = plan.predecessors.size();
  std::vector<CallSet> before(count, CallSet(count));
  for (std::size_t i = 0; i < count; ++i) {
    for (const int call : plan.predecessors[i]) {
      before[i].add(before[call]);
      before[i].add(call);
    }
  }
  return before;
}

namespace {

constexpr int kMostLanes = 16;
// A call over so many elements fills the device, so running it concurrently gains nothing.
constexpr std::int64_t kFillsDevice = std::int64_t{1} << 19;

bool fills_device(const Node& node) {
  const auto is_large = [](const Value& v) { return v.numel() >= kFillsDevice; };
  return std::ranges::any_of(node.inputs, is_large) || std::ranges::any_of(node.outputs, is_large);
}

class LaneAssignment {
 public:
  LaneAssignment(const Graph& graph, Plan& plan) : graph_(graph), plan_(plan) {
    plan.lane.assign(graph.nodes.size(), 0);
    depth_.resize(graph.nodes.size());
    find_lane_successors();
  }

  void choose(int call) {
    std::vector<int>& direct = plan_.predecessors[call];
    // Makes every other call depend on an earlier one: launching a graph with many source nodes
    // costs the host more.
    if (first_ < 0) {
      first_ = call;
    } else if (direct.empty()) {
      direct.push_back(call_before(call));
    }
    int& depth = depth_[call];
    for (int other : direct) depth = std::max(depth, depth_[other] + 1);
    const bool fills = fills_device(graph_.nodes[call]);
    int lane = fills ? 0 : lane_to_continue(call, direct);
    if (lane < 0) lane = idle_lane(depth);
    if (lane < 0) lane = another_lane();
    if (lane >= static_cast<int>(last_.size())) last_.resize(lane + 1, -1);
    plan_.lane[call] = lane;
    int& last = last_[lane];
    if (last >= 0) depth = std::max(depth, depth_[last] + 1);
    last = call;
  }
  int count() const { return std::max<int>(1, static_cast<int>(last_.size())); }

 private:
  // The predecessor of a call without dependences: the last call of a side lane, if that lengthens
  // no chain of dependences; else the first call of the step. A new lane would delay the kernel
  // that follows the fork, which could no longer start early.
  int call_before(int call) const {
    for (std::size_t l = 1; l < last_.size(); ++l) {
      if (depth_[last_[l]] + 1 + height_[call] <= longest_) return last_[l];
    }
    return first_;
  }

  // The lane of a call is continued by the successor with the longest chain of calls after it,
  // since a kernel starts soonest after the previous one of its lane. Among equals it is the last
  // one, which more of the later calls depend on.
  void find_lane_successors() {
    const std::size_t count = graph_.nodes.size();
    height_.assign(count, 0);
    lane_successor_.assign(count, -1);
    for (std::size_t i = count; i-- > 0;) {
      for (const int before : plan_.predecessors[i]) {
        height_[before] = std::max(height_[before], height_[i] + 1);
        longest_ = std::max(longest_, height_[before]);
        int& next = lane_successor_[before];
        if (next < 0 || height_[i] > height_[next]) next = static_cast<int>(i);
      }
    }
  }

  int depth_of_last(int lane) const { return depth_[last_[lane]]; }

  // The lane of the deepest predecessor that is the last call of its lane and whose lane this call
  // continues.
  int lane_to_continue(int call, const std::vector<int>& direct) const {
    int lane = -1;
    for (const int before : direct) {
      const int of = plan_.lane[before];
      if (lane_successor_[before] == call && last_[of] == before &&
          (lane < 0 || depth_[before] > depth_of_last(lane)))
        lane = of;
    }
    return lane;
  }

  // The side lane that has been idle for longest. Its last call must be less deep than this one, so
  // that the call does not wait longer there.
  int idle_lane(int depth) const {
    int lane = -1;
    for (int l = 1; l < static_cast<int>(last_.size()); ++l) {
      if (depth_of_last(l) < depth && (lane < 0 || depth_of_last(l) < depth_of_last(lane)))
        lane = l;
    }
    return lane;
  }

  // A new lane; if there are kMostLanes, the lane with the least deep last call.
  int another_lane() const {
    const int count = static_cast<int>(last_.size());
    if (count < kMostLanes) return count;
    int lane = 0;
    for (int l = 1; l < count; ++l) {
      if (depth_of_last(l) < depth_of_last(lane)) lane = l;
    }
    return lane;
  }

  const Graph& graph_;
  Plan& plan_;
  std::vector<int> depth_;           // of each call: the longest chain of predecessors
  std::vector<int> last_;            // the last call of each lane
  std::vector<int> lane_successor_;  // of each call: the one that may continue its lane
  std::vector<int> height_;          // of each call: the longest chain of successors
  int longest_ = 0;                  // of them
  int first_ = -1;
};

}  // namespace

// A call continues the lane of a predecessor that has it as lane successor. Other calls take an
// idle lane, or open a new one.
void choose_lanes(const Graph& graph, Plan& plan) {
  LaneAssignment lanes(graph, plan);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!plan.elided[i]) lanes.choose(static_cast<int>(i));
  }
  plan.lanes = lanes.count();
}

}  // namespace brrr::graph
