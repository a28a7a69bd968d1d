// Fusion of matrix products: reductions of a product's factors join its kernel, and two products
// share a launch.
#include <algorithm>
#include <map>
#include <set>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion.h"

namespace brrr::graph {

using std::int64_t;

GroupsOfCalls Fusion::groups() const {
  GroupsOfCalls groups{group_of_, opaque_, std::vector<bool>(groups_.size(), false)};
  const auto add_product = [&](int g, const Group& group) {
    if (!contraction_in(group)) return;
    groups.computes_factors[g] = !groups.opaque[g] && share_of(group) < 1;
    groups.opaque[g] = true;
  };
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    add_product(g, groups_[g]);
    if (paired_[g].members.empty()) continue;
    const int second = paired_[g].members.front().node;
    for (const Member& member : paired_[g].members) groups.group[member.node] = second;
    add_product(second, paired_[g]);
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
      std::optional<Group> merged = with_reduction(groups_[g], groups_[reduction]);
      if (merged && !has_path_between(g, reduction) && !has_path_between(reduction, g))
        replace(g, reduction, std::move(*merged));
    }
  }
}

void Fusion::pair_products() {
  std::vector<int> small, in_tiles;
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (is_live(g) && contraction_in(groups_[g]))
      (share_of(groups_[g]) < 1 ? small : in_tiles).push_back(g);
  }
  for (std::vector<int>* products : {&small, &in_tiles})
    std::ranges::sort(*products, {}, [this](int g) { return last_call(g); });
  const Pairs of_factors = readers_of_one_factor(small), later = pairs_with_next(small);
  // A further launch costs as much time as this many pairs save, which load factors early.
  constexpr std::size_t kPairsOfLaunch = 16;
  const std::size_t more = of_factors.size() - std::min(later.size(), of_factors.size());
  if (!graph_.least_memory && more * kPairsOfLaunch <= later.size()) {
    for (const auto& [one, other] : later) pair(one, other);
  }
  for (const auto& [one, other] : of_factors) pair(one, other);
  for (const auto& [one, other] : readers_of_one_factor(in_tiles)) pair(one, other);
}

bool Fusion::may_pair(int one, int other) {
  return one != other && is_single(one) && is_single(other) && are_better_together(one, other) &&
         is_independent(one, other);
}

void Fusion::pair(int one, int other) {
  if (!may_pair(one, other)) return;
  for (const Member& member : groups_[other].members) group_of_[member.node] = one;
  paired_[one] = std::move(groups_[other]);
  groups_[other].members.clear();
  work_[one] += work_[other];
  furthest_.raise(first_call(one), last_call(one));
}

Fusion::Pairs Fusion::pairs_with_next(const std::vector<int>& products) {
  const std::vector<bool> leads = leads_to_product();
  struct Waiting {
    int product, passed;
  };
  constexpr int kMostPassed = 2;  // limits how long a deferred product keeps its factors in memory
  std::vector<Waiting> waiting;
  Pairs pairs;
  const auto pair_first = [&](int g) {
    const auto found = std::ranges::find_if(waiting, [&](const Waiting& other) {
      return !have_factor_in_common(g, other.product) && may_pair(g, other.product);
    });
    if (found == waiting.end()) return;
    pairs.emplace_back(g, found->product);
    waiting.erase(found);
  };
  for (const int g : products) {
    if (!leads[contraction_in(groups_[g])->node]) {
      waiting.push_back({g, 0});
      continue;
    }
    pair_first(g);
    for (Waiting& other : waiting) ++other.passed;
    std::erase_if(waiting, [](const Waiting& other) { return other.passed == kMostPassed; });
  }
  while (waiting.size() > 1) {
    const int g = waiting.back().product;
    waiting.pop_back();
    pair_first(g);
  }
  return pairs;
}

std::vector<bool> Fusion::leads_to_product() const {
  const int calls = static_cast<int>(graph_.nodes.size());
  std::vector<bool> leads(graph_.nodes.size(), false);
  for (int call = calls - 1; call >= 0; --call) {
    for (const int next : dependences_.successors[call]) {
      if (leads[next] || op_info(graph_.nodes[next].call.op).algebra == Algebra::contraction)
        leads[call] = true;
    }
  }
  return leads;
}

std::vector<Source> Fusion::factors_of(int product) const {
  const Member& member = *contraction_in(groups_[product]);
  std::vector<Source> factors;
  for (std::size_t k = 0; k < 2; ++k) {
    const Source& source = dependences_.sources[member.node][k];
    if (source.node >= 0) factors.push_back(source);
  }
  return factors;
}

bool Fusion::have_factor_in_common(int one, int other) const {
  const std::vector<Source> factors = factors_of(one);
  return std::ranges::any_of(factors_of(other), [&](const Source& factor) {
    return std::ranges::find(factors, factor) != factors.end();
  });
}

Fusion::Pairs Fusion::readers_of_one_factor(const std::vector<int>& products) {
  std::map<std::pair<int, int>, std::vector<int>> readers;  // products, by the result they read
  for (const int g : products) {
    for (const Source& factor : factors_of(g)) readers[{factor.node, factor.output}].push_back(g);
  }
  std::set<int> paired;
  Pairs pairs;
  for (const auto& [factor, groups] : readers) {
    for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
      const int one = groups[i], other = groups[i + 1];
      if (paired.contains(one) || paired.contains(other) || !may_pair(one, other)) continue;
      paired.insert({one, other});
      pairs.emplace_back(one, other);
    }
  }
  return pairs;
}

int Fusion::furthest_before(int call) const {
  for (;;) {
    const int furthest = furthest_.up_to(call);
    if (furthest <= call) return call;
    call = furthest;
  }
}

bool Fusion::has_path_between(int from, int to) {
  struct End {
    int mark;
    const std::vector<std::vector<int>>& next;
    std::vector<int> left;  // groups whose neighbours were not visited
  };
  End after{++search_, dependences_.successors, {from}};
  End before{++search_, dependences_.predecessors, {to}};
  seen_[from] = after.mark, seen_[to] = before.mark;
  const int last = furthest_before(last_call(to));
  const auto meets = [&](End& end, const End& other) {
    const int group = end.left.back();
    end.left.pop_back();
    bool met = false;
    each_call(group, [&](int call) {
      for (const int next : end.next[call]) {
        const int of = group_of_[next];
        if ((group == from && of == to) || (group == to && of == from) || seen_[of] == end.mark ||
            first_call(of) > last)
          continue;
        met |= seen_[of] == other.mark;
        seen_[of] = end.mark;
        end.left.push_back(of);
      }
    });
    return met;
  };
  for (int visited = 0; !after.left.empty() && !before.left.empty(); ++visited)
    if (visited > kMostVisited || meets(after, before) || meets(before, after)) return true;
  return false;
}

bool Fusion::is_independent(int one, int other) {
  const auto precedes = [&](int from, int to) {
    bool direct = false;
    each_call(from, [&](int call) {
      for (const int next : dependences_.successors[call]) direct |= group_of_[next] == to;
    });
    return direct || has_path_between(from, to);
  };
  return !precedes(one, other) && !precedes(other, one);
}

bool Fusion::are_better_together(int one, int other) const {
  const FusedKernel of_one = *build(groups_[one]), of_other = *build(groups_[other]);
  return brrr::are_better_together(graph_.device, {*of_one.spec, strides_of(of_one)},
                                   {*of_other.spec, strides_of(of_other)});
}

double Fusion::share_of(const Group& product) const {
  const FusedKernel kernel = *build(product);
  return share_of_device(graph_.device, *kernel.spec, strides_of(kernel));
}

const Member* Fusion::contraction_in(const Group& group) const {
  const auto found = std::ranges::find_if(group.members, [&](const Member& member) {
    return !opaque_[member.node] &&
           op_info(graph_.nodes[member.node].call.op).algebra == Algebra::contraction;
  });
  return found == group.members.end() ? nullptr : &*found;
}

std::optional<Group> Fusion::with_reduction(const Group& to, const Group& reduction) const {
  const Member& contraction = *contraction_in(to);
  const Member& reader = reduction.members.front();
  for (std::size_t k = 0; k < 2; ++k) {
    const Access& factor = contraction.inputs[k];
    if (reader.inputs.empty() || reader.inputs[0].buffer != factor.buffer ||
        reader.inputs[0].offset != factor.offset || reader.inputs[0].dtype != factor.dtype ||
        !(dependences_.sources[reader.node][0] == dependences_.sources[contraction.node][k]))
      continue;
    Group from = reduction;
    for (int d = from.rank() - 2; d >= 0; --d) from.join(d);
    if (!spread(from, Access(from.members.front().inputs[0]), to, factor)) continue;
    Group merged = to;
    for (Member& member : from.members) merged.members.push_back(std::move(member));
    std::ranges::sort(merged.members, {}, &Member::node);
    if (build(merged)) return merged;
  }
  return {};
}

bool Fusion::is_taken_by_product(const Group& reduction) const {
  const Source& source = dependences_.sources[reduction.members.front().node].front();
  if (source.node < 0) return false;
  return std::ranges::any_of(dependences_.readers[source.node], [&](int reader) {
    const Group& product = groups_[group_of_[reader]];
    return contraction_in(product) && with_reduction(product, reduction);
  });
}

}  // namespace brrr::graph
