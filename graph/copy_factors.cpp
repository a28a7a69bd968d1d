// Copies factors of products to layouts that tensor cores read, if the product saves more time than
// the copy takes. A copy is a node of its own, so that the kernel that computes the factor can also
// store the copy, and that other kernels run concurrently. Products share it.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/ceilings.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/passes.h"
#include "brrr/ops/factor_copy.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::graph {
namespace {

using std::int64_t;

FactorLayout layout_of(const Graph& graph, const Value& x) {
  const Buffer& buffer = graph.buffers[x.buffer];
  std::size_t begin = buffer.misalignment;
  if (buffer.kind == Buffer::Kind::captured)
    begin = reinterpret_cast<std::uintptr_t>(TensorImpl::of(buffer.captured)->storage->data) % 16;
  return {x.shape, x.strides,
          static_cast<int64_t>(begin) + x.offset * static_cast<int64_t>(size_of(x.dtype))};
}

class FactorCopying {
 public:
  explicit FactorCopying(Graph& graph)
      : graph_(graph), flow_(graph), ceilings_(graph::ceilings_of(graph.device)) {}

  int run() {
    std::vector<Node> first, nodes;
    for (std::size_t call = 0; call < graph_.nodes.size(); ++call) {
      Node& node = graph_.nodes[call];
      if (op_info(node.call.op).algebra == Algebra::contraction && node.inputs.size() >= 2) {
        const FactorCopies copies = copies_of(node);
        for (int k = 0; k < 2; ++k) {
          const FactorCopy copy = copies[static_cast<std::size_t>(k)];
          if (copy == FactorCopy::none) continue;
          const bool is_early = is_there_at_start(node.inputs[k], static_cast<int>(call));
          node.inputs[k] = copied(node, k, copy, static_cast<int>(call), is_early ? first : nodes);
        }
      }
      nodes.push_back(std::move(node));
    }
    first.insert(first.end(), std::make_move_iterator(nodes.begin()),
                 std::make_move_iterator(nodes.end()));
    return replace_nodes(graph_, std::move(first));
  }

 private:
  // What the step has from outside is copied at its start, before the first product waits for it.
  // Under a policy that saves memory each copy waits for its product.
  bool is_there_at_start(const Value& x, int call) const {
    return !graph_.has_policy && !graph_.least_memory && is_outside(graph_, x.buffer) &&
           flow_.version(x.buffer, call) == 0;
  }

  FactorCopies copies_of(const Node& node) const {
    const FactorLayout a = layout_of(graph_, node.inputs[0]), b = layout_of(graph_, node.inputs[1]);
    const DType dtype = node.inputs[0].dtype;
    const FactorCopies copies = copies_for_tiles(a, b, dtype, graph_.device);
    if (copies != FactorCopies() && saves_time(node, copies)) return copies;
    return copies_for_tf32(a, b, dtype, graph_.device);
  }

  // Whether a product gains more than its copies take, by itself: narrower accesses load as many
  // bytes in as many more instructions, which costs nothing where memory is what it waits for.
  bool saves_time(const Node& node, const FactorCopies& copies) const {
    const Value &a = node.inputs[0], &b = node.inputs[1];
    const int64_t k = a.shape[a.shape.size() - 1];
    const int64_t flops = 2 * node.outputs[0].numel() * k;
    const ProductType type = product_type(a.dtype, graph_.device);
    const int64_t computing = ceilings_->product(type).time_of(flops);
    const auto bytes_of = [](const Value& x) { return static_cast<int64_t>(x.bytes()); };
    const int64_t moving =
        ceilings_->moved.time_of(bytes_of(a) + bytes_of(b) + bytes_of(node.outputs[0]));
    int64_t alignment = 16, copying = 0;
    for (int i = 0; i < 2; ++i) {
      const Value& x = node.inputs[i];
      alignment = std::min(alignment, layout_of(graph_, x).alignment(x.dtype));
      if (copies[static_cast<std::size_t>(i)] != FactorCopy::none)
        copying += ceilings_->moved.time_of(2 * bytes_of(x));
    }
    return std::max(computing * 16 / alignment, moving) - std::max(computing, moving) > copying;
  }

  // Factor `k` of a product in a copy, which is appended to `nodes` unless it is there.
  Value copied(const Node& product, int k, FactorCopy copy, int call, std::vector<Node>& nodes) {
    const Value& x = product.inputs[k];
    const bool across = layout_of(graph_, x).adjacent() != x.shape.size() - 1;
    const bool exchanged = (copy == FactorCopy::transposed) != across;
    Made made{exchanged ? transposed(x) : x,
              flow_.version(x.buffer, call),
              product.recomputation,
              product.role,
              {}};
    std::vector<Made>& all = made_[x.buffer];
    const auto found = std::ranges::find_if(all, [&](const Made& other) {
      return other.from == made.from && other.version == made.version &&
             other.recomputation == made.recomputation &&
             (other.role == made.role || !graph_.has_policy);
    });
    if (found != all.end()) {
      made.to = found->to;
    } else {
      made.to = graph_.add_rows(x.dtype, made.from.shape);
      Node node(factor_copy(x.dtype), product);
      node.number = product.number;
      node.inputs = {made.from};
      node.outputs = {made.to};
      nodes.push_back(std::move(node));
      all.push_back(made);
    }
    return exchanged ? transposed(made.to) : made.to;
  }

  struct Made {
    Value from;
    int version, recomputation;
    Role role;  // a policy decides what the backward pass keeps
    Value to;
  };

  Graph& graph_;
  const Flow flow_;
  std::shared_ptr<const Ceilings> ceilings_;
  std::map<int, std::vector<Made>> made_;  // by the buffer copied
};

}  // namespace

int copy_factors(Graph& graph) { return graph.device.is_cuda() ? FactorCopying(graph).run() : 0; }

}  // namespace brrr::graph
