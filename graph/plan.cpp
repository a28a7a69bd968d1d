#include "brrr/graph/plan.h"

#include <algorithm>
#include <numeric>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/rename.h"

namespace brrr::graph {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// The last call that touches each buffer.
std::vector<int> last_uses(const Graph& graph) {
  std::vector<int> last(graph.buffers.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Value& v : graph.nodes[i].inputs) last[at(v.buffer)] = static_cast<int>(i);
    for (const Value& v : graph.nodes[i].outputs) last[at(v.buffer)] = static_cast<int>(i);
  }
  return last;
}

bool is_whole(const Graph& graph, const Value& value) {
  return value.offset == 0 && value.is_contiguous() &&
         value.bytes() == graph.buffers[at(value.buffer)].bytes;
}

bool is_root(const Plan& plan, int buffer) { return plan.places[at(buffer)].root == buffer; }

}  // namespace

void put(Plan& plan, int root, int into, std::size_t offset) {
  for (Place& place : plan.places) {
    if (place.root == root) place = {into, place.offset + offset};
  }
}

std::vector<std::vector<int>> calls_of_roots(const Graph& graph, const Plan& plan) {
  std::vector<std::vector<int>> calls(graph.buffers.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (plan.dropped[i]) continue;
    const auto touch = [&](const Value& v) {
      calls[at(plan.places[at(v.buffer)].root)].push_back(static_cast<int>(i));
    };
    for (const Value& v : graph.nodes[i].inputs) touch(v);
    for (const Value& v : graph.nodes[i].outputs) touch(v);
  }
  return calls;
}

// A pointwise result may take the memory of an operand that nobody reads again.
void place_results_in_operands(const Graph& graph, Plan& plan) {
  const std::vector<int> last = last_uses(graph);
  const std::vector<bool> results = results_of(graph);
  std::vector<int> end(last);  // of all that lies in a root
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (op_info(node.call.op).kind != OpKind::pointwise || node.call.in_place) continue;
    const Value& out = node.outputs[0];
    if (!graph.is_temporary(out.buffer) || results[at(out.buffer)] || !is_whole(graph, out))
      continue;
    for (const Value& in : node.inputs) {
      const int root = plan.places[at(in.buffer)].root;
      const bool free = graph.is_temporary(in.buffer) && !results[at(root)] &&
                        plan.places[at(in.buffer)].offset == 0 &&
                        end[at(root)] == static_cast<int>(i);
      const bool fits = in.shape == out.shape && is_whole(graph, in) &&
                        size_of(in.dtype) == size_of(out.dtype) &&
                        graph.buffers[at(root)].bytes == graph.buffers[at(out.buffer)].bytes;
      // Another operand must not be another part of the same memory.
      const auto elsewhere = [&](const Value& other) {
        return plan.places[at(other.buffer)].root != root || other == in;
      };
      if (!free || !fits || !std::ranges::all_of(node.inputs, elsewhere)) continue;
      plan.places[at(out.buffer)] = {root, 0};
      end[at(root)] = last[at(out.buffer)];
      break;
    }
  }
}

// What is joined to one tensor may be made in its place in it.
void place_parts_in_joined(const Graph& graph, Plan& plan) {
  const std::vector<bool> results = results_of(graph);
  const std::vector<int> writes = writes_of(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.call.op != Op::cat || node.call.in_place) continue;
    const Value& out = node.outputs[0];
    if (!graph.is_temporary(out.buffer) || writes[at(out.buffer)] != 1 ||
        !is_root(plan, out.buffer) || !is_whole(graph, out))
      continue;
    const std::int64_t dim = node.call.attrs[0].i();
    // Parts must follow one another in memory: all dimensions before are of size 1.
    bool fits = std::all_of(out.shape.begin(), out.shape.begin() + dim,
                            [](std::int64_t d) { return d == 1; });
    std::vector<std::pair<int, std::size_t>> parts;
    std::size_t offset = 0;
    for (const Value& in : node.inputs) {
      const int root = plan.places[at(in.buffer)].root;
      fits &= graph.is_temporary(in.buffer) && in.offset == 0 && in.is_contiguous() &&
              plan.places[at(in.buffer)].offset == 0 && root != out.buffer && !results[at(root)] &&
              graph.buffers[at(root)].kind == Buffer::Kind::temporary &&
              graph.buffers[at(root)].bytes == in.bytes() && offset % kAlignment == 0;
      for (const auto& [other, unused] : parts) fits &= other != root;
      parts.emplace_back(root, offset);
      offset += in.bytes();
    }
    // Whoever writes to a part after the join would write to the joined tensor.
    for (std::size_t later = i + 1; fits && later < graph.nodes.size(); ++later) {
      for (const Value& written : graph.nodes[later].outputs) {
        const int root = plan.places[at(written.buffer)].root;
        for (const auto& [part, unused] : parts) fits &= root != part;
        // Nor may the joined one be written while parts are read.
        fits &= root != out.buffer;
      }
    }
    if (!fits) continue;
    for (const auto& [root, where] : parts) put(plan, root, out.buffer, where);
    plan.dropped[i] = true;
  }
}

std::vector<Life> lives_of(const Graph& graph, const Plan& plan, const PlanOptions& options) {
  const int end = static_cast<int>(graph.nodes.size());
  std::vector<Life> lives(graph.buffers.size(), Life{end, -1});
  const auto touch = [&](int buffer, int when) {
    Life& life = lives[at(plan.places[at(buffer)].root)];
    life.from = std::min(life.from, when);
    life.to = std::max(life.to, when);
  };
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    if (graph.buffers[i].kind == Buffer::Kind::input && options.inputs_in_arena)
      touch(static_cast<int>(i), -1);
  }
  for (int i = 0; i < end; ++i) {
    if (plan.dropped[at(i)]) continue;
    for (const Value& v : graph.nodes[at(i)].inputs) touch(v.buffer, i);
    for (const Value& v : graph.nodes[at(i)].outputs) touch(v.buffer, i);
  }
  for (const Output& output : graph.outputs) {
    if (output.value.buffer >= 0) touch(output.value.buffer, end);
  }
  for (const LeafGradient& gradient : graph.gradients) {
    if (gradient.value.buffer >= 0) touch(gradient.value.buffer, end);
  }
  // An argument that the step writes to goes back to the caller at the end.
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    if (graph.buffers[i].kind != Buffer::Kind::input || !options.inputs_in_arena) continue;
    for (const Node& node : graph.nodes) {
      for (const Value& v : node.outputs) {
        if (v.buffer == static_cast<int>(i)) touch(v.buffer, end);
      }
    }
  }
  return lives;
}

namespace {

struct Block {
  int root;
  std::size_t bytes;
  Life life;
};

bool at_once(const Life& a, const Life& b) { return a.from <= b.to && b.from <= a.to; }

// Puts blocks one by one into the lowest gap that is free as long as they live; returns the arena's
// bytes.
std::size_t first_fit(std::span<const Block> blocks, const KeptApart& apart,
                      std::vector<std::int64_t>& offsets) {
  std::vector<const Block*> placed;  // by offset
  std::size_t arena = 0;
  for (const Block& block : blocks) {
    std::size_t offset = 0;
    for (const Block* other : placed) {
      if (!at_once(block.life, other->life)) {
        const bool earlier = block.life.to < other->life.from;
        if (!apart ||
            !apart(earlier ? block.root : other->root, earlier ? other->root : block.root))
          continue;
      }
      const auto low = static_cast<std::size_t>(offsets[at(other->root)]);
      if (offset + block.bytes <= low) break;
      offset = std::max(offset, low + other->bytes);
    }
    offsets[at(block.root)] = static_cast<std::int64_t>(offset);
    const auto where =
        std::ranges::upper_bound(placed, static_cast<std::int64_t>(offset), {},
                                 [&](const Block* other) { return offsets[at(other->root)]; });
    placed.insert(where, &block);
    arena = std::max(arena, offset + block.bytes);
  }
  return arena;
}

std::size_t most_at_once(std::span<const Block> blocks, int end) {
  std::vector<std::int64_t> change(at(end) + 3);
  for (const Block& block : blocks) {
    change[at(block.life.from + 1)] += static_cast<std::int64_t>(block.bytes);
    change[at(block.life.to + 2)] -= static_cast<std::int64_t>(block.bytes);
  }
  std::int64_t live = 0, most = 0;
  for (std::int64_t c : change) most = std::max(most, live += c);
  return static_cast<std::size_t>(most);
}

}  // namespace

// Large blocks first leaves little waste; so does, for stacks of layers, the order of birth. The
// better of the two is taken.
void lay_out_arena(const Graph& graph, const PlanOptions& options, const KeptApart& apart,
                   Plan& plan) {
  const std::vector<Life> lives = lives_of(graph, plan, options);
  const std::vector<bool> results = results_of(graph);
  std::vector<bool> own(graph.buffers.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool kept = results[i] && !options.outputs_in_arena;
    const bool outside = graph.buffers[i].kind == Buffer::Kind::captured ||
                         (graph.buffers[i].kind == Buffer::Kind::input && !options.inputs_in_arena);
    if (kept || outside) own[at(plan.places[i].root)] = true;
  }
  for (const LeafGradient& gradient : graph.gradients) {
    if (gradient.is_made()) own[at(plan.places[at(gradient.value.buffer)].root)] = true;
  }
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const int root = static_cast<int>(i);
    if (!is_root(plan, root) || own[i] || lives[i].to < lives[i].from) continue;
    const Buffer& buffer = graph.buffers[i];
    blocks.push_back(
        {root, aligned(std::max<std::size_t>(buffer.phase + buffer.bytes, 1)), lives[i]});
  }
  plan.least_bytes = most_at_once(blocks, static_cast<int>(graph.nodes.size()));
  std::vector<std::int64_t> by_size(graph.buffers.size(), -1), by_birth(by_size);
  std::ranges::stable_sort(blocks, std::greater{}, &Block::bytes);
  const std::size_t size_bytes = first_fit(blocks, apart, by_size);
  std::ranges::stable_sort(blocks, std::less{}, [](const Block& b) { return b.life.from; });
  const std::size_t birth_bytes = first_fit(blocks, apart, by_birth);
  plan.arena_bytes = std::min(size_bytes, birth_bytes);
  plan.in_arena = size_bytes <= birth_bytes ? by_size : by_birth;
}

namespace {

// Memory that is used again makes the later calls wait for the earlier ones. Where that makes a
// much longer chain of what could run side by side, memory is used again only by calls that come
// after the earlier ones anyway, if it costs no more than this.
constexpr std::size_t kMostForIndependence = std::size_t{16} << 20;

void keep_independent(const Graph& graph, const PlanOptions& options, Plan& plan) {
  if (!options.lanes || graph.nodes.size() > kMostCallsInSets) return;
  const Plan free = without_reuse(graph, options, plan);
  if (longest_chain(plan) * 4 <= longest_chain(free) * 5) return;
  const std::vector<CallSet> before = all_before(free);
  const std::vector<std::vector<int>> calls = calls_of_roots(graph, plan);
  Plan wider = plan;
  lay_out_arena(
      graph, options,
      [&](int earlier, int later) {
        if (calls[at(later)].empty()) return true;
        const CallSet& known = before[at(calls[at(later)].front())];
        return !std::ranges::all_of(calls[at(earlier)], [&](int call) { return known.has(call); });
      },
      wider);
  if (wider.arena_bytes > plan.arena_bytes + kMostForIndependence) return;
  find_order(graph, options, wider);
  plan = std::move(wider);
}

}  // namespace

Plan make_plan(const Graph& graph, const PlanOptions& options) {
  Plan plan;
  plan.places.resize(graph.buffers.size());
  for (std::size_t i = 0; i < plan.places.size(); ++i)
    plan.places[i] = {static_cast<int>(i), graph.buffers[i].phase};
  plan.dropped.assign(graph.nodes.size(), false);
  place_results_in_operands(graph, plan);
  place_parts_in_joined(graph, plan);
  place_in_gradients(graph, options, plan);
  lay_out_arena(graph, options, {}, plan);
  find_order(graph, options, plan);
  keep_independent(graph, options, plan);
  choose_lanes(graph, plan);
  return plan;
}

}  // namespace brrr::graph
