// Owns the rewriting of a graph whose backward pass computes values again.
#include "brrr/graph/rematerialize.h"

#include <algorithm>
#include <set>

namespace brrr::graph {
namespace {

// Puts copies of calls in front of the calls of the backward pass that read their results.
//
// The backward pass goes through the segments of the forward pass from the last to the first. Calls
// of one segment share copies. A copy does not live on to another segment: a call there gets one of
// its own.
class Rewrite {
 public:
  Rewrite(const Graph& graph, const Partition& partition, const std::vector<bool>& again,
          std::vector<int> segment)
      : from_(graph),
        partition_(partition),
        again_(again),
        segment_(std::move(segment)),
        copies_(graph.nodes.size()) {}

  Rewritten run() {
    to_ = from_;
    to_.nodes.clear();
    for (const Node& node : from_.nodes)
      recomputation_ = std::max(recomputation_, node.recomputation);
    for (std::size_t i = 0; i < from_.nodes.size(); ++i) {
      const int call = static_cast<int>(i);
      Node node = from_.nodes[i];
      if (partition_.is_forward(call)) {
        current_ = segment_[i];
      } else {
        move_on(node);
        ++recomputation_;
        make_copies(node);
        for (Value& input : node.inputs) input.buffer = copy_of(input.buffer);
      }
      to_.nodes.push_back(std::move(node));
    }
    remove_dead(to_);
    return {std::move(to_), std::move(recomputed_calls_)};
  }

 private:
  struct Copy {
    std::vector<int> buffers;
    int segment = -1;  // of the backward pass when it was last read
  };

  // The call that makes a buffer and runs again; -1: none.
  int maker_of(int buffer) const {
    const int maker = partition_.flow().producer(buffer);
    return maker >= 0 && again_[maker] ? maker : -1;
  }

  // The segment that the backward pass comes to with a call: the last one of which it may be the
  // gradient, by what it reads.
  void move_on(const Node& node) {
    int reached = -1;
    for (const Value& input : node.inputs) {
      const int maker =
          from_.is_temporary(input.buffer) ? partition_.flow().producer(input.buffer) : -1;
      if (maker < 0 || !partition_.is_forward(maker)) continue;
      const auto look = [&](int call) {
        if (partition_.is_forward(call) && segment_[call] <= current_)
          reached = std::max(reached, segment_[call]);
      };
      look(maker);
      for (const int reader : partition_.flow().readers(input.buffer)) look(reader);
    }
    if (reached >= 0) current_ = reached;
  }

  bool is_fresh(int call) const {
    const Copy& copy = copies_[call];
    return copy.segment >= 0 && (copy.segment == current_ || segment_[call] == current_);
  }

  // Copies of all calls that `reader` needs again, in the order of the graph.
  void make_copies(const Node& reader) {
    std::set<int> needed;
    std::vector<const Node*> open = {&reader};
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      for (const Value& input : node.inputs) {
        const int maker = maker_of(input.buffer);
        if (maker < 0 || needed.contains(maker)) continue;
        if (is_fresh(maker)) {
          copies_[maker].segment = current_;
        } else {
          needed.insert(maker);
          open.push_back(&from_.nodes[maker]);
        }
      }
    }
    for (const int call : needed) copy(call);
  }

  void copy(int call) {
    recomputed_calls_.push_back(call);
    Node node = from_.nodes[call];
    node.role = Role::backward;
    node.recomputation = recomputation_;
    for (Value& input : node.inputs) input.buffer = copy_of(input.buffer);
    Copy& copy = copies_[call];
    copy = {{}, current_};
    for (Value& output : node.outputs) {
      to_.buffers.push_back(from_.buffers[output.buffer]);
      copy.buffers.push_back(output.buffer = static_cast<int>(to_.buffers.size()) - 1);
    }
    to_.nodes.push_back(std::move(node));
  }

  int copy_of(int buffer) const {
    const int maker = maker_of(buffer);
    if (maker < 0) return buffer;
    const std::vector<Value>& outputs = from_.nodes[maker].outputs;
    const auto output = std::ranges::find(outputs, buffer, &Value::buffer);
    return copies_[maker].buffers[output - outputs.begin()];
  }

  const Graph& from_;
  const Partition& partition_;
  const std::vector<bool>& again_;
  const std::vector<int> segment_;
  std::vector<Copy> copies_;  // the latest one of each call
  Graph to_;
  std::vector<int> recomputed_calls_;
  int current_ = 0, recomputation_ = 0;
};

}  // namespace

Rewritten compute_again(const Graph& graph, const Partition& partition,
                        const std::vector<bool>& again, std::vector<int> segments) {
  return Rewrite(graph, partition, again, std::move(segments)).run();
}

}  // namespace brrr::graph
