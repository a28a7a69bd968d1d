// Common subexpressions: of two calls that compute the same values, the second one goes.
#include <map>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"

namespace brrr::graph {
namespace {

// Equal for two calls with equal results: the row, its attributes, and the operands' layouts and
// versions. A recomputation is there to shorten lifetimes, so it shares only with itself.
std::vector<std::int64_t> key_of(const Node& node, int index, const Flow& flow) {
  const Call& call = node.call;
  std::vector<std::int64_t> words = {static_cast<std::int64_t>(call.op), call.scalars,
                                     static_cast<std::int64_t>(call.dtype), node.recomputation,
                                     call.n_attrs};
  for (int i = 0; i < call.n_attrs; ++i) words.push_back(call.attrs[i].bits);
  for (const Value& input : node.inputs) {
    words.insert(words.end(),
                 {input.buffer, flow.version(input.buffer, index),
                  static_cast<std::int64_t>(input.dtype), input.offset, input.shape.size()});
    words.insert(words.end(), input.shape.begin(), input.shape.end());
    words.insert(words.end(), input.strides.begin(), input.strides.end());
  }
  return words;
}

}  // namespace

int merge_equal(Graph& graph) {
  const Flow flow(graph);
  const auto may_go = [&](const Node& node) {
    return is_pure(node) && std::ranges::all_of(node.outputs, [&](const Value& output) {
             return flow.is_intermediate(output.buffer);
           });
  };
  Substitution substitution(graph);
  std::map<std::vector<std::int64_t>, std::vector<Value>> known;
  std::vector<Node> kept;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    substitution.apply(node);
    if (may_go(node)) {
      const auto [found, is_new] =
          known.try_emplace(key_of(node, static_cast<int>(i), flow), node.outputs);
      if (!is_new) {
        for (std::size_t k = 0; k < node.outputs.size(); ++k)
          substitution.replace(node.outputs[k].buffer, found->second[k].buffer);
        continue;
      }
    }
    kept.push_back(std::move(node));
  }
  substitution.apply_to_required(graph);
  return replace_nodes(graph, std::move(kept));
}

}  // namespace brrr::graph
