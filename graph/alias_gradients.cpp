// Gradient buffers outlive the step but are written late. Until then temporaries with earlier live
// ranges may alias them: the gradients of the first layers are written last, so some activations
// of the forward pass fit there.
#include <algorithm>
#include <bit>
#include <map>
#include <ranges>

#include "brrr/graph/plan.h"

namespace brrr::graph {
namespace {

struct ByteRange {
  std::size_t low, high;
  bool overlaps(const ByteRange& other) const { return low < other.high && other.low < high; }
};

// The block of a gradient: the calls that write to its bytes first, and the temporaries that alias
// it.
struct GradientBlock {
  int block = -1;
  std::size_t bytes = 0;
  int last_write = -1;                            // the last of the first writes
  std::vector<std::pair<ByteRange, int>> writes;  // disjoint, in order
  std::vector<std::pair<ByteRange, int>> aliases;
  std::vector<std::size_t> starts;  // where an alias may begin: at each write, after each alias
};

// Live bytes at each call. Finds the largest count while blocks are removed.
class LiveBytesTree {
 public:
  explicit LiveBytesTree(std::size_t calls)
      : leaves_(std::bit_ceil(std::max<std::size_t>(calls, 1))) {
    largest_.resize(2 * leaves_);
    all_.resize(2 * leaves_);
  }
  void add(const LiveRange& range, std::int64_t bytes) {
    add(1, 0, leaves_, std::max(range.first, 0), range.last + 1, bytes);
  }
  // The first call at which the most bytes are live.
  int fullest() const {
    std::size_t node = 1;
    while (node < leaves_) node = 2 * node + (largest_[2 * node] < largest_[2 * node + 1]);
    return static_cast<int>(node - leaves_);
  }

 private:
  // Adds to the calls [from, to) in the subtree of a node that covers [low, high).
  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t from, std::size_t to,
           std::int64_t bytes) {
    if (from >= high || to <= low) return;
    if (from <= low && high <= to) {
      all_[node] += bytes;
      largest_[node] += bytes;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * node, low, middle, from, to, bytes);
    add(2 * node + 1, middle, high, from, to, bytes);
    largest_[node] = all_[node] + std::max(largest_[2 * node], largest_[2 * node + 1]);
  }

  std::size_t leaves_;
  std::vector<std::int64_t> largest_;  // the maximum in each node's subtree, its all_ included
  std::vector<std::int64_t> all_;      // added to every call in a node's subtree
};

class Aliasing {
 public:
  Aliasing(const Graph& graph, const PlanOptions& options, const Flow& flow, Plan& plan)
      : graph_(graph),
        plan_(plan),
        ranges_(live_ranges(graph, options, flow, plan)),
        members_(plan) {
    find_gradients(flow);
    if (gradients_.empty()) return;
    calls_ = calls_of_blocks(graph, plan);
    if (options.lanes) before_ = all_predecessors(without_reuse(graph, options, plan));
  }

  // Repeatedly finds the call at which the most bytes are live, and moves the largest of its
  // temporaries that fits into a gradient's block. Ends when none fits.
  void run() {
    if (gradients_.empty()) return;
    LiveBytesTree live(graph_.nodes.size());
    std::vector<std::pair<std::int64_t, int>> by_size;  // the largest first
    for (std::size_t i = 0; i < graph_.buffers.size(); ++i) {
      const int block = static_cast<int>(i);
      if (!may_move(block)) continue;
      by_size.emplace_back(-bytes_of(block), block);
      live.add(ranges_[i], bytes_of(block));
    }
    std::ranges::sort(by_size);
    const auto blocks = std::views::values(by_size);
    std::vector<int> movable(blocks.begin(), blocks.end());
    while (move_one_at(live.fullest(), movable, live)) continue;
  }

 private:
  // Bounds the time of planning very long steps: beyond it the other temporaries stay in the arena.
  static constexpr std::int64_t kMostComparisons = std::int64_t{1} << 20;

  std::int64_t bytes_of(int block) const {
    return static_cast<std::int64_t>(graph_.buffers[block].bytes);
  }
  bool is_gradient(int block) const { return is_gradient_[block]; }

  void find_gradients(const Flow& flow) {
    is_gradient_.resize(graph_.buffers.size());
    std::vector<bool> returned(graph_.buffers.size());
    for (const Output& output : graph_.outputs) {
      if (output.is_value()) returned[output.value.buffer] = true;
    }
    for (const GradientSlot& slot : graph_.gradients) {
      if (!graph_.owns_gradient(slot)) continue;
      const int buffer = slot.after->value.buffer;
      if (returned[buffer] || plan_.placements[buffer].block != buffer || is_gradient(buffer))
        continue;
      is_gradient_[buffer] = true;
      GradientBlock& gradient = gradients_.emplace_back();
      gradient.block = buffer;
      gradient.bytes = graph_.buffers[buffer].bytes;
    }
    for (GradientBlock& gradient : gradients_) find_writes(gradient, flow);
    std::ranges::stable_sort(gradients_, {}, &GradientBlock::last_write);
  }

  void find_writes(GradientBlock& gradient, const Flow& flow) const {
    std::vector<std::pair<ByteRange, int>> writes;
    members_.for_each(gradient.block, [&](int buffer) {
      const std::size_t offset = plan_.placements[buffer].offset;
      for (const int call : flow.writers(buffer)) {
        if (plan_.elided[call]) continue;
        for (const Value& v : graph_.nodes[call].outputs) {
          if (v.buffer != buffer) continue;
          const Extent extent = extent_of(v.region());
          writes.push_back({{offset + static_cast<std::size_t>(extent.low),
                             offset + static_cast<std::size_t>(extent.high)},
                            call});
        }
      }
    });
    std::ranges::stable_sort(writes, {}, [](const auto& write) { return write.second; });
    std::map<std::size_t, std::pair<std::size_t, int>> first;  // first writes: start to {end, call}
    for (const auto& [range, call] : writes) {
      std::size_t low = range.low;
      auto next = first.upper_bound(low);
      if (next != first.begin()) low = std::max(low, std::prev(next)->second.first);
      for (; low < range.high; low = next->second.first, ++next) {
        const std::size_t high =
            next == first.end() ? range.high : std::min(range.high, next->first);
        if (low < high) {
          first.emplace_hint(next, low, std::pair(high, call));
          gradient.last_write = call;
        }
        if (next == first.end()) break;
      }
    }
    gradient.starts.push_back(0);
    for (const auto& [low, each] : first) {
      gradient.writes.push_back({{low, each.first}, each.second});
      if (aligned(low) != gradient.starts.back()) gradient.starts.push_back(aligned(low));
    }
  }

  bool may_move(int block) const {
    const LiveRange& range = ranges_[block];
    return graph_.is_temporary(block) && plan_.placements[block].block == block &&
           range.first <= range.last && range.last < static_cast<int>(graph_.nodes.size()) &&
           !is_gradient(block);
  }

  // Whether every call that accesses a block precedes this call on all lanes.
  bool is_dead(int block, int call) const {
    if (ranges_[block].last >= call) return false;
    return before_.empty() ||
           std::ranges::all_of(calls_.of(block), [&](int each) { return before_[call].has(each); });
  }

  // Tries gradients in the order of their first write after the block's last use.
  bool move(int block) {
    const std::size_t bytes = graph_.buffers[block].bytes;
    auto gradient =
        std::ranges::upper_bound(gradients_, ranges_[block].last, {}, &GradientBlock::last_write);
    for (; gradient != gradients_.end(); ++gradient) {
      if (++comparisons_ > kMostComparisons) return false;
      if (gradient->bytes < bytes) continue;
      std::vector<std::size_t>& starts = gradient->starts;
      for (const std::size_t start : starts) {
        const ByteRange range{start, start + bytes};
        if (range.high > gradient->bytes) break;
        if (!is_free(*gradient, range, block)) continue;
        gradient->aliases.emplace_back(range, block);
        const auto next = std::ranges::lower_bound(starts, aligned(range.high));
        if (next == starts.end() || *next != aligned(range.high))
          starts.insert(next, aligned(range.high));
        members_.embed(plan_, block, gradient->block, range.low);
        return true;
      }
    }
    return false;
  }

  // A block that fits no gradient will fit none later: gradients only fill up.
  bool move_one_at(int call, std::vector<int>& movable, LiveBytesTree& live) {
    bool moved = false;
    auto block = movable.begin(), kept = block;
    for (; !moved && block != movable.end() && ++comparisons_ <= kMostComparisons; ++block) {
      const LiveRange& range = ranges_[*block];
      if (call < range.first || range.last < call) {
        *kept++ = *block;
      } else if (move(*block)) {
        live.add(range, -bytes_of(*block));
        moved = true;
      }
    }
    movable.erase(kept, block);
    return moved;
  }

  bool is_free(const GradientBlock& gradient, const ByteRange& range, int block) {
    auto write = std::ranges::upper_bound(gradient.writes, range.low, {},
                                          [](const auto& each) { return each.first.high; });
    for (; write != gradient.writes.end() && write->first.low < range.high; ++write) {
      ++comparisons_;
      if (!is_dead(block, write->second)) return false;
    }
    for (const auto& [taken, alias] : gradient.aliases) {
      ++comparisons_;
      if (taken.overlaps(range) && !is_dead(alias, calls_.of(block).front()) &&
          !is_dead(block, calls_.of(alias).front()))
        return false;
    }
    return true;
  }

  const Graph& graph_;
  Plan& plan_;
  std::vector<LiveRange> ranges_;
  Members members_;
  std::vector<GradientBlock> gradients_;
  std::vector<bool> is_gradient_;
  CallLists calls_;              // the calls that access each block
  std::vector<CallSet> before_;  // predecessors of each call; empty: all earlier calls
  std::int64_t comparisons_ = 0;
};

}  // namespace

void alias_gradients(const Graph& graph, const PlanOptions& options, const Flow& flow, Plan& plan) {
  if (!options.lanes || graph.nodes.size() <= kMostCallsInSets)
    Aliasing(graph, options, flow, plan).run();
}

}  // namespace brrr::graph
