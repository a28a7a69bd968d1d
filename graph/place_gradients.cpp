// The gradients of an attention's operands where they make up one gradient: queries, keys and
// values that are slices of one projection. The trace pads each gradient with zeros and adds the
// three; here the attention's gradient stores each in its place of the sum.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/attention_rows.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/passes.h"
#include "brrr/ops/attention.h"

namespace brrr::graph {
namespace {

using std::int64_t;

constexpr int kNone = Flow::kNone, kResults = 3;  // of queries, keys and values

// `x`, a value within the buffer that `from` views, where the elements of `from` are those of `to`,
// which has the same shape. None if `x` is no block of `from`, whose dimensions may be split in it.
std::optional<Value> moved(const Value& x, const Value& from, const Value& to) {
  std::vector<int> dims;  // of `from`, by stride from the largest on
  for (int e = 0; e < from.shape.size(); ++e) {
    if (from.shape[e] > 1) dims.push_back(e);
  }
  std::ranges::sort(dims, std::greater<>(), [&](int e) { return from.strides[e]; });
  Value result = to;
  result.shape = x.shape;
  result.strides = x.strides;
  Dims first = from.shape;  // the coordinates of the first element
  int64_t offset = x.offset - from.offset;
  for (const int e : dims) {
    if (from.strides[e] <= 0) return {};
    first[e] = offset / from.strides[e];
    offset -= first[e] * from.strides[e];
    if (first[e] < 0 || first[e] >= from.shape[e]) return {};
    result.offset += first[e] * to.strides[e];
  }
  if (offset != 0) return {};
  for (int d = 0; d < x.shape.size(); ++d) {
    if (x.shape[d] == 1) continue;
    const auto along = std::ranges::find_if(
        dims, [&](int e) { return x.strides[d] > 0 && x.strides[d] % from.strides[e] == 0; });
    if (along == dims.end()) return {};
    const int64_t steps = x.strides[d] / from.strides[*along];
    if (first[*along] + steps * (x.shape[d] - 1) >= from.shape[*along]) return {};
    result.strides[d] = steps * to.strides[*along];
  }
  return result;
}

// A result of the gradient on its way to the sum.
struct Block {
  Value place;  // of the result, in the buffer of `at`
  Value at;     // the last call's result
  double factor = 1;
  // Where its elements lie in the sum.
  int dim = -1;
  int64_t low = 0, high = 0;
};

class GradientPlacement {
 public:
  explicit GradientPlacement(Graph& graph)
      : graph_(graph), flow_(graph), marked_(marked_buffers(graph)), removed_(graph.nodes.size()) {}

  int run() {
    for (Node& node : graph_.nodes) {
      if (is_attention_gradient(node.call.op)) place(node);
    }
    return remove_nodes(graph_,
                        [this, i = std::size_t{0}](const Node&) mutable { return removed_[i++]; });
  }

 private:
  const Node& node(int call) const { return graph_.nodes[call]; }

  // The only call that reads a value's buffer; kNone unless that is all that happens to the value,
  // and the call makes a new tensor of it.
  int next(const Value& value) const {
    const std::span<const int> readers = flow_.readers(value.buffer);
    if (!flow_.is_intermediate(value.buffer) || readers.size() != 1 ||
        std::ranges::find(marked_, value.buffer) != marked_.end())
      return kNone;
    const Node& reader = node(readers[0]);
    const bool makes_new = !reader.body && !reader.call.in_place && !has_effect(reader) &&
                           reader.outputs.size() == 1 && is_whole(graph_, reader.outputs[0]) &&
                           reader.outputs[0].dtype == value.dtype;
    return makes_new ? readers[0] : kNone;
  }
  static Algebra algebra_of(const Node& node) { return op_info(node.call.op).algebra; }

  // Follows a call that moves a block's elements; false if it does something else.
  bool follow(Block& block, int call, const Value& to) const {
    const std::vector<Value>& inputs = node(call).inputs;
    const auto from = std::ranges::find(inputs, block.at.buffer, &Value::buffer);
    if (from->numel() != block.at.numel()) return false;
    const std::optional<Value> place = moved(block.place, *from, to);
    if (!place) return false;
    block.place = *place;
    block.at = node(call).outputs[0];
    return true;
  }
  bool follow(Block& block, int call) const { return follow(block, call, node(call).outputs[0]); }

  // Follows a result to the call that puts it among zeros. Appends calls to `passed`.
  std::optional<Block> embedded(const Value& result, std::vector<int>& passed) const {
    Block block{.place = result, .at = result};
    for (int call = next(result); call != kNone; call = next(block.at)) {
      const Node& of = node(call);
      passed.push_back(call);
      if (of.inputs.size() != 1) return {};
      if (algebra_of(of) == Algebra::embedding) {
        const auto attribute = [&](std::size_t i) { return of.call.attrs[i].i(); };
        block.dim = static_cast<int>(attribute(0));
        block.low = attribute(1);
        block.high = block.low + of.inputs[0].shape[block.dim];
        Value to = of.outputs[0];
        to.shape = of.inputs[0].shape;
        to.offset += block.low * to.strides[block.dim];
        if (attribute(3) != 1 || !follow(block, call, to)) return {};
        return block;
      }
      if (const std::optional<double> factor = factor_of(of)) {
        block.factor *= *factor;
      } else if (algebra_of(of) != Algebra::identity) {
        return {};
      }
      if (!follow(block, call)) return {};
    }
    return {};
  }

  // Whether the blocks are disjoint and make up the whole sum.
  static bool are_parts(const std::array<Block, kResults>& blocks) {
    int64_t sum = 0;
    for (const Block& one : blocks) {
      if (one.dim != blocks[0].dim || one.at.shape != blocks[0].at.shape) return false;
      for (const Block& other : blocks) {
        if (&one != &other && one.low < other.high && other.low < one.high) return false;
      }
      sum += one.high - one.low;
    }
    return sum == blocks[0].at.shape[blocks[0].dim];
  }

  // Follows the sums of the blocks until they are one tensor, and copies of that.
  bool join(std::array<Block, kResults>& blocks, std::vector<int>& passed) const {
    const auto is_block = [&](const Value& value) {
      return std::ranges::any_of(blocks,
                                 [&](const Block& b) { return b.at.buffer == value.buffer; });
    };
    const auto adds_blocks = [&](int call) {
      if (call == kNone || algebra_of(node(call)) != Algebra::sum) return false;
      const std::vector<Value>& read = node(call).inputs;
      return read.size() == 2 && read[0].buffer != read[1].buffer &&
             std::ranges::all_of(read, is_block);
    };
    const auto step = [&](int call) {
      passed.push_back(call);
      const std::vector<Value> read = node(call).inputs;
      return std::ranges::all_of(blocks, [&](Block& block) {
        return std::ranges::find(read, block.at.buffer, &Value::buffer) == read.end() ||
               follow(block, call);
      });
    };
    const auto is_joined = [&] {
      return std::ranges::all_of(blocks, [&](const Block& b) { return b.at == blocks[0].at; });
    };
    while (!is_joined()) {
      const auto added = std::ranges::find_if(
          blocks, [&](const Block& block) { return adds_blocks(next(block.at)); });
      if (added == blocks.end() || !step(next(added->at))) return false;
    }
    for (int call = next(blocks[0].at); call != kNone; call = next(blocks[0].at)) {
      const std::array<Block, kResults> before = blocks;
      if (algebra_of(node(call)) != Algebra::identity || node(call).inputs.size() != 1) break;
      if (step(call)) continue;
      blocks = before;
      passed.pop_back();
      break;
    }
    return true;
  }

  void place(Node& gradient) {
    std::array<Block, kResults> blocks;
    std::vector<int> passed;
    for (std::size_t i = 0; i < kResults; ++i) {
      std::optional<Block> block = embedded(gradient.outputs[i], passed);
      if (!block || (i > 0 && block->factor != 1)) return;
      blocks[i] = *block;
    }
    if (!are_parts(blocks) || !join(blocks, passed)) return;
    for (const Block& block : blocks) {
      if (!has_aligned_rows(graph_, block.place)) return;
    }
    for (const int call : passed) removed_[call] = true;
    for (std::size_t i = 0; i < kResults; ++i) gradient.outputs[i] = blocks[i].place;
    Attr& scale = gradient.call.attrs[1];
    scale = Attr::of(scale.d() * blocks[0].factor);
  }

  Graph& graph_;
  Flow flow_;
  std::vector<int> marked_;  // buffers that the user asked about
  std::vector<bool> removed_;
};

}  // namespace

int place_attention_gradients(Graph& graph) { return GradientPlacement(graph).run(); }

}  // namespace brrr::graph
