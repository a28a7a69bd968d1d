#include "brrr/graph/min_cut.h"

#include <algorithm>
#include <numeric>

namespace brrr::graph {

std::optional<std::int64_t> MinCut::run(int source, int sink) {
  std::int64_t finite = 0;
  for (const Added& edge : added_) finite += std::max<std::int64_t>(edge.capacity, 0);
  lay_out(finite + 1);
  std::int64_t flow = 0;
  while (find_levels(source, sink)) {
    std::copy(start_.begin(), start_.end() - 1, next_.begin());
    while (const std::int64_t more = augment(source, sink)) {
      flow += more;
      if (flow > finite) return std::nullopt;
    }
  }
  return flow;
}

void MinCut::lay_out(std::int64_t unbounded) {
  start_.assign(vertices_ + 1, 0);
  for (const Added& edge : added_) {
    ++start_[edge.from + 1];
    ++start_[edge.to + 1];
  }
  std::partial_sum(start_.begin(), start_.end(), start_.begin());
  arcs_.resize(2 * added_.size());
  next_.assign(start_.begin(), start_.end() - 1);
  for (const Added& edge : added_) {
    const int there = next_[edge.from]++, back = next_[edge.to]++;
    arcs_[there] = {edge.to, back, edge.capacity == kUnbounded ? unbounded : edge.capacity};
    arcs_[back] = {edge.from, there, 0};
  }
}

bool MinCut::find_levels(int source, int sink) {
  level_.assign(vertices_, -1);
  queue_.assign(1, source);
  level_[source] = 0;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const int from = queue_[i];
    for (int e = start_[from]; e < start_[from + 1]; ++e) {
      const Arc& arc = arcs_[e];
      if (arc.residual == 0 || level_[arc.to] >= 0) continue;
      level_[arc.to] = level_[from] + 1;
      queue_.push_back(arc.to);
    }
  }
  return level_[sink] >= 0;
}

// Sends flow along one path of increasing levels and returns its amount; 0: there is no path.
std::int64_t MinCut::augment(int source, int sink) {
  path_.clear();
  int vertex = source;
  while (vertex != sink) {
    int& e = next_[vertex];
    const auto leads_on = [&](const Arc& arc) {
      return arc.residual > 0 && level_[arc.to] == level_[vertex] + 1;
    };
    while (e < start_[vertex + 1] && !leads_on(arcs_[e])) ++e;
    if (e < start_[vertex + 1]) {
      path_.push_back(e);
      vertex = arcs_[e].to;
    } else if (path_.empty()) {
      return 0;
    } else {
      vertex = arcs_[arcs_[path_.back()].reverse].to;
      path_.pop_back();
      ++next_[vertex];
    }
  }
  std::int64_t flow = arcs_[path_.front()].residual;
  for (const int e : path_) flow = std::min(flow, arcs_[e].residual);
  for (const int e : path_) {
    arcs_[e].residual -= flow;
    arcs_[arcs_[e].reverse].residual += flow;
  }
  return flow;
}

}  // namespace brrr::graph
