#include "tests/harness/compile_plan.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/lower.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/random_state.h"

namespace brrr::test {
namespace {

using graph::Buffer;
using graph::Graph;
using graph::Node;
using graph::Plan;
using graph::PlanOptions;
using graph::Value;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Bytes that a call touches: of the arena (space -1), or of a block outside of it.
struct Access {
  int space;
  std::int64_t low, high;
  bool write;
  const Value* value;
};

Access access_to(const Plan& plan, const Value& value, bool write) {
  const graph::Placement& place = plan.placements[at(value.buffer)];
  const std::int64_t in_arena = plan.arena_offset[at(place.block)];
  const std::int64_t base =
      static_cast<std::int64_t>(place.offset) + std::max<std::int64_t>(in_arena, 0);
  const Extent extent = extent_of(value.region());
  return {in_arena >= 0 ? -1 : place.block, extent.low + base, extent.high + base, write, &value};
}

std::vector<Access> accesses_of(const Plan& plan, const Node& node) {
  std::vector<Access> all;
  for (const Value& v : node.inputs) all.push_back(access_to(plan, v, false));
  for (const Value& v : node.outputs) all.push_back(access_to(plan, v, true));
  return all;
}

// The bytes between low and high that are an element's, one by one.
std::vector<bool> bytes_of(const Access& access) {
  const Value& value = *access.value;
  std::vector<bool> bytes(static_cast<std::size_t>(access.high - access.low));
  const auto size = static_cast<std::int64_t>(size_of(value.dtype));
  const std::int64_t start = value.offset * size - extent_of(value.region()).low;
  for (std::int64_t k = 0; k < value.numel(); ++k) {
    std::int64_t byte = start, rest = k;
    for (int d = value.shape.size() - 1; d >= 0; --d) {
      byte += rest % value.shape[d] * value.strides[d] * size;
      rest /= value.shape[d];
    }
    for (std::int64_t i = 0; i < size; ++i) bytes[static_cast<std::size_t>(byte + i)] = true;
  }
  return bytes;
}

bool share_bytes(const Access& a, const Access& b) {
  const std::int64_t low = std::max(a.low, b.low), high = std::min(a.high, b.high);
  if (low >= high) return false;
  if (a.value->is_contiguous() && b.value->is_contiguous()) return true;
  const std::vector<bool> of_a = bytes_of(a), of_b = bytes_of(b);
  for (std::int64_t byte = low; byte < high; ++byte) {
    if (of_a[static_cast<std::size_t>(byte - a.low)] &&
        of_b[static_cast<std::size_t>(byte - b.low)])
      return true;
  }
  return false;
}

bool conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  for (const Access& x : a) {
    for (const Access& y : b) {
      if (x.space == y.space && (x.write || y.write) && share_bytes(x, y)) return true;
    }
  }
  return false;
}

// Whether a result aliases an operand other than element by element.
bool writes_over_operand(const Plan& plan, const Node& node) {
  for (const Value& out : node.outputs) {
    for (const Value& in : node.inputs) {
      if (in.buffer == out.buffer) continue;  // as traced
      const bool same = access_to(plan, in, false).low == access_to(plan, out, true).low &&
                        in.shape == out.shape && in.is_contiguous() && out.is_contiguous();
      if (!same && conflict({access_to(plan, in, false)}, {access_to(plan, out, true)}))
        return true;
    }
  }
  return false;
}

// The calls that must end before each one starts: those it waits for and the last of its lane.
std::vector<std::vector<int>> direct_orders(const Plan& plan) {
  std::vector<std::vector<int>> before = plan.predecessors;
  std::vector<int> last(at(std::max(plan.lanes, 1)), -1);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (plan.elided[i]) continue;
    int& tail = last[at(plan.lane[i])];
    if (tail >= 0) before[i].push_back(tail);
    tail = static_cast<int>(i);
  }
  return before;
}

std::string orders_problem(const Graph& graph, const Plan& plan) {
  const std::size_t count = graph.nodes.size();
  const std::vector<std::vector<int>> direct = direct_orders(plan);
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  std::vector<std::vector<Access>> accesses(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (plan.elided[i]) continue;
    for (const int call : direct[i]) {
      if (at(call) >= i || plan.elided[at(call)])
        return "call " + std::to_string(i) + " waits for " + std::to_string(call);
      before[i][at(call)] = true;
      for (std::size_t k = 0; k < count; ++k) before[i][k] = before[i][k] || before[at(call)][k];
    }
    if (writes_over_operand(plan, graph.nodes[i]))
      return "call " + std::to_string(i) + " writes over what it still reads";
    accesses[i] = accesses_of(plan, graph.nodes[i]);
    for (std::size_t k = 0; k < i; ++k) {
      if (!plan.elided[k] && !before[i][k] && conflict(accesses[k], accesses[i])) {
        return "calls " + std::to_string(k) + " and " + std::to_string(i) +
               " touch the same bytes in any order";
      }
    }
  }
  return "";
}

struct Placed {
  int number;
  std::int64_t low, high;
  int from, to;
};

std::string arena_problem(const Graph& graph, const PlanOptions& options, const Plan& plan) {
  const int end = static_cast<int>(graph.nodes.size());
  std::vector<Placed> placed;
  for (std::size_t b = 0; b < graph.buffers.size(); ++b) {
    const int number = static_cast<int>(b);
    if (plan.arena_offset[b] < 0 || plan.placements[b].block != number) continue;
    Placed block{number, plan.arena_offset[b],
                 plan.arena_offset[b] + static_cast<std::int64_t>(graph.buffers[b].bytes), end, -1};
    const auto touch = [&](const Value& value, int when) {
      if (value.buffer < 0 || plan.placements[at(value.buffer)].block != number) return;
      block.from = std::min(block.from, when);
      block.to = std::max(block.to, when);
    };
    for (int i = 0; i < end; ++i) {
      if (plan.elided[at(i)]) continue;
      for (const Value& v : graph.nodes[at(i)].inputs) touch(v, i);
      for (const Value& v : graph.nodes[at(i)].outputs) touch(v, i);
    }
    for (const graph::Output& output : graph.outputs) touch(output.value, end);
    for (const graph::GradientSlot& slot : graph.gradients) {
      if (slot.after) touch(slot.after->value, end);
    }
    if (options.inputs_in_arena && graph.buffers[b].kind == Buffer::Kind::input) block.from = -1;
    if (block.high > static_cast<std::int64_t>(plan.arena_bytes))
      return "buffer " + std::to_string(number) + " ends outside of the arena";
    for (const Placed& other : placed) {
      if (block.from <= other.to && other.from <= block.to && block.low < other.high &&
          other.low < block.high) {
        return "buffers " + std::to_string(number) + " and " + std::to_string(other.number) +
               " live at the same time in the same bytes";
      }
    }
    placed.push_back(block);
  }
  // The live memory, counted at each call.
  for (int when = -1; when <= end; ++when) {
    std::int64_t live = 0;
    for (const Placed& block : placed) {
      if (block.from <= when && when <= block.to) live += block.high - block.low;
    }
    if (live > static_cast<std::int64_t>(plan.least_bytes)) return "least_bytes is too little";
  }
  return plan.arena_bytes < plan.least_bytes ? "the arena is smaller than the peak live memory"
                                             : "";
}

std::vector<int> draw_order(const Plan& plan, Random& random) {
  const std::vector<std::vector<int>> direct = direct_orders(plan);
  std::vector<int> order, waiting;
  std::vector<bool> done(plan.predecessors.size());
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (!plan.elided[i]) waiting.push_back(static_cast<int>(i));
  }
  while (!waiting.empty()) {
    std::vector<std::size_t> ready;
    for (std::size_t w = 0; w < waiting.size(); ++w) {
      if (std::ranges::all_of(direct[at(waiting[w])], [&](int call) { return done[at(call)]; }))
        ready.push_back(w);
    }
    const std::size_t next =
        ready[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(ready.size())))];
    order.push_back(waiting[next]);
    done[at(waiting[next])] = true;
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(next));
  }
  return order;
}

// The planned memory: the arena, a block for each buffer outside of it that aliases no other,
// captured tensors, arguments.
class Memory {
 public:
  Memory(const Graph& graph, const PlanOptions& options, const Plan& plan,
         const std::vector<Tensor>& arguments)
      : graph_(graph), plan_(plan) {
    arena_ = garbage(plan.arena_bytes);
    for (const auto& [buffer, made] : run_constants(graph)) constants_[buffer] = made;
    for (std::size_t b = 0; b < graph.buffers.size(); ++b) {
      const Buffer& buffer = graph.buffers[b];
      const bool fed = buffer.kind == Buffer::Kind::input && !options.inputs_in_arena;
      char* own = nullptr;
      if (buffer.kind == Buffer::Kind::captured) {
        own = static_cast<char*>(TensorImpl::of(buffer.captured)->storage->data);
      } else if (buffer.kind == Buffer::Kind::constant) {
        own = static_cast<char*>(constants_.at(static_cast<int>(b)).data());
      } else if (fed) {
        own = static_cast<char*>(arguments[at(buffer.input)].data());
      } else if (plan.placements[b].block == static_cast<int>(b) && plan.arena_offset[b] < 0) {
        blocks_.push_back(garbage(buffer.bytes));
        own = static_cast<char*>(blocks_.back().data());
      }
      own_.push_back(own);
      if (buffer.kind == Buffer::Kind::input && options.inputs_in_arena &&
          plan.arena_offset[b] >= 0)
        std::memcpy(address(static_cast<int>(b)), arguments[at(buffer.input)].data(), buffer.bytes);
    }
  }

  Tensor tensor(const Value& value) const {
    Tensor made = make_tensor(value.dtype, Dims{1}, cpu);
    made = make_view(made, value.shape, value.strides);
    TensorImpl::of(made)->data =
        address(value.buffer) + value.offset * static_cast<std::int64_t>(size_of(value.dtype));
    return made;
  }
  // What the step wrote to arguments.
  void write_back(const std::vector<Tensor>& arguments) const {
    for (const Node& node : graph_.nodes) {
      for (const Value& v : node.outputs) {
        const Buffer& buffer = graph_.buffers[at(v.buffer)];
        if (buffer.kind == Buffer::Kind::input && plan_.arena_offset[at(v.buffer)] >= 0)
          std::memcpy(arguments[at(buffer.input)].data(), address(v.buffer), buffer.bytes);
      }
    }
  }

 private:
  static Tensor garbage(std::size_t bytes) {
    const Tensor block =
        make_tensor(DType::i64, Dims{static_cast<std::int64_t>(bytes / 8 + 8)}, cpu);
    std::memset(block.data(), 0x5a, block.bytes());
    return block;
  }
  char* address(int buffer) const {
    const graph::Placement& place = plan_.placements[at(buffer)];
    const std::int64_t in_arena = plan_.arena_offset[at(place.block)];
    char* const base =
        in_arena >= 0 ? static_cast<char*>(arena_.data()) + in_arena : own_[at(place.block)];
    return base + place.offset;
  }

  const Graph& graph_;
  const Plan& plan_;
  Tensor arena_;
  std::map<int, Tensor> constants_;
  std::vector<Tensor> blocks_;
  std::vector<char*> own_;
};

}  // namespace

std::string problem_of_plan(const Graph& graph, const PlanOptions& options, const Plan& plan) {
  const std::string problem = arena_problem(graph, options, plan);
  return problem.empty() ? orders_problem(graph, plan) : problem;
}

std::vector<Tensor> run_planned(const Graph& graph, const PlanOptions& options, const Plan& plan,
                                const std::vector<Tensor>& arguments, Random& random) {
  for (const RandomAdvance& advance : graph.draws) before_replay(advance);
  const Memory memory(graph, options, plan, arguments);
  for (const int i : draw_order(plan, random)) {
    const Node& node = graph.nodes[at(i)];
    std::vector<Tensor> inputs, outputs;
    std::vector<const Tensor*> pointers;
    for (const Value& v : node.inputs) inputs.push_back(memory.tensor(v));
    for (const Value& v : node.outputs) outputs.push_back(memory.tensor(v));
    for (const Tensor& x : inputs) pointers.push_back(&x);
    Call call = node.call;
    call.inputs = pointers.data();
    op_info(call.op).cpu(call, outputs.data());
  }
  memory.write_back(arguments);
  for (const RandomAdvance& advance : graph.draws) after_replay(advance);
  std::vector<Tensor> results;
  for (const graph::Output& output : graph.outputs) {
    results.push_back(output.is_value() ? clone(memory.tensor(output.value)) : output.outside);
  }
  for (const graph::GradientSlot& slot : graph.gradients) {
    if (graph.owns_gradient(slot)) results.push_back(clone(memory.tensor(slot.after->value)));
  }
  return results;
}

}  // namespace brrr::test
