// Common subexpression elimination: of two calls that compute the same values, the second one is
// removed.
#include <functional>
#include <string_view>
#include <unordered_map>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"

namespace brrr::graph {
namespace {

using Key = std::vector<std::int64_t>;
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string_view>()(
        {reinterpret_cast<const char*>(key.data()), key.size() * sizeof key[0]});
  }
};

// Equal for two calls with equal results: the row, its attributes, and the operands' layouts and
// versions. A recomputation is there to shorten lifetimes, so it shares only with itself.
Key key_of(const Node& node, int index, const Flow& flow) {
  const Call& call = node.call;
  Key words;
  std::size_t size = 5 + call.n_attrs;
  for (const Value& input : node.inputs) size += 5 + 2 * input.shape.size();
  words.reserve(size);
  words.assign({static_cast<std::int64_t>(call.op), call.scalars,
                static_cast<std::int64_t>(call.dtype), node.recomputation, call.n_attrs});
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
  // A node that moves takes its outputs along where they are.
  std::unordered_map<Key, std::span<const Value>, KeyHash> known;
  int index = 0;
  const int removed = remove_nodes(graph, [&](Node& node) {
    const int call = index++;
    substitution.apply(node);
    if (!may_go(node)) return false;
    const auto [found, is_new] = known.try_emplace(key_of(node, call, flow), node.outputs);
    for (std::size_t k = 0; !is_new && k < node.outputs.size(); ++k)
      substitution.replace(node.outputs[k].buffer, found->second[k].buffer);
    return !is_new;
  });
  substitution.apply_to_marks(graph);
  return removed;
}

}  // namespace brrr::graph
