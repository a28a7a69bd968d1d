// Decides which values are computed again by the groups that read them. The motivating case is
// attention: a softmax that stores exponentials and quotients for its backward writes six times the
// bytes of the scores, from which both can be recomputed in a handful of operations.
//
// A value qualifies if all groups that read it can compute it from operands that they read anyway,
// or from fewer bytes than it has. So a step's memory traffic does not grow, nor, except for
// statistics of rows, does its live memory.
#include "brrr/graph/recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/ceilings.h"
#include "brrr/graph/flow.h"
#include "brrr/ops/jit/add_call.h"
#include "brrr/ops/jit/contraction.h"

namespace brrr::graph {
namespace {

using std::int64_t;

class Recomputation {
 public:
  Recomputation(Graph& graph, const GroupsOfCalls& groups)
      : graph_(graph), groups_(groups), flow_(graph), reads_(graph.nodes.size()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const Value& input : graph.nodes[i].inputs) reads_[group_of(i)].insert(place_of(input));
    }
  }

  std::vector<bool> run() {
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) consider(static_cast<int>(i));
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) consider_reads(static_cast<int>(i));
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) consider_factor(static_cast<int>(i));
    return repeated_.empty() ? std::vector<bool>() : emit();
  }

 private:
  static constexpr std::size_t kLongest = 12;  // calls that one reader computes again
  static constexpr int64_t kFlopsOfByte = 4;   // FLOPs that cost as much as moving a byte

  // The start of a value in its buffer: parameters share one.
  using Place = std::pair<int, int64_t>;
  static Place place_of(const Value& value) { return {value.buffer, value.offset}; }

  // The calls that a group repeats for a value, in order, and the values that they read.
  struct Chain {
    std::vector<int> calls;
    std::map<Place, int64_t> leaves;  // their bytes
  };

  int group_of(std::size_t call) const { return groups_.group[call]; }
  const Node& node(int call) const { return graph_.nodes[call]; }
  int64_t bytes(int buffer) const { return static_cast<int64_t>(graph_.buffers[buffer].bytes); }

  // On the CPU a function such as exp takes longer than to pass its value through the caches: only
  // a policy that saves memory computes it again.
  bool is_cheap(const Node& node) const {
    const OpInfo& op = op_info(node.call.op);
    return jit::has_values(op) && op.kind != OpKind::reduction &&
           op.algebra != Algebra::contraction && !node.call.in_place && op.effect == Effect::pure &&
           node.outputs.size() == 1 && is_whole(graph_, node.outputs[0]) &&
           (!graph_.device.is_cpu() || graph_.has_policy || functions_of(node.call, 1) == 0);
  }

  // Whether a buffer is stored to memory, by the decisions so far.
  bool is_stored(int buffer) const {
    const int producer = flow_.producer(buffer);
    if (producer == Flow::kNone || flow_.escapes(buffer) || added_.contains(buffer)) return true;
    if (dropped_.contains(buffer)) return false;
    return std::ranges::any_of(flow_.readers(buffer), [&](int reader) {
      return group_of(reader) != group_of(producer) || groups_.opaque[group_of(producer)];
    });
  }

  // Adds to `chain` the calls by which `group` can compute `buffer` for its call `reader`.
  bool trace(int buffer, int group, int reader, Chain& chain) const {
    const int producer = flow_.producer(buffer);
    const bool made = graph_.is_temporary(buffer) && producer != Flow::kNone;
    if (!made) return false;
    if (std::ranges::find(chain.calls, producer) != chain.calls.end() ||
        repeated_.contains({group, producer}))
      return true;
    if (!is_cheap(node(producer)) || chain.calls.size() == kLongest) return false;
    for (const Value& input : node(producer).inputs) {
      // The buffer must not have been written between the original call and the reader.
      if (flow_.version(input.buffer, producer) != flow_.version(input.buffer, reader))
        return false;
      const int from = flow_.producer(input.buffer);
      const bool known = !graph_.is_temporary(input.buffer) || is_stored(input.buffer) ||
                         (from != Flow::kNone && !is_cheap(node(from)));
      if (known) {
        chain.leaves[place_of(input)] = bytes_moved({&input, 1}, {});
      } else if (!trace(input.buffer, group, reader, chain)) {
        return false;
      }
    }
    chain.calls.push_back(producer);
    return true;
  }

  // Benefit and cost of recomputing a value.
  struct Price {
    int64_t saved = 0, flops = 0;  // bytes of memory traffic saved; operations repeated
    std::set<int> added = {},
                  longer = {};  // buffers that must be stored, whose lifetime is extended
  };
  void add_to(Price& price, int group, int reader, const Chain& chain) const {
    for (const auto& [place, moved] : chain.leaves) {
      const int leaf = place.first;
      if (!reads_[group].contains(place)) price.saved -= moved;
      if (graph_.is_temporary(leaf) && !is_stored(leaf)) price.added.insert(leaf);
      if (graph_.is_temporary(leaf) && flow_.last_use(leaf) < reader) price.longer.insert(leaf);
    }
    for (const int call : chain.calls)
      price.flops += op_info(node(call).call.op).element_flops * node(call).outputs[0].numel();
  }
  // `freed`: bytes whose lifetime ends with the recomputation.
  bool is_worth(const Price& price, int64_t freed) const {
    int64_t saved = price.saved, kept = 0;
    for (const int leaf : price.longer) kept += bytes(leaf);
    for (const int leaf : price.added) saved -= bytes(leaf);
    return kept <= freed + freed / 16 && saved * kFlopsOfByte > price.flops;
  }

  // The groups other than a call's own that read its result, with the last call of each.
  std::map<int, int> readers_of(int call) const {
    const int buffer = node(call).outputs[0].buffer;
    std::map<int, int> last;
    if (const auto more = leaf_of_.find(buffer); more != leaf_of_.end()) last = more->second;
    for (const int reader : flow_.readers(buffer)) {
      const int group = group_of(reader);
      if (group != group_of(call)) last[group] = std::max(last[group], reader);
    }
    return last;
  }

  void repeat(int group, int reader, const Chain& chain) {
    for (const int repeated : chain.calls) repeated_.insert({group, repeated});
    for (const auto& [place, moved] : chain.leaves) {
      reads_[group].insert(place);
      int& last = leaf_of_[place.first][group];
      last = std::max(last, reader);
    }
  }

  // Decides whether all readers of a call's result in other groups recompute it, or none.
  void consider(int call) {
    if (!is_cheap(node(call))) return;
    const int buffer = node(call).outputs[0].buffer;
    if (!flow_.is_intermediate(buffer)) return;
    const std::map<int, int> readers = readers_of(call);
    if (readers.empty()) return;
    Price price{.saved = bytes(buffer)};
    std::map<int, Chain> chains;
    for (const auto& [group, reader] : readers) {
      if (groups_.opaque[group] || !trace(buffer, group, reader, chains[group])) return;
      price.saved += bytes(buffer);
      add_to(price, group, reader, chains[group]);
    }
    if (!is_worth(price, bytes(buffer))) return;
    for (const auto& [group, chain] : chains) repeat(group, readers.at(group), chain);
    added_.insert(price.added.begin(), price.added.end());
    dropped_.insert(buffer);
  }

  // A value that one reader needs in memory is still recomputed by readers that already load
  // everything it is computed from: they load one operand less.
  void consider_reads(int call) {
    if (!is_cheap(node(call))) return;
    const int buffer = node(call).outputs[0].buffer;
    if (!flow_.is_intermediate(buffer) || dropped_.contains(buffer)) return;
    for (const auto& [group, reader] : readers_of(call)) {
      Chain chain;
      if (groups_.opaque[group] || !trace(buffer, group, reader, chain)) continue;
      Price price{.saved = bytes(buffer)};
      add_to(price, group, reader, chain);
      if (price.added.empty() && is_worth(price, 0)) repeat(group, reader, chain);
    }
  }

  // Whether all calls that read the buffer are small products, and it is one of their factors.
  bool is_factor_of_small_products(int buffer) const {
    return std::ranges::all_of(flow_.readers(buffer), [&](int reader) {
      const std::vector<Value>& inputs = node(reader).inputs;
      if (op_info(node(reader).call.op).algebra != Algebra::contraction ||
          !groups_.computes_factors[group_of(reader)])
        return false;
      return std::ranges::count(inputs, buffer, &Value::buffer) == 1 &&
             (inputs[0].buffer == buffer || inputs[1].buffer == buffer);
    });
  }
  // Whether a chain computes each element from one of a single tensor, in a few operations, and is
  // all that its last call's group computes.
  bool is_elementwise_group(const Chain& chain) const {
    int64_t operations = 0;
    for (const int call : chain.calls) {
      const Node& of = node(call);
      operations += op_info(of.call.op).element_flops;
      if (of.inputs.size() != 1 || of.inputs[0].numel() != of.outputs[0].numel() ||
          size_of(of.inputs[0].dtype) > jit::kWidestOfFactor)
        return false;
    }
    const int group = group_of(chain.calls.back());
    const auto in_group = std::ranges::count(groups_.group, group);
    return operations <= kMostRepeatedOperations && in_group == std::ssize(chain.calls) &&
           std::ranges::all_of(chain.calls, [&](int call) { return group_of(call) == group; });
  }

  // A value that only small products read, such as a weight in another type, is computed by each of
  // them. That saves a kernel, which takes longer than they take to compute it again.
  void consider_factor(int call) {
    constexpr std::size_t kMostReaders = 4;
    const int buffer = is_cheap(node(call)) ? node(call).outputs[0].buffer : -1;
    if (buffer < 0 || !flow_.is_intermediate(buffer) || dropped_.contains(buffer) ||
        added_.contains(buffer) || !is_factor_of_small_products(buffer))
      return;
    const std::map<int, int> readers = readers_of(call);
    if (readers.size() < 2 || readers.size() > kMostReaders) return;
    Price price;
    std::map<int, Chain> chains;
    for (const auto& [group, reader] : readers) {
      if (!trace(buffer, group, reader, chains[group]) || !is_elementwise_group(chains[group]))
        return;
      add_to(price, group, reader, chains[group]);
    }
    int64_t kept = 0;
    for (const int leaf : price.longer) kept += bytes(leaf);
    if (!price.added.empty() || kept > bytes(buffer)) return;
    for (const auto& [group, chain] : chains) repeat(group, readers.at(group), chain);
    dropped_.insert(buffer);
  }

  // --- The changed graph ---

  std::vector<bool> emit() {
    const int first = static_cast<int>(graph_.buffers.size());  // of copies
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node call = graph_.nodes[i];
      for (Value& input : call.inputs) input.buffer = buffer_for(input.buffer, group_of(i));
      nodes_.push_back(std::move(call));
    }
    graph_.nodes = std::move(nodes_);
    remove_dead(graph_);  // calls whose readers all have copies
    std::vector<bool> is_copy;
    for (const Node& call : graph_.nodes)
      is_copy.push_back(!call.outputs.empty() && call.outputs[0].buffer >= first);
    return is_copy;
  }

  // The buffer that a group reads in place of `buffer`. Emits the copied calls that compute it.
  int buffer_for(int buffer, int group) {
    const int producer = graph_.is_temporary(buffer) ? flow_.producer(buffer) : Flow::kNone;
    if (producer == Flow::kNone || !repeated_.contains({group, producer})) return buffer;
    const auto [known, fresh] = copies_.try_emplace({group, buffer}, 0);
    if (!fresh) return known->second;
    Node copy = graph_.nodes[producer];
    for (Value& input : copy.inputs) input.buffer = buffer_for(input.buffer, group);
    const int to = static_cast<int>(graph_.buffers.size());
    graph_.buffers.push_back(graph_.buffers[buffer]);
    copy.outputs[0].buffer = to;
    nodes_.push_back(std::move(copy));
    copies_[{group, buffer}] = to;
    return to;
  }

  Graph& graph_;
  const GroupsOfCalls& groups_;
  Flow flow_;
  std::vector<std::set<Place>> reads_;  // values that a group reads
  // By buffer: the groups that read it for a recomputation, and the call that is recomputed.
  std::map<int, std::map<int, int>> leaf_of_;
  std::set<std::pair<int, int>> repeated_;  // groups, and calls that they repeat
  std::set<int> dropped_, added_;           // buffers no longer stored; newly stored
  std::map<std::pair<int, int>, int> copies_;
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<bool> recompute_for_readers(Graph& graph, const GroupsOfCalls& groups) {
  return Recomputation(graph, groups).run();
}

}  // namespace brrr::graph
