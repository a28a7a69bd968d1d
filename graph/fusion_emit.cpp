// Emits the graph whose nodes are the groups, in topological order.
#include <string>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion.h"
#include "brrr/graph/fusion_indexed.h"

namespace brrr::graph {

using std::int64_t;

int Fusion::emit() {
  note_unfused();
  const std::vector<int> order = order_of_groups();
  std::vector<Node> nodes;
  for (const int g : order) {
    const Group& group = groups_[g];
    if (!paired_[g].members.empty()) {
      nodes.push_back(together(node_of(group), node_of(paired_[g])));
    } else if (group.members.size() == 1 && !is_body_alone(g)) {
      nodes.push_back(std::move(graph_.nodes[group.members[0].node]));
      nodes.back().calls = {nodes.back().number};
    } else {
      nodes.push_back(node_of(group));
    }
  }
  return replace_nodes(graph_, std::move(nodes));
}

void Fusion::note_unfused() {
  const std::size_t calls = graph_.nodes.size();
  for (std::size_t i = 0; i < calls; ++i) {
    const Node& node = graph_.nodes[i];
    std::vector<std::pair<int, int>> known;
    for (const Source& source : dependences_.sources[i]) {
      if (source.node < 0 || fills_.contains(graph_.nodes[source.node].outputs[0].buffer) ||
          group_of_[source.node] == group_of_[i])
        continue;
      const std::pair edge{source.node, source.output};
      if (std::ranges::find(known, edge) != known.end()) continue;
      known.push_back(edge);
      const int from = group_of_[source.node], to = group_of_[i];
      const auto tried = why_not_.find({from, to});
      const Node& producer = graph_.nodes[source.node];
      const bool is_opaque = opaque_[from] || opaque_[to] || tried == why_not_.end();
      auto apart = graph_.apart.find(producer.number);
      if (apart == graph_.apart.end()) apart = graph_.apart.find(node.number);
      graph_.unfused.push_back({.why = apart != graph_.apart.end() ? apart->second
                                       : is_opaque                 ? WhyNotFused::opaque_call
                                                                   : tried->second,
                                .producer = producer.number,
                                .consumer = node.number,
                                .value = producer.outputs[source.output],
                                .producer_op = producer.call.op,
                                .consumer_op = node.call.op,
                                .is_producer_opaque = opaque_[from],
                                .producer_site = producer.site,
                                .consumer_site = node.site});
    }
  }
}

bool Fusion::is_body_alone(int g) const {
  if (!is_live(g)) return false;
  if (contraction_in(groups_[g])) return is_better_alone(graph_, *build(groups_[g]));
  return graph_.device.is_cuda() && op_info(graph_.nodes[g].call.op).algebra == Algebra::embedding;
}

Node Fusion::together(const Node& one, const Node& other) {
  auto spec = std::make_shared<BodySpec>(*one.body);
  spec->next = other.body;
  const auto joined = [](auto a, const auto& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  Node node = fused_node(std::move(spec), joined(one.inputs, other.inputs),
                         joined(one.outputs, other.outputs), joined(one.fused, other.fused));
  static_cast<Origin&>(node) = one;
  node.call.in_place = one.call.in_place || other.call.in_place;
  node.calls = joined(one.calls, other.calls);
  return node;
}

Node Fusion::node_of(const Group& group) const {
  FusedKernel kernel = *build(group);
  const Node& last = graph_.nodes[group.members.back().node];
  std::vector<std::string> names;
  for (const Member& member : group.members)
    names.emplace_back(op_info(graph_.nodes[member.node].call.op).name);
  Node node = fused_node(kernel.spec, kernel.inputs, kernel.outputs, std::move(names));
  static_cast<Origin&>(node) = last;
  // Only calls that check can report an error, so their site is the kernel's.
  const auto checking = std::ranges::find_if(group.members, [this](const Member& member) {
    return may_report(graph_.nodes[member.node]);
  });
  if (checking != group.members.end()) {
    node.site = graph_.nodes[checking->node].site;
    node.composite = nullptr;
  }
  for (const Member& member : group.members) {
    node.call.in_place |= graph_.nodes[member.node].call.in_place;
    node.calls.push_back(graph_.nodes[member.node].number);
  }
  return node;
}

int Fusion::due(int group, const std::vector<int>& readers) const {
  int due = last_call(group);
  const auto is_of_forward_pass = [this](const Member& member) {
    const Node& node = graph_.nodes[member.node];
    return node.role == Role::forward && node.recomputation == 0;
  };
  if (!std::ranges::any_of(groups_[group].members, is_of_forward_pass)) return due;
  for (const int reader : readers) due = std::min(due, last_call(reader));
  return due;
}

std::vector<int> Fusion::order_of_groups() const {
  std::vector<int> waits(groups_.size(), 0);
  std::vector<std::vector<int>> next(groups_.size());
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const int to = group_of_[i];
    for (const int before : dependences_.predecessors[i]) {
      const int from = group_of_[before];
      if (from == to) continue;
      next[from].push_back(to);
      ++waits[to];
    }
  }
  using DueGroup = std::pair<int, int>;  // when a group is due, and the group
  std::priority_queue<DueGroup, std::vector<DueGroup>, std::greater<>> ready;
  const auto add = [&](int g) { ready.push({due(g, next[g]), g}); };
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].members.empty() && waits[g] == 0) add(static_cast<int>(g));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int g = ready.top().second;
    ready.pop();
    order.push_back(g);
    for (const int to : next[g]) {
      if (--waits[to] == 0) add(to);
    }
  }
  return order;
}

}  // namespace brrr::graph
