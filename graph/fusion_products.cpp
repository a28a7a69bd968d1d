// Matrix products among the groups: reductions that they can make of their factors, and products in
// one launch.
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion.h"

namespace brrr::graph {

using std::int64_t;

GroupsOfCalls Fusion::groups() const {
  GroupsOfCalls groups{group_of_, opaque_};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (contraction_in(groups_[g])) groups.opaque[g] = true;
  }
  return groups;
}

void Fusion::merge_reductions_of_factors() {
  const int count = static_cast<int>(groups_.size());
  std::vector<int> reductions;
  for (int g = 0; g < count; ++g) {
    if (is_live(g) && groups_[g].reduces() && !contraction_in(groups_[g])) reductions.push_back(g);
  }
  for (int g = 0; g < count; ++g) {
    if (!is_live(g) || !contraction_in(groups_[g])) continue;
    for (const int reduction : reductions) {
      if (!is_live(reduction)) continue;
      std::optional<Group> merged = with_reduction(g, reduction);
      if (merged && !has_path_between(g, reduction) && !has_path_between(reduction, g))
        replace(g, reduction, std::move(*merged));
    }
  }
}

void Fusion::pair_products() {
  std::map<std::pair<int, int>, std::vector<int>> readers;  // groups, by what a factor is
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    const Member* product = is_live(g) ? contraction_in(groups_[g]) : nullptr;
    for (std::size_t k = 0; product && k < 2; ++k) {
      const Source& source = reads_.sources[product->node][k];
      if (source.node >= 0) readers[{source.node, source.output}].push_back(g);
    }
  }
  for (const auto& [source, groups] : readers) {
    for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
      const int one = groups[i], other = groups[i + 1];
      if (one == other || !is_single(one) || !is_single(other)) continue;
      if (share_of(one) + share_of(other) > 1 || !is_independent(one, other)) continue;
      for (const Member& member : groups_[other].members) group_of_[member.node] = one;
      beside_[one] = std::move(groups_[other]);
      groups_[other].members.clear();
      work_[one] += work_[other];
      furthest_.raise(first_call(one), last_call(one));
    }
  }
}

bool Fusion::is_independent(int one, int other) {
  const auto precedes = [&](int from, int to) {
    bool direct = false;
    each_call(from, [&](int call) {
      for (const int next : reads_.successors[call]) direct |= group_of_[next] == to;
    });
    return direct || has_path_between(from, to);
  };
  return !precedes(one, other) && !precedes(other, one);
}

double Fusion::share_of(int g) const {
  const FusedKernel kernel = *build(groups_[g]);
  return share_of_device(graph_.device, *kernel.spec, strides_of(kernel));
}

const Member* Fusion::contraction_in(const Group& group) const {
  const auto found = std::ranges::find_if(group.members, [&](const Member& member) {
    return op_info(graph_.nodes[member.node].call.op).algebra == Algebra::contraction;
  });
  return found == group.members.end() ? nullptr : &*found;
}

std::optional<Group> Fusion::with_reduction(int product, int reduction) const {
  const Group& to = groups_[product];
  const Member& contraction = *contraction_in(to);
  const Member& reader = groups_[reduction].members.front();
  for (std::size_t k = 0; k < 2; ++k) {
    const Access& factor = contraction.inputs[k];
    if (reader.inputs.empty() || reader.inputs[0].buffer != factor.buffer ||
        reader.inputs[0].offset != factor.offset || reader.inputs[0].dtype != factor.dtype ||
        !(reads_.sources[reader.node][0] == reads_.sources[contraction.node][k]))
      continue;
    Group from = groups_[reduction];
    for (int d = from.rank() - 2; d >= 0; --d) from.join(d);
    if (!spread(from, Access(from.members.front().inputs[0]), to, factor)) continue;
    Group merged = to;
    for (Member& member : from.members) merged.members.push_back(std::move(member));
    std::ranges::sort(merged.members, {}, &Member::node);
    if (build(merged)) return merged;
  }
  return {};
}

}  // namespace brrr::graph
