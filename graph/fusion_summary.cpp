// Merges that the operands of two groups decide: those over one space.
#include <algorithm>
#include <iterator>
#include <set>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion.h"
#include "brrr/ops/jit/add_call.h"

namespace brrr::graph {

using std::int64_t;

namespace {

// Whether each element of the space is at a place of its own, so that a read by the same strides
// reads in each step what this step writes.
bool has_place_for_each(const Access& access, const Group& group) {
  for (int d = 0; d < group.rank(); ++d) {
    if (access.strides[d] <= 0) return false;
    for (int e = 0; e < d; ++e) {
      if (access.strides[d] == access.strides[e]) return false;
    }
  }
  return access.bounds.empty() && !access.address;
}

}  // namespace

bool Fusion::is_regular(const Group& group, const FusedKernel& kernel) const {
  const jit::Body& body = kernel.spec->body;
  if (!body.checks.empty() || !body.indices.empty() || !kernel.spec->placed.empty()) return false;
  return std::ranges::all_of(group.members, [&](const Member& member) {
    const Node& node = graph_.nodes[member.node];
    const OpInfo& op = op_info(node.call.op);
    const bool has_kind = op.kind == OpKind::pointwise || op.kind == OpKind::formula ||
                          op.kind == OpKind::reduction || jit::is_copy(op);
    return has_kind && !needs_coordinates(op) && !node.call.in_place && op.effect == Effect::pure &&
           !member.reduces_columns && std::ranges::all_of(node.outputs, [&](const Value& output) {
             return graph_.is_temporary(output.buffer) &&
                    flow_.producer(output.buffer) == member.node;
           });
  });
}

Fusion::Summary Fusion::summary_of(int g, const FusedKernel& kernel) const {
  const auto inside = [&](int node) { return node >= 0 && group_of_[node] == g; };
  const Group& group = groups_[g];
  Summary summary;
  summary.regular = is_regular(group, kernel);
  const auto has = [&](const Access& access) {
    return std::ranges::any_of(summary.inputs, [&](const Summary::Operand& input) {
      return summary.regular ? input.access == access : input.access.buffer == access.buffer;
    });
  };
  for (const Member& member : group.members) {
    for (std::size_t k = 0; k < member.inputs.size(); ++k) {
      const Source source = dependences_.sources[member.node][k];
      if (!inside(source.node) && !fill_of(member, k) && !has(member.inputs[k]))
        summary.inputs.push_back({member.inputs[k], source});
    }
    for (int o = 0; o < static_cast<int>(member.outputs.size()); ++o) {
      if (is_needed(member.node, o, inside))
        summary.outputs.push_back({member.outputs[o], {member.node, o}});
    }
  }
  if (!summary.regular) return summary;
  const jit::Body& body = kernel.spec->body;
  summary.values = body.values.size() - body.inputs.size();
  summary.scalars = body.scalars.size();
  summary.work = work_of(kernel, graph_.device);
  summary.mixes = mixes_directions(kernel);
  // A kernel has inputs in the order of their first reads, and outputs in the order of the calls.
  const auto set_values = [](std::vector<Summary::Operand>& operands,
                             const std::vector<Value>& values) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      operands[i].value = values[i];
      operands[i].bytes = bytes_moved({&values[i], 1}, {});
      operands[i].conversions = conversions_of({&values[i], 1}, {});
    }
  };
  set_values(summary.inputs, kernel.inputs);
  set_values(summary.outputs, kernel.outputs);
  const std::vector<std::uint32_t> dims = dims_of_values(kernel);
  const std::uint32_t all = (std::uint32_t{1} << group.rank()) - 1;
  for (std::size_t o = 0; o < summary.outputs.size(); ++o) {
    summary.outputs[o].full =
        dims[body.outputs[o].value] == all && has_place_for_each(summary.outputs[o].access, group);
  }
  return summary;
}

bool Fusion::have_too_many_operands(int producer, int consumer) const {
  const auto inside = [&](int node) {
    return node >= 0 && (group_of_[node] == producer || group_of_[node] == consumer);
  };
  // Each buffer is at least one operand.
  std::set<int> read, written;
  for (const int group : {producer, consumer}) {
    for (const Summary::Operand& input : summaries_[group].inputs) {
      if (!inside(input.source.node)) read.insert(input.access.buffer);
    }
    for (const Summary::Operand& output : summaries_[group].outputs) {
      if (is_needed(output.source.node, output.source.output, inside))
        written.insert(output.access.buffer);
    }
  }
  return read.size() + written.size() > jit::Body::kMostOperands;
}

bool Fusion::are_over_one_space(int producer, int consumer) const {
  const Group &from = groups_[producer], &to = groups_[consumer];
  const Summary &made = summaries_[producer], &read = summaries_[consumer];
  if (!made.regular || !read.regular || from.sizes != to.sizes || (from.reduces() && to.reduces()))
    return false;
  if (from.reduces() || to.reduces()) {
    // Only a body tells whether its passes compute functions again.
    if (graph_.device.is_cpu() && !graph_.has_policy &&
        made.work.functions + read.work.functions > 0)
      return false;
    // Results per element stay such if rows are told from columns.
    const auto is_full = [](const Summary::Operand& output) { return output.full; };
    if (!std::ranges::all_of((from.reduces() ? read : made).outputs, is_full)) return false;
  }
  bool reads = false;
  for (const Summary::Operand& input : read.inputs) {
    if (input.source.node < 0 || group_of_[input.source.node] != producer) continue;
    const auto output = std::ranges::find(made.outputs, input.source, &Summary::Operand::source);
    if (output == made.outputs.end() || !output->full || output->access != input.access)
      return false;
    reads = true;
  }
  return reads;
}

bool Fusion::may_reduce_together(int producer, int consumer) {
  const Group &from = groups_[producer], &to = groups_[consumer];
  if (from.reduces()) {
    if (!waits_for_reduction(from, to) || is_worth_rows(from, to)) return true;
    rejected_ = WhyNotFused::few_rows;
  } else {
    if (!to.reduces() || !is_needed_outside(from, to) || !is_awaited_outside(from, to) ||
        is_worth_storing(from, to))
      return true;
    rejected_ = WhyNotFused::delays_readers;
  }
  return false;
}

namespace {

// The work of two groups as one kernel, which reads and writes these operands.
template <class Operands>
Work merged_work(const Work& from, const Work& to, const Operands& inputs,
                 const Operands& outputs) {
  Work work = from;
  work.flops += to.flops;
  work.functions += to.functions;
  work.draws += to.draws;
  work.bytes = work.conversions = 0;
  for (const Operands* operands : {&inputs, &outputs}) {
    for (const auto* operand : *operands) {
      work.bytes += operand->bytes;
      work.conversions += operand->conversions;
    }
  }
  const auto first =
      std::ranges::min_element(outputs, {}, [](const auto* output) { return output->source.node; });
  work.wide = (*first)->access.dtype == f64;
  return work;
}

}  // namespace

std::optional<Fusion::MergedSummary> Fusion::merged_summary(int producer, int consumer) {
  if (!may_reduce_together(producer, consumer)) return {};
  const Summary &from = summaries_[producer], &to = summaries_[consumer];
  constexpr std::size_t kOperandsOfCall = 4;  // that take as long as a call of a built group
  graph_.fusion_work +=
      static_cast<int64_t>((from.inputs.size() + from.outputs.size() + to.inputs.size() +
                            to.outputs.size() + kOperandsOfCall - 1) /
                           kOperandsOfCall);
  const auto too_many = [this](WhyNotFused why) {
    rejected_ = why;
    return std::nullopt;
  };
  if (groups_[producer].members.size() + groups_[consumer].members.size() >
      static_cast<std::size_t>(kMostMembers))
    return too_many(WhyNotFused::too_many_values);
  const auto inside = [&](int node) {
    return group_of_[node] == producer || group_of_[node] == consumer;
  };
  MergedSummary merged;
  for (const Summary::Operand& input : from.inputs) merged.inputs.push_back(&input);
  for (const Summary::Operand& input : to.inputs) {
    const bool known = std::ranges::find(from.inputs, input.access, &Summary::Operand::access) !=
                       from.inputs.end();
    const bool made = input.source.node >= 0 && group_of_[input.source.node] == producer;
    if (!known && !made) merged.inputs.push_back(&input);
  }
  for (const Summary::Operand& output : from.outputs) {
    if (is_needed(output.source.node, output.source.output, inside))
      merged.outputs.push_back(&output);
  }
  for (const Summary::Operand& output : to.outputs) merged.outputs.push_back(&output);
  if (const auto why = over_limits(merged.inputs.size() + merged.outputs.size(),
                                   merged.inputs.size() + from.values + to.values,
                                   from.scalars + to.scalars, merged.outputs.empty()))
    return too_many(*why);
  merged.work = merged_work(from.work, to.work, merged.inputs, merged.outputs);
  const Group& space = groups_[groups_[producer].reduces() ? producer : consumer];
  if (space.reduces()) {
    FusedKernel kernel{std::make_shared<BodySpec>(space_of(space)), {}, {}};
    for (const Summary::Operand* input : merged.inputs) kernel.inputs.push_back(input->value);
    for (const Summary::Operand* output : merged.outputs) kernel.outputs.push_back(output->value);
    merged.mixes = mixes_directions(kernel);
  }
  return merged;
}

void Fusion::merge_over_one_space(int producer, int consumer, const MergedSummary& merged) {
  Summary summary{.regular = true,
                  .values = summaries_[producer].values + summaries_[consumer].values,
                  .scalars = summaries_[producer].scalars + summaries_[consumer].scalars,
                  .work = merged.work,
                  .mixes = merged.mixes};
  for (const Summary::Operand* input : merged.inputs) summary.inputs.push_back(*input);
  for (const Summary::Operand* output : merged.outputs) summary.outputs.push_back(*output);
  Group group = std::move(groups_[consumer]);
  std::vector<Member> members;
  members.reserve(group.members.size() + groups_[producer].members.size());
  std::ranges::merge(std::make_move_iterator(groups_[producer].members.begin()),
                     std::make_move_iterator(groups_[producer].members.end()),
                     std::make_move_iterator(group.members.begin()),
                     std::make_move_iterator(group.members.end()), std::back_inserter(members), {},
                     &Member::node, &Member::node);
  group.members = std::move(members);
  if (groups_[producer].reduces()) group.reduced = groups_[producer].reduced;
  work_[consumer] = merged.work;
  mixes_[consumer] = merged.mixes;
  summaries_[consumer] = std::move(summary);
  take_place(consumer, producer, std::move(group));
}

}  // namespace brrr::graph
