// Rewrites a graph so that its backward pass recomputes values.
#include "brrr/graph/rematerialize.h"

#include <algorithm>
#include <set>
#include <utility>

namespace brrr::graph {
namespace {

// Inserts copies of calls before the calls of the backward pass that read their results.
//
// The backward pass traverses the segments of the forward pass from the last to the first. Readers
// in one segment share a copy; a reader in another segment gets its own, so that copies are not
// live across segments.
class Rewrite {
 public:
  Rewrite(const Graph& graph, const Partition& partition, const std::vector<bool>& recomputed,
          std::vector<int> segment, bool own_copies)
      : from_(graph),
        partition_(partition),
        recomputed_(recomputed),
        segment_(std::move(segment)),
        own_copies_(own_copies),
        copies_(2 * graph.nodes.size()) {}

  Rewritten run() {
    to_ = from_;
    std::vector<Node> nodes = std::exchange(to_.nodes, {});
    to_.nodes.reserve(2 * nodes.size());
    for (const Node& node : nodes) recomputation_ = std::max(recomputation_, node.recomputation);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const int call = static_cast<int>(i);
      Node& node = nodes[i];
      if (partition_.is_forward(call)) {
        current_ = segment_[i];
      } else {
        move_on(node);
        ++recomputation_;
        make_copies(node);
        read_copies(node, false);
      }
      to_.nodes.push_back(std::move(node));
    }
    remove_dead(to_);
    return {std::move(to_), std::move(recomputed_calls_)};
  }

 private:
  struct CallCopy {
    std::vector<int> buffers;
    int segment = -1;  // of the backward pass when it was last read
  };

  // The call that produces a buffer, if it is recomputed; else -1.
  int producer_of(int buffer) const {
    const int producer = partition_.flow().producer(buffer);
    return producer >= 0 && recomputed_[producer] ? producer : -1;
  }

  // Advances to the segment whose gradient a call may compute, which is decided by its operands.
  void move_on(const Node& node) {
    int reached = -1;
    for (const Value& input : node.inputs) {
      const int producer =
          from_.is_temporary(input.buffer) ? partition_.flow().producer(input.buffer) : -1;
      if (producer < 0 || !partition_.is_forward(producer)) continue;
      const auto look = [&](int call) {
        if (partition_.is_forward(call) && segment_[call] <= current_)
          reached = std::max(reached, segment_[call]);
      };
      look(producer);
      for (const int reader : partition_.flow().readers(input.buffer)) look(reader);
    }
    if (reached >= 0) current_ = reached;
  }

  // A call, and whether the copy is for products alone.
  using Copied = std::pair<int, bool>;

  Copied copied(int call, const Node& reader, bool is_own) const {
    return {call, own_copies_ && partition_.is_cheap_in_reader(call) &&
                      (is_own || partition_.reads_memory(reader))};
  }
  CallCopy& of(Copied which) { return copies_[2 * which.first + which.second]; }
  const CallCopy& of(Copied which) const { return copies_[2 * which.first + which.second]; }

  bool is_fresh(Copied which) const {
    const CallCopy& copy = of(which);
    return copy.segment >= 0 && (copy.segment == current_ || segment_[which.first] == current_);
  }

  // Copies of all calls that `reader` needs again, in the order of the graph.
  void make_copies(const Node& reader) {
    std::set<Copied> needed;
    std::vector<std::pair<const Node*, bool>> open = {{&reader, false}};
    while (!open.empty()) {
      const auto [node, is_own] = open.back();
      open.pop_back();
      for (const Value& input : node->inputs) {
        const int producer = producer_of(input.buffer);
        if (producer < 0) continue;
        const Copied which = copied(producer, *node, is_own);
        if (needed.contains(which)) continue;
        if (is_fresh(which)) {
          of(which).segment = current_;
        } else {
          needed.insert(which);
          open.emplace_back(&from_.nodes[producer], which.second);
        }
      }
    }
    for (const Copied& which : needed) copy(which);
  }

  void copy(Copied which) {
    const int call = which.first;
    recomputed_calls_.push_back(call);
    Node node = from_.nodes[call];
    read_copies(node, which.second);
    node.role = Role::backward;
    node.recomputation = recomputation_;
    CallCopy& copy = of(which);
    copy = {{}, current_};
    for (Value& output : node.outputs) {
      to_.buffers.push_back(from_.buffers[output.buffer]);
      copy.buffers.push_back(output.buffer = static_cast<int>(to_.buffers.size()) - 1);
    }
    to_.nodes.push_back(std::move(node));
  }

  void read_copies(Node& reader, bool is_own) const {
    for (Value& input : reader.inputs) {
      const int producer = producer_of(input.buffer);
      if (producer < 0) continue;
      const std::vector<Value>& outputs = from_.nodes[producer].outputs;
      const auto output = std::ranges::find(outputs, input.buffer, &Value::buffer);
      input.buffer = of(copied(producer, reader, is_own)).buffers[output - outputs.begin()];
    }
  }

  const Graph& from_;
  const Partition& partition_;
  const std::vector<bool>& recomputed_;
  const std::vector<int> segment_;
  const bool own_copies_;
  std::vector<CallCopy> copies_;  // the latest ones of each call
  Graph to_;
  std::vector<int> recomputed_calls_;
  int current_ = 0, recomputation_ = 0;
};

}  // namespace

Rewritten recompute_calls(const Graph& graph, const Partition& partition,
                          const std::vector<bool>& recomputed, std::vector<int> segments,
                          bool own_copies) {
  return Rewrite(graph, partition, recomputed, std::move(segments), own_copies).run();
}

}  // namespace brrr::graph
