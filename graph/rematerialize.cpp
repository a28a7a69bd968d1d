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
          std::vector<int> segment, bool own_copies)
      : from_(graph),
        partition_(partition),
        again_(again),
        segment_(std::move(segment)),
        own_copies_(own_copies),
        copies_(2 * graph.nodes.size()) {}

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
        read_copies(node, false);
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

  // A call, and whether the copy is one of those that products have of their own.
  using Copied = std::pair<int, bool>;

  Copied copied(int call, const Node& reader, bool is_own) const {
    return {call, own_copies_ && partition_.is_cheap_in_reader(call) &&
                      (is_own || partition_.reads_memory(reader))};
  }
  Copy& of(Copied which) { return copies_[2 * which.first + which.second]; }
  const Copy& of(Copied which) const { return copies_[2 * which.first + which.second]; }

  bool is_fresh(Copied which) const {
    const Copy& copy = of(which);
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
        const int maker = maker_of(input.buffer);
        if (maker < 0) continue;
        const Copied which = copied(maker, *node, is_own);
        if (needed.contains(which)) continue;
        if (is_fresh(which)) {
          of(which).segment = current_;
        } else {
          needed.insert(which);
          open.emplace_back(&from_.nodes[maker], which.second);
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
    Copy& copy = of(which);
    copy = {{}, current_};
    for (Value& output : node.outputs) {
      to_.buffers.push_back(from_.buffers[output.buffer]);
      copy.buffers.push_back(output.buffer = static_cast<int>(to_.buffers.size()) - 1);
    }
    to_.nodes.push_back(std::move(node));
  }

  void read_copies(Node& reader, bool is_own) const {
    for (Value& input : reader.inputs) {
      const int maker = maker_of(input.buffer);
      if (maker < 0) continue;
      const std::vector<Value>& outputs = from_.nodes[maker].outputs;
      const auto output = std::ranges::find(outputs, input.buffer, &Value::buffer);
      input.buffer = of(copied(maker, reader, is_own)).buffers[output - outputs.begin()];
    }
  }

  const Graph& from_;
  const Partition& partition_;
  const std::vector<bool>& again_;
  const std::vector<int> segment_;
  const bool own_copies_;
  std::vector<Copy> copies_;  // the latest ones of each call
  Graph to_;
  std::vector<int> recomputed_calls_;
  int current_ = 0, recomputation_ = 0;
};

}  // namespace

Rewritten compute_again(const Graph& graph, const Partition& partition,
                        const std::vector<bool>& again, std::vector<int> segments,
                        bool own_copies) {
  return Rewrite(graph, partition, again, std::move(segments), own_copies).run();
}

}  // namespace brrr::graph
