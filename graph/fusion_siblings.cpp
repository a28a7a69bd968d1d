// Merges independent groups that read the same elements, so that these are read once.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion.h"
#include "brrr/ops/jit/schedule.h"

namespace brrr::graph {

using std::int64_t;

Fusion::Pairs Fusion::neighbours_with_reductions() const {
  // By the value in common: {node, output}, or {-1, buffer} if no node has written it; and by where
  // it is read. All norms read the flat tensor of parameters, each at another offset.
  std::map<std::tuple<int, int, int64_t>, std::set<int>> groups;
  const auto has_reductions = [this](int g) {
    return is_live(g) && groups_[g].reduces() && !contraction_in(groups_[g]);
  };
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (!has_reductions(g)) continue;
    for (const Member& member : groups_[g].members) {
      for (std::size_t k = 0; k < member.inputs.size(); ++k) {
        const Source source = dependences_.sources[member.node][k];
        const Access& read = member.inputs[k];
        const bool is_written = source.node >= 0;
        if (is_written && group_of_[source.node] == g) continue;
        std::set<int>& of =
            groups[{source.node, is_written ? source.output : read.buffer, read.offset}];
        of.insert(g);
        if (is_written && has_reductions(group_of_[source.node])) of.insert(group_of_[source.node]);
      }
    }
  }
  Pairs pairs;
  for (const auto& [value, of] : groups) {
    for (auto one = of.begin(); one != of.end(); ++one) {
      for (auto other = std::next(one); other != of.end(); ++other)
        pairs.emplace_back(*one, *other);
    }
  }
  return pairs;
}

void Fusion::merge_siblings() {
  // Pairs that stay apart, with their versions.
  std::set<std::array<int, 4>> apart;
  for (const auto& [one, other] : neighbours_with_reductions()) {
    if (!is_live(one) || !is_live(other) ||
        !apart.insert({one, other, version_[one], version_[other]}).second)
      continue;
    if (is_made_early(one, other) || is_made_early(other, one)) continue;
    std::optional<Group> merged = side_by_side(one, other);
    if (merged) replace(one, other, std::move(*merged));
  }
}

bool Fusion::may_share_read(const Group& one, const Group& other) const {
  const auto reads_at = [this](const Group& group, const Access& access) {
    return std::ranges::any_of(group.members, [&](const Member& member) {
      for (std::size_t k = 0; k < member.inputs.size(); ++k) {
        const Access& read = member.inputs[k];
        if (read.buffer == access.buffer && read.offset == access.offset &&
            !is_in(group, dependences_.sources[member.node][k].node))
          return true;
      }
      return false;
    });
  };
  return one.count(false) * one.count(true) == other.count(false) * other.count(true) &&
         std::ranges::any_of(one.members, [&](const Member& member) {
           return std::ranges::any_of(
               member.inputs, [&](const Access& access) { return reads_at(other, access); });
         });
}

std::optional<Group> Fusion::side_by_side(int one, int other) {
  if (groups_[one].members.size() + groups_[other].members.size() >
          static_cast<std::size_t>(kMostMembers) ||
      !may_share_read(groups_[one], groups_[other]))
    return {};
  Group merged = groups_[one], more = groups_[other];
  for (Group* group : {&merged, &more}) {
    for (int d = group->rank() - 2; d >= 0; --d) group->join(d);
  }
  if (merged.sizes != more.sizes || merged.reduced != more.reduced) return {};
  // Both must read one tensor through the same access, and reduce their operands in the same order.
  const auto reduced = [this](const Group& group) {
    std::vector<const Access*> list;
    for (const Member& member : group.members) {
      if (op_info(graph_.nodes[member.node].call.op).kind == OpKind::reduction)
        list.push_back(&member.inputs[0]);
    }
    return list;
  };
  const auto loaded = [this](const Group& group) {
    std::vector<const Access*> list;
    for (const Member& member : group.members) {
      for (std::size_t k = 0; k < member.inputs.size(); ++k) {
        // A tensor that is filled with a number is not loaded.
        if (!is_in(group, dependences_.sources[member.node][k].node) && !fill_of(member, k))
          list.push_back(&member.inputs[k]);
      }
    }
    return list;
  };
  const auto of_elements = [&](const Access& access) {
    for (int d = 0; d < merged.rank(); ++d) {
      if (access.strides[d] == 0) return false;
    }
    return true;
  };
  bool shared = false;
  for (const Access* read : loaded(merged)) {
    for (const Access* same : loaded(more)) shared |= of_elements(*read) && *read == *same;
  }
  const Access& order = *reduced(merged).front();
  for (const Access* read : reduced(more)) shared &= read->strides == order.strides;
  // A body cannot gather from its own values: tested before the kernel is built.
  if (!shared || !is_independent(one, other)) return {};
  for (Member& member : more.members) merged.members.push_back(std::move(member));
  std::ranges::sort(merged.members, {}, &Member::node);
  const std::optional<FusedKernel> kernel = build(merged);
  if (!kernel || (mixes_directions(*kernel) && !mixes_[one] && !mixes_[other])) return {};
  return merged;
}

bool Fusion::merge_columns_into_rows() {
  if (!graph_.device.is_cuda()) return false;
  bool has_merged = false;
  for (const auto& [one, other] : neighbours_with_reductions()) {
    for (const auto& [rows, columns] : {std::pair(one, other), std::pair(other, one)}) {
      if (!is_live(rows) || !is_live(columns)) continue;
      std::optional<Group> merged = rows_with_columns(rows, columns);
      if (!merged) continue;
      replace(rows, columns, std::move(*merged));
      has_merged = true;
    }
  }
  return has_merged;
}

namespace {

// Of the inputs of elements.
int64_t bytes_of_column(const FusedKernel& kernel) {
  int64_t bytes = 0;
  for (const jit::Body::TensorOperand& input : kernel.spec->body.inputs) {
    if (input.scope == jit::Body::Scope::element)
      bytes += static_cast<int64_t>(size_of(input.dtype));
  }
  return bytes;
}

}  // namespace

std::optional<Group> Fusion::rows_with_columns(int rows, int columns) {
  const int64_t in_row = groups_[rows].count(true), in_column = groups_[rows].count(false);
  if (groups_[rows].members.size() + groups_[columns].members.size() >
          static_cast<std::size_t>(kMostMembers) ||
      groups_[columns].count(false) != in_row || groups_[columns].count(true) != in_column ||
      in_row == 1 || in_column == 1)
    return {};
  Group merged = groups_[rows], more = groups_[columns];
  for (Group* group : {&merged, &more}) {
    for (int d = group->rank() - 2; d >= 0; --d) group->join(d);
  }
  if (merged.sizes != more.sizes || !merged.reduced.back()) return {};
  for (int d = 0; d < merged.rank(); ++d) {
    if (merged.reduced[d] == more.reduced[d]) return {};
  }
  // A product reduces columns of a factor for less.
  if (is_taken_by_product(groups_[columns]) || is_made_early(rows, columns) ||
      is_made_early(columns, rows) || has_path_between(rows, columns) ||
      has_path_between(columns, rows))
    return {};
  for (Member& member : more.members) {
    if (member.reduces_columns) return {};
    member.reduces_columns = op_info(graph_.nodes[member.node].call.op).kind == OpKind::reduction;
  }
  more.reduced = merged.reduced;
  bool same = true;
  const auto compare = [&](const Access& read, const Access& made) {
    same &= read.strides == made.strides && read.offset == made.offset &&
            read.dtype == made.dtype && read.bounds.empty() && !read.address;
  };
  each_read(merged, more, compare);
  each_read(more, merged, compare);
  if (!same) return {};
  for (Member& member : more.members) merged.members.push_back(std::move(member));
  std::ranges::sort(merged.members, {}, &Member::node);
  const std::optional<FusedKernel> kernel = build(merged);
  if (!kernel || (mixes_directions(*kernel) && !mixes_[rows]) ||
      !jit::keeps_columns(in_row, bytes_of_column(*kernel)))
    return {};
  // The registers of a thread do not hold a row of f64 with its columns' accumulators. And kernels
  // that share no elements, but perhaps the state of a generator, stay apart.
  const Work work = work_of(*kernel, graph_.device);
  const int64_t saved = work_[rows].bytes + work_[columns].bytes - work.bytes;
  if (work.wide || saved < in_row * in_column) return {};
  return merged;
}

void Fusion::merge_recomputed() {
  const auto is_recomputed = [this](const Group& group) {
    return !group.reduces() && std::ranges::all_of(group.members, [this](const Member& member) {
      return graph_.nodes[member.node].recomputation != 0;
    });
  };
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (!is_live(g) || !is_recomputed(groups_[g])) continue;
    std::vector<int> readers;  // of what the group reads
    for (const Member& member : groups_[g].members) {
      for (const Value& input : graph_.nodes[member.node].inputs) {
        if (!is_of_one_layer(input.buffer, g)) continue;
        for (const int reader : flow_.readers(input.buffer)) readers.push_back(group_of_[reader]);
      }
    }
    std::ranges::sort(readers);
    readers.erase(std::ranges::unique(readers).begin(), readers.end());
    std::ranges::sort(readers, {}, [&](int reader) { return last_call(reader); });
    for (const int reader : readers) {
      if (reader == g || !is_live(reader) || contraction_in(groups_[reader]) ||
          is_made_early(reader, g))
        continue;
      std::optional<Group> merged = in_kernel_of_reader(g, reader);
      if (!merged) continue;
      replace(reader, g, std::move(*merged));
      break;
    }
  }
}

// Readers of a value that many layers read are far apart in program order: merging two of them
// would extend the lifetimes of other values. Readers of a value that one layer reads are near each
// other: both kernels of a norm's gradient, and the recomputed call.
bool Fusion::is_of_one_layer(int buffer, int recomputed) const {
  constexpr std::size_t kMost = 2;  // others
  std::vector<int> others;
  for (const int reader : flow_.readers(buffer)) {
    const int group = group_of_[reader];
    if (group == recomputed || graph_.nodes[reader].role != Role::backward ||
        std::ranges::find(others, group) != others.end())
      continue;
    if (others.size() == kMost) return false;
    others.push_back(group);
  }
  return true;
}

std::optional<Group> Fusion::in_kernel_of_reader(int recomputed, int reader) {
  if (groups_[recomputed].members.size() + groups_[reader].members.size() >
      static_cast<std::size_t>(kMostMembers))
    return {};
  // An access that both groups load, by the result that it reads.
  struct Load {
    Source source;
    Access access;
  };
  const auto loads_of = [this](const Group& group) {
    std::vector<Load> loads;
    for (const Member& member : group.members) {
      for (std::size_t k = 0; k < member.inputs.size(); ++k) {
        const Source source = dependences_.sources[member.node][k];
        const Access& access = member.inputs[k];
        if (access.address || !access.bounds.empty() || is_in(group, source.node)) continue;
        loads.push_back({source, access});
      }
    }
    return loads;
  };
  for (const Load& made : loads_of(groups_[recomputed])) {
    for (const Load& read : loads_of(groups_[reader])) {
      if (made.source != read.source || made.access.buffer != read.access.buffer) continue;
      if (!is_of_one_layer(made.access.buffer, recomputed)) continue;
      Group from = groups_[recomputed], to = groups_[reader];
      Access access = read.access;
      const std::optional<Correspondence> c =
          correspond_after_splits(to, access, from, made.access);
      if (!c || repeats(*c, to) || !covers(*c, to, from)) continue;
      if (!is_independent(recomputed, reader)) return {};
      pull(from, *c, to, {});
      for (Member& member : from.members) to.members.push_back(std::move(member));
      std::ranges::sort(to.members, {}, &Member::node);
      const std::optional<FusedKernel> kernel = build(to);
      if (!kernel || (mixes_directions(*kernel) && !mixes_[recomputed] && !mixes_[reader]))
        continue;
      if (ticks_of(work_of(*kernel, graph_.device)) <
          ticks_of(work_[recomputed]) + ticks_of(work_[reader]))
        return to;
    }
  }
  return {};
}

}  // namespace brrr::graph
