// Assigns buffers to blocks, and blocks to offsets in the arena.
#include "brrr/graph/plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <queue>

#include "brrr/dispatch/op_info.h"

namespace brrr::graph {
namespace {

bool is_block(const Plan& plan, int buffer) { return plan.placements[buffer].block == buffer; }

}  // namespace

Members::Members(const Plan& plan)
    : first_(plan.placements.size(), -1), last_(first_), next_(first_) {
  for (std::size_t i = 0; i < plan.placements.size(); ++i)
    append(plan.placements[i].block, static_cast<int>(i));
}

void Members::append(int block, int buffer) {
  (first_[block] < 0 ? first_[block] : next_[last_[block]]) = buffer;
  last_[block] = buffer;
}

void Members::embed(Plan& plan, int block, int into, std::size_t offset) {
  for_each(block, [&](int buffer) {
    Placement& place = plan.placements[buffer];
    place = {into, place.offset + offset};
  });
  append(into, first_[block]);
  last_[into] = last_[block];
  first_[block] = -1;
}

CallLists calls_of_blocks(const Graph& graph, const Plan& plan) {
  std::vector<std::pair<int, int>> touches;  // block and call
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (plan.elided[i]) continue;
    for (const auto values : {&Node::inputs, &Node::outputs}) {
      for (const Value& v : graph.nodes[i].*values)
        touches.emplace_back(plan.placement_of(v).block, static_cast<int>(i));
    }
  }
  return CallLists(graph.buffers.size(), touches);
}

namespace {

// Whether `out` may alias an operand of its shape: a kernel must read an element of the operand
// before it writes that element of `out`, in the same thread. Kernels with reductions pass over the
// elements of a row several times; only their last pass may write. On CUDA their surplus threads
// read the last row once more at any time. Their results are discarded, but the errors that they
// report are not, so kernels with checks do not qualify.
bool may_alias_operand(const Node& node, std::size_t out) {
  if (node.call.in_place) return false;
  if (!node.body) return op_info(node.call.op).kind == OpKind::pointwise;
  const jit::Body& body = node.body->body;
  if (!node.body->placed.empty() || body.contraction() >= 0 || node.body->next) return false;
  if (!body.reduces()) return true;
  const std::vector<jit::Level> levels = jit::levels_of(body);
  const jit::Level& level = levels[static_cast<std::size_t>(body.outputs[out].value)];
  return body.checks.empty() && level.per_element() &&
         std::ranges::none_of(levels, [&](const jit::Level& other) {
           return other.per_element() && other.pass > level.pass;
         });
}

}  // namespace

void alias_operands(const Graph& graph, const Flow& flow, Plan& plan) {
  std::vector<int> end(graph.buffers.size());  // the last use of a block
  for (std::size_t i = 0; i < end.size(); ++i) end[i] = flow.last_use(static_cast<int>(i));
  const auto alias = [&](int call, const Node& node, const Value& out) {
    if (!graph.is_temporary(out.buffer) || flow.escapes(out.buffer) || !is_whole(graph, out))
      return;
    for (const Value& in : node.inputs) {
      const int block = plan.placement_of(in).block;
      const bool free = graph.is_temporary(in.buffer) && graph.is_temporary(block) &&
                        !flow.escapes(block) && plan.placement_of(in).offset == 0 &&
                        end[block] == call;
      const bool fits = in.shape == out.shape && is_whole(graph, in) &&
                        size_of(in.dtype) == size_of(out.dtype) &&
                        graph.buffers[block].bytes == graph.buffers[out.buffer].bytes;
      // The operand must not overlap any other operand.
      const auto elsewhere = [&](const Value& other) {
        return plan.placement_of(other).block != block || other == in;
      };
      if (!free || !fits || !std::ranges::all_of(node.inputs, elsewhere) ||
          !std::ranges::all_of(node.outputs, elsewhere))
        continue;
      plan.placements[out.buffer] = {block, 0};
      end[block] = flow.last_use(out.buffer);
      return;
    }
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (may_alias_operand(node, k)) alias(static_cast<int>(i), node, node.outputs[k]);
    }
  }
}

namespace {

// Decides which concatenations need no call because their parts are made in place.
class Concatenations {
 public:
  Concatenations(const Graph& graph, const Flow& flow, Plan& plan)
      : graph_(graph),
        flow_(flow),
        plan_(plan),
        members_(plan),
        is_fused_on_cuda_(
            graph.device.is_cuda() &&
            std::ranges::any_of(graph.nodes, [](const Node& n) { return n.body != nullptr; })) {
    last_write_.assign(graph.buffers.size(), Flow::kNone);
    for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
      const auto writers = flow.writers(static_cast<int>(i));
      if (writers.empty()) continue;
      int& last = last_write_[plan.placements[i].block];
      last = std::max(last, writers.back());
    }
  }

  void elide(int call) {
    const Node& node = graph_.nodes[call];
    const Value& out = node.outputs[0];
    if (!graph_.is_temporary(out.buffer) || flow_.producer(out.buffer) != call ||
        !is_block(plan_, out.buffer) || !is_whole(graph_, out) || last_write_[out.buffer] > call)
      return;
    // Parts follow one another in memory only if all dimensions before `dim` have size 1.
    const std::int64_t dim = node.call.attrs[0].i();
    for (std::int64_t d = 0; d < dim; ++d) {
      if (out.shape[static_cast<int>(d)] != 1) return;
    }
    std::vector<std::pair<int, std::size_t>> parts;
    std::size_t offset = 0;
    for (const Value& in : node.inputs) {
      const int block = plan_.placement_of(in).block;
      if (!may_move(in, block, call) || block == out.buffer ||
          !(is_aligned(offset, in.bytes()) || takes_any_alignment(block)))
        return;
      parts.emplace_back(block, offset);
      offset += in.bytes();
    }
    std::vector<int> blocks;
    for (const auto& [block, unused] : parts) blocks.push_back(block);
    std::ranges::sort(blocks);
    if (std::ranges::adjacent_find(blocks) != blocks.end()) return;
    for (const auto& [block, where] : parts) members_.embed(plan_, block, out.buffer, where);
    plan_.elided[call] = true;
  }

 private:
  // Whether a part is aligned as an allocation of its own; small parts to a power of two of their
  // size.
  static bool is_aligned(std::size_t offset, std::size_t bytes) {
    return offset % std::min(kAlignment, std::bit_floor(std::max<std::size_t>(bytes, 1))) == 0;
  }

  // Whether the kernels that write a block choose their accesses by its address. Their bits may
  // follow from that choice, so elsewhere than in fused graphs on CUDA parts begin where an
  // allocation would.
  bool takes_any_alignment(int block) const {
    if (!is_fused_on_cuda_) return false;
    bool all = true;
    members_.for_each(block, [&](int buffer) {
      all &= std::ranges::all_of(flow_.writers(buffer), [&](int writer) {
        const Node& node = graph_.nodes[writer];
        const OpInfo& op = op_info(node.call.op);
        return node.body != nullptr || op.kind == OpKind::pointwise || op.kind == OpKind::formula ||
               op.kind == OpKind::reduction || op.algebra == Algebra::contraction;
      });
    });
    return all;
  }

  // A write to a part after the call would change the result.
  bool may_move(const Value& part, int block, int call) const {
    return graph_.is_temporary(part.buffer) && graph_.is_temporary(block) && part.offset == 0 &&
           part.is_contiguous() && plan_.placement_of(part).offset == 0 && !flow_.escapes(block) &&
           graph_.buffers[block].bytes == part.bytes() && last_write_[block] < call;
  }

  const Graph& graph_;
  const Flow& flow_;
  Plan& plan_;
  Members members_;
  bool is_fused_on_cuda_;
  std::vector<int> last_write_;  // to each block
};

}  // namespace

void make_parts_in_place(const Graph& graph, const Flow& flow, Plan& plan) {
  Concatenations concatenations(graph, flow, plan);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Call& call = graph.nodes[i].call;
    if (op_info(call.op).algebra == Algebra::concatenation && !call.in_place)
      concatenations.elide(static_cast<int>(i));
  }
}

std::vector<LiveRange> live_ranges(const Graph& graph, const PlanOptions& options, const Flow& flow,
                                   const Plan& plan) {
  const int end = static_cast<int>(graph.nodes.size());
  std::vector<LiveRange> ranges(graph.buffers.size(), LiveRange{end, -1});
  const auto touch = [&](int buffer, int when) {
    LiveRange& range = ranges[plan.placements[buffer].block];
    range.first = std::min(range.first, when);
    range.last = std::max(range.last, when);
  };
  for (int i = 0; i < end; ++i) {
    if (plan.elided[i]) continue;
    for (const Value& v : graph.nodes[i].inputs) touch(v.buffer, i);
    for (const Value& v : graph.nodes[i].outputs) touch(v.buffer, i);
  }
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const int buffer = static_cast<int>(i);
    if (flow.escapes(buffer)) touch(buffer, end);
    if (graph.buffers[i].kind != Buffer::Kind::input || !options.inputs_in_arena) continue;
    touch(buffer, -1);
    // An argument that the step writes to is copied back at the end.
    if (!flow.writers(buffer).empty()) touch(buffer, end);
  }
  return ranges;
}

namespace {

struct PlannedBlock {
  int buffer;
  std::size_t bytes;
  LiveRange range;
};

struct ArenaLayout {
  std::vector<std::int64_t> offsets;  // of each block; -1: it is outside of the arena
  std::size_t bytes = 0;

  explicit ArenaLayout(std::size_t buffers) : offsets(buffers, -1) {}
  void put(const PlannedBlock& block, std::size_t offset) {
    offsets[block.buffer] = static_cast<std::int64_t>(offset);
    bytes = std::max(bytes, offset + block.bytes);
  }
};

// Simulates an allocator in the order of the calls: each block takes the lowest gap that is large
// enough, and returns it after its last use.
ArenaLayout first_fit_by_birth(std::vector<PlannedBlock> blocks, std::size_t buffers) {
  std::ranges::stable_sort(blocks, {}, [](const PlannedBlock& b) { return b.range.first; });
  ArenaLayout layout(buffers);
  std::map<std::size_t, std::size_t> gaps = {{0, SIZE_MAX}};  // bytes by offset, never adjacent
  const auto release = [&gaps](std::size_t offset, std::size_t bytes) {
    auto next = gaps.upper_bound(offset);
    if (next != gaps.end() && next->first == offset + bytes) {
      bytes = next->second == SIZE_MAX ? SIZE_MAX : bytes + next->second;
      next = gaps.erase(next);
    }
    if (next != gaps.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second = bytes == SIZE_MAX ? SIZE_MAX : before->second + bytes;
        return;
      }
    }
    gaps.emplace_hint(next, offset, bytes);
  };
  const auto ends_later = [&blocks](std::size_t a, std::size_t b) {
    return blocks[a].range.last > blocks[b].range.last;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(ends_later)> live(ends_later);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const PlannedBlock& block = blocks[i];
    for (; !live.empty() && blocks[live.top()].range.last < block.range.first; live.pop()) {
      const PlannedBlock& dead = blocks[live.top()];
      release(static_cast<std::size_t>(layout.offsets[dead.buffer]), dead.bytes);
    }
    const auto gap =
        std::ranges::find_if(gaps, [&](const auto& each) { return each.second >= block.bytes; });
    const auto [offset, bytes] = *gap;
    const auto hint = gaps.erase(gap);
    if (bytes > block.bytes) {
      gaps.emplace_hint(hint, offset + block.bytes,
                        bytes == SIZE_MAX ? SIZE_MAX : bytes - block.bytes);
    }
    layout.put(block, offset);
    live.push(i);
  }
  return layout;
}

// Each block takes the lowest gap between those before it in the list that it may not alias.
ArenaLayout first_fit(std::span<const PlannedBlock> blocks, const MayAlias& may_alias,
                      std::size_t buffers) {
  struct Placed {
    LiveRange range;
    std::size_t begin, end;
    int buffer;
  };
  ArenaLayout layout(buffers);
  std::vector<Placed> placed;  // by offset
  for (const PlannedBlock& block : blocks) {
    std::size_t offset = 0;
    for (const Placed& other : placed) {
      if (!block.range.overlaps(other.range)) {
        if (!may_alias) continue;
        const bool earlier = block.range.last < other.range.first;
        if (may_alias(earlier ? block.buffer : other.buffer, earlier ? other.buffer : block.buffer))
          continue;
      }
      if (offset + block.bytes <= other.begin) break;
      offset = std::max(offset, other.end);
    }
    layout.put(block, offset);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &Placed::begin),
                  {block.range, offset, offset + block.bytes, block.buffer});
  }
  return layout;
}

std::size_t most_live(std::span<const PlannedBlock> blocks, int end) {
  std::vector<std::int64_t> change(end + 3);
  for (const PlannedBlock& block : blocks) {
    change[block.range.first + 1] += static_cast<std::int64_t>(block.bytes);
    change[block.range.last + 2] -= static_cast<std::int64_t>(block.bytes);
  }
  std::int64_t live = 0, most = 0;
  for (std::int64_t c : change) most = std::max(most, live += c);
  return static_cast<std::size_t>(most);
}

// The blocks of the arena: those of temporaries, and of arguments and results that are copied.
std::vector<PlannedBlock> arena_blocks(const Graph& graph, const PlanOptions& options,
                                       const Flow& flow, const Plan& plan) {
  std::vector<bool> outside(graph.buffers.size());
  const auto keep_outside = [&](int buffer) { outside[plan.placements[buffer].block] = true; };
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const int buffer = static_cast<int>(i);
    const Buffer::Kind kind = graph.buffers[i].kind;
    const bool copied = kind == Buffer::Kind::input && options.inputs_in_arena;
    if ((flow.escapes(buffer) && !options.outputs_in_arena) ||
        (!graph.is_temporary(buffer) && !copied))
      keep_outside(buffer);
  }
  for (const GradientSlot& slot : graph.gradients) {
    if (graph.owns_gradient(slot)) keep_outside(slot.after->value.buffer);
  }
  const std::vector<LiveRange> ranges = live_ranges(graph, options, flow, plan);
  std::vector<PlannedBlock> blocks;
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& buffer = graph.buffers[i];
    if (!is_block(plan, static_cast<int>(i)) || outside[i] || ranges[i].last < ranges[i].first)
      continue;
    blocks.push_back({static_cast<int>(i),
                      aligned(std::max<std::size_t>(buffer.misalignment + buffer.bytes, 1)),
                      ranges[i]});
  }
  return blocks;
}

// Placing large blocks first compares every pair of blocks.
constexpr std::size_t kMostBlocksInPairs = 4096;

}  // namespace

// Placing large blocks first wastes little; for stacks of layers, so does placing blocks in the
// order of their first writes. Takes the smaller layout.
void lay_out_arena(const Graph& graph, const PlanOptions& options, const Flow& flow,
                   const MayAlias& may_alias, Plan& plan) {
  std::vector<PlannedBlock> blocks = arena_blocks(graph, options, flow, plan);
  const std::size_t buffers = graph.buffers.size();
  plan.least_bytes = most_live(blocks, static_cast<int>(graph.nodes.size()));
  ArenaLayout best(buffers);
  if (!may_alias) {
    best = first_fit_by_birth(blocks, buffers);
  } else {
    std::ranges::stable_sort(blocks, {}, [](const PlannedBlock& b) { return b.range.first; });
    best = first_fit(blocks, may_alias, buffers);
  }
  if (blocks.size() <= kMostBlocksInPairs) {
    std::ranges::stable_sort(blocks, std::greater{}, &PlannedBlock::bytes);
    ArenaLayout by_size = first_fit(blocks, may_alias, buffers);
    if (by_size.bytes <= best.bytes) best = std::move(by_size);
  }
  plan.arena_bytes = best.bytes;
  plan.arena_offset = std::move(best.offsets);
}

int longest_chain(const Plan& plan) {
  std::vector<int> length(plan.predecessors.size());
  int longest = 0;
  for (std::size_t i = 0; i < length.size(); ++i) {
    for (const int call : plan.predecessors[i]) length[i] = std::max(length[i], length[call]);
    longest = std::max(longest, ++length[i]);
  }
  return longest;
}

namespace {

// Reused memory makes later calls depend on earlier ones, which may lengthen the longest chain of
// dependences. In that case only calls that depend on one another anyway share blocks, if this
// costs at most the returned number of bytes. Saving a single call is worth a branch of the graph
// only in short chains: in long ones the branch costs more than the call.
std::size_t extra_bytes_for_independence(int chain, int without_reuse) {
  constexpr int kFew = 32;
  if (chain * 4 > without_reuse * 5) return std::size_t{16} << 20;
  return chain > without_reuse && without_reuse <= kFew ? std::size_t{256} << 10 : 0;
}

void keep_independent(const Graph& graph, const PlanOptions& options, const Flow& flow,
                      Plan& plan) {
  if (!options.lanes || graph.nodes.size() > kMostBlocksInPairs) return;
  const Plan free = without_reuse(graph, options, plan);
  const std::size_t most = extra_bytes_for_independence(longest_chain(plan), longest_chain(free));
  if (most == 0) return;
  const std::vector<CallSet> before = all_predecessors(free);
  const CallLists calls = calls_of_blocks(graph, plan);
  Plan wider = plan;
  lay_out_arena(
      graph, options, flow,
      [&](int earlier, int later) {
        if (calls.of(later).empty()) return false;
        const CallSet& known = before[calls.of(later).front()];
        return std::ranges::all_of(calls.of(earlier), [&](int call) { return known.has(call); });
      },
      wider);
  if (wider.arena_bytes > plan.arena_bytes + most) return;
  find_dependences(graph, options, wider);
  plan = std::move(wider);
}

}  // namespace

Plan make_plan(const Graph& graph, const PlanOptions& options) {
  Plan plan;
  plan.placements.resize(graph.buffers.size());
  for (std::size_t i = 0; i < plan.placements.size(); ++i)
    plan.placements[i] = {static_cast<int>(i), graph.buffers[i].misalignment};
  plan.elided.assign(graph.nodes.size(), false);
  const Flow flow(graph);
  alias_operands(graph, flow, plan);
  make_parts_in_place(graph, flow, plan);
  alias_gradients(graph, options, flow, plan);
  lay_out_arena(graph, options, flow, {}, plan);
  find_dependences(graph, options, plan);
  keep_independent(graph, options, flow, plan);
  choose_lanes(graph, plan);
  return plan;
}

std::int64_t bytes_touched(const Graph& graph, const Plan& plan) {
  auto bytes = static_cast<std::int64_t>(plan.arena_bytes);
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const bool in_arena = plan.arena_offset[plan.placements[i].block] >= 0;
    if (!in_arena) bytes += static_cast<std::int64_t>(graph.buffers[i].bytes);
  }
  return bytes;
}

}  // namespace brrr::graph
