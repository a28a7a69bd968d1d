// The memory of gradients that stay after a step is free until the step writes them: what lives
// before that may lie there. The gradients of the first layers come last, so some of what the
// forward pass leaves for the backward pass fits.
#include <algorithm>
#include <numeric>

#include "brrr/graph/plan.h"

namespace brrr::graph {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

struct Range {
  std::size_t low, high;
  bool overlaps(const Range& other) const { return low < other.high && other.low < high; }
};

// A gradient's block: what writes it, and what has been put there.
struct Room {
  int root;
  std::size_t bytes;
  std::vector<std::pair<Range, int>> writes;  // and the call
  std::vector<std::pair<Range, int>> guests;  // and their root
};

class Guests {
 public:
  Guests(const Graph& graph, const PlanOptions& options, Plan& plan)
      : graph_(graph), plan_(plan), lives_(lives_of(graph, plan, options)) {
    find_rooms();
    if (rooms_.empty()) return;
    calls_ = calls_of_roots(graph, plan);
    before_ = all_before(without_reuse(graph, options, plan));
  }

  // Moves what lives when most does, the largest first, until nothing of that fits.
  void move() {
    if (rooms_.empty()) return;
    std::vector<int> movable;
    for (std::size_t i = 0; i < graph_.buffers.size(); ++i) {
      if (may_move(static_cast<int>(i))) movable.push_back(static_cast<int>(i));
    }
    std::ranges::stable_sort(movable, std::greater{},
                             [&](int root) { return graph_.buffers[at(root)].bytes; });
    for (;;) {
      const int when = fullest_call(movable);
      const auto moved = std::ranges::find_if(movable, [&](int root) {
        const Life& life = lives_[at(root)];
        return life.from <= when && when <= life.to && find_room(root);
      });
      if (moved == movable.end()) return;
      movable.erase(moved);
    }
  }

 private:
  void find_rooms() {
    std::vector<bool> returned(graph_.buffers.size());
    for (const Output& output : graph_.outputs) {
      if (output.value.buffer >= 0) returned[at(output.value.buffer)] = true;
    }
    for (const LeafGradient& gradient : graph_.gradients) {
      const int root = gradient.value.buffer;
      if (!gradient.is_made() || returned[at(root)] || plan_.places[at(root)].root != root ||
          std::ranges::find(rooms_, root, &Room::root) != rooms_.end())
        continue;
      rooms_.push_back({root, graph_.buffers[at(root)].bytes, {}, {}});
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (plan_.dropped[i]) continue;
      for (const Value& v : graph_.nodes[i].outputs) {
        const Place& place = plan_.places[at(v.buffer)];
        const auto room = std::ranges::find(rooms_, place.root, &Room::root);
        if (room == rooms_.end()) continue;
        const Extent extent = extent_of(v.region());
        room->writes.push_back({{place.offset + static_cast<std::size_t>(extent.low),
                                 place.offset + static_cast<std::size_t>(extent.high)},
                                static_cast<int>(i)});
      }
    }
  }

  bool may_move(int root) const {
    const Life& life = lives_[at(root)];
    return graph_.is_temporary(root) && plan_.places[at(root)].root == root &&
           life.from <= life.to && life.to < static_cast<int>(graph_.nodes.size()) &&
           std::ranges::find(rooms_, root, &Room::root) == rooms_.end();
  }

  int fullest_call(const std::vector<int>& movable) const {
    std::vector<std::int64_t> change(graph_.nodes.size() + 1);
    for (const int root : movable) {
      const auto bytes = static_cast<std::int64_t>(graph_.buffers[at(root)].bytes);
      change[at(std::max(lives_[at(root)].from, 0))] += bytes;
      change[at(lives_[at(root)].to) + 1] -= bytes;
    }
    std::partial_sum(change.begin(), change.end(), change.begin());
    return static_cast<int>(std::ranges::max_element(change) - change.begin());
  }

  // Whether all that touches a root is over when this call starts, whatever runs side by side.
  bool is_over(int root, int call) const {
    return std::ranges::all_of(calls_[at(root)],
                               [&](int each) { return before_[at(call)].has(each); });
  }

  bool find_room(int root) {
    const std::size_t bytes = graph_.buffers[at(root)].bytes;
    for (Room& room : rooms_) {
      std::vector<std::size_t> starts = {0};
      for (const auto& [range, call] : room.writes) starts.push_back(range.low);
      for (const auto& [range, guest] : room.guests) starts.push_back(range.high);
      std::ranges::sort(starts);
      for (const std::size_t start : starts) {
        const std::size_t low = aligned(start);
        const Range range{low, low + bytes};
        if (range.high > room.bytes) break;
        if (!is_free(room, range, root)) continue;
        room.guests.emplace_back(range, root);
        put(plan_, root, room.root, low);
        return true;
      }
    }
    return false;
  }

  bool is_free(const Room& room, const Range& range, int root) const {
    for (const auto& [written, call] : room.writes) {
      if (written.overlaps(range) && !is_over(root, call)) return false;
    }
    for (const auto& [taken, guest] : room.guests) {
      if (taken.overlaps(range) && !is_over(guest, calls_[at(root)].front()) &&
          !is_over(root, calls_[at(guest)].front()))
        return false;
    }
    return true;
  }

  const Graph& graph_;
  Plan& plan_;
  std::vector<Life> lives_;
  std::vector<Room> rooms_;
  std::vector<std::vector<int>> calls_;  // that touch a root
  std::vector<CallSet> before_;
};

}  // namespace

void place_in_gradients(const Graph& graph, const PlanOptions& options, Plan& plan) {
  if (graph.nodes.size() <= kMostCallsInSets) Guests(graph, options, plan).move();
}

}  // namespace brrr::graph
