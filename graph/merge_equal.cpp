// Common subexpression elimination: of two calls that compute the same values, the second one is
// removed.
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/passes.h"

namespace brrr::graph {
namespace {

// Whether two calls have equal results: the row, its attributes, and the operands' layouts and
// versions are equal. A recomputation exists to shorten lifetimes, so its calls are merged only
// with calls of the same recomputation.
bool are_equal(const Node& a, int call_a, const Node& b, int call_b, const Flow& flow) {
  const auto attrs = [](const Node& node) {
    return std::span(node.call.attrs).first(node.call.n_attrs);
  };
  return a.call.op == b.call.op && a.call.scalars == b.call.scalars &&
         a.call.dtype == b.call.dtype && a.recomputation == b.recomputation &&
         std::ranges::equal(attrs(a), attrs(b), {}, &Attr::bits, &Attr::bits) &&
         a.inputs == b.inputs && std::ranges::all_of(a.inputs, [&](const Value& input) {
           return flow.version(input.buffer, call_a) == flow.version(input.buffer, call_b);
         });
}

// A hash that is equal for calls with equal results.
std::size_t hash_of(const Node& node, int call, const Flow& flow) {
  std::uint64_t hash = static_cast<std::uint64_t>(node.call.op);
  const auto add = [&hash](std::int64_t word) {
    hash = (std::rotl(hash, 5) ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15u;
  };
  for (int i = 0; i < node.call.n_attrs; ++i) add(node.call.attrs[i].bits);
  for (const Value& input : node.inputs) {
    add(input.buffer);
    add(flow.version(input.buffer, call));
    add(input.offset);
    for (const std::int64_t size : input.shape) add(size);
  }
  return hash;
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
  struct FirstCall {
    int call;          // its place in the graph
    std::size_t kept;  // and among the nodes that are kept
  };
  std::unordered_map<std::size_t, FirstCall> first_calls;
  first_calls.reserve(graph.nodes.size());
  int index = 0;
  std::size_t kept = 0;
  const int removed = remove_nodes(graph, [&](Node& node) {
    const int call = index++;
    substitution.apply(node);
    if (may_go(node)) {
      const auto [found, is_new] = first_calls.try_emplace(hash_of(node, call, flow), call, kept);
      const Node& earlier = graph.nodes[found->second.kept];
      if (!is_new && are_equal(earlier, found->second.call, node, call, flow)) {
        for (std::size_t k = 0; k < node.outputs.size(); ++k)
          substitution.replace(node.outputs[k].buffer, earlier.outputs[k].buffer);
        return true;
      }
    }
    ++kept;
    return false;
  });
  substitution.apply_to_marks(graph);
  return removed;
}

}  // namespace brrr::graph
