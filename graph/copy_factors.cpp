// Copies a factor of a TF32 product to the layout that tensor cores read, if the product saves more
// time than the copy takes. The copy is a node of its own, so that the kernel that computes the
// factor can also store the copy, and that other kernels run concurrently.
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/passes.h"
#include "brrr/ops/factor_copy.h"

namespace brrr::graph {
namespace {

FactorLayout layout_of(const Value& x) { return {x.shape, x.strides}; }

int factor_to_copy(const Graph& graph, const Node& node) {
  if (op_info(node.call.op).algebra != Algebra::contraction || node.inputs.size() < 2) return -1;
  return factor_worth_copying(layout_of(node.inputs[0]), layout_of(node.inputs[1]),
                              node.inputs[0].dtype, graph.device);
}

}  // namespace

int copy_factors(Graph& graph) {
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    if (const int factor = factor_to_copy(graph, node); factor >= 0) {
      Value& x = node.inputs[factor];
      const Value lines = factor == 0 ? x : transposed(x);
      const Value copied = graph.add_temporary(x.dtype, lines.shape);
      Node copy(factor_copy(x.dtype), node);
      copy.number = node.number;
      copy.inputs = {lines};
      copy.outputs = {copied};
      x = factor == 0 ? copied : transposed(copied);
      nodes.push_back(std::move(copy));
    }
    nodes.push_back(std::move(node));
  }
  return replace_nodes(graph, std::move(nodes));
}

}  // namespace brrr::graph
