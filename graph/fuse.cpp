// Fusion: groups of calls that become one kernel each, so that the values between them stay in
// registers.
//
// A group has a space of dimensions, some of them reduced, and every operand of its calls is a
// strided access over that space. To merge a producer with a consumer, one read of the producer's
// result decides how the two spaces correspond: each dimension of the consumer runs along one
// dimension of the producer, after dimensions of either were split where reshapes ask for it. A
// producer without reductions is rewritten in the consumer's space; one with reductions keeps its
// own, and the consumer must cover it whole. Views cost nothing: they are strides.
#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_set>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/fusion.h"
#include "brrr/graph/fusion_indexed.h"
#include "brrr/graph/passes.h"
#include "brrr/ops/cpu/body_runner.h"
#include "brrr/ops/jit/add_call.h"
#include "brrr/ops/jit/contraction.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::graph {

using std::int64_t;

namespace {

// Whether the CPU's own kernel of a call moves elements faster than a fused kernel: a tile of a
// concatenation would have every part computed for all of its elements.
bool is_moved_by_own_kernel(const Node& node) {
  return is_scattered_copy(node) || gathers_rows(node) ||
         op_info(node.call.op).algebra == Algebra::concatenation;
}

}  // namespace

void Fusion::group() {
  std::iota(group_of_.begin(), group_of_.end(), 0);
  const int calls = static_cast<int>(graph_.nodes.size());
  for (int i = 0; i < calls; ++i) {
    const Node& node = graph_.nodes[i];
    opaque_[i] = !is_fusable(node) || graph_.apart.contains(node.number) ||
                 is_made_in_place(graph_, node) ||
                 (graph_.device.is_cpu() && on_cpu::has_body_runners() &&
                  needs_coordinates(op_info(node.call.op))) ||
                 (graph_.device.is_cpu() && is_moved_by_own_kernel(node));
    work_[i] = work_of_call_[i] = work_of(node, graph_.device);
    if (opaque_[i]) {
      groups_[i].members.push_back({i, {}, {}});
      continue;
    }
    groups_[i] = group_of(node, i);
    const std::optional<FusedKernel> kernel =
        groups_[i].rank() > kMaxDims ? std::nullopt : build(groups_[i]);
    opaque_[i] = !kernel;
    if (kernel) {
      work_[i] = work_of(*kernel, graph_.device);
      mixes_[i] = mixes_directions(*kernel);
      summaries_[i] = summary_of(i, *kernel);
    }
  }
  merge_all();
  if (!graph_.least_memory) merge_recomputed();
  merge_siblings();
  // A value with two readers may now have one, which can compute it.
  if (merge_columns_into_rows()) merge_all();
  merge_reductions_of_factors();
  pair_products();
}

int64_t Fusion::cost() const {
  int64_t cost = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].members.empty()) cost += ticks_of(work_[g]) / kTicks;
  }
  return cost;
}

void Fusion::merge_all() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!opaque_[g]) add_candidates(static_cast<int>(g), false);
  }
  while (!candidates_.empty()) {
    const Merge best = candidates_.top();
    candidates_.pop();
    if (best.producer_version != version_[best.producer] ||
        best.consumer_version != version_[best.consumer])
      continue;
    if (has_path_between(best.producer, best.consumer)) {
      why_not_[{best.producer, best.consumer}] = WhyNotFused::cycle;
      continue;
    }
    merge(best.producer, best.consumer);
    add_candidates(best.consumer, true);
  }
}

void Fusion::add_candidates(int group, bool consumers_too) {
  std::vector<int> producers, consumers;
  for (const Member& member : groups_[group].members) {
    for (const Source& source : dependences_.sources[member.node]) {
      if (source.node >= 0) producers.push_back(group_of_[source.node]);
    }
    for (const int reader : dependences_.readers[member.node])
      consumers.push_back(group_of_[reader]);
  }
  if (!consumers_too) consumers.clear();
  const auto each = [&](std::vector<int>& others, auto add) {
    std::ranges::sort(others);
    others.erase(std::ranges::unique(others).begin(), others.end());
    for (const int other : others) {
      if (other != group && !opaque_[other]) add(other);
    }
  };
  each(producers, [&](int other) { add_candidate(other, group); });
  each(consumers, [&](int other) { add_candidate(group, other); });
}

bool Fusion::is_made_early(int producer, int consumer) const {
  const auto is_again = [this](const Member& m) { return graph_.nodes[m.node].recomputation; };
  const auto is_forward = [this](const Member& m) {
    return graph_.nodes[m.node].role != Role::backward;
  };
  return std::ranges::all_of(groups_[consumer].members, is_again) &&
         std::ranges::any_of(groups_[producer].members, is_forward);
}

std::optional<Fusion::MergedKernel> Fusion::kernel_of_merged(int producer, int consumer) {
  if (are_over_one_space(producer, consumer)) {
    const std::optional<MergedSummary> merged = merged_summary(producer, consumer);
    if (!merged) return {};
    return MergedKernel{merged->work, merged->mixes};
  }
  if (have_too_many_operands(producer, consumer)) return reject(WhyNotFused::too_many_operands);
  const std::optional<Group> merged = merged_of(producer, consumer);
  const std::optional<FusedKernel> kernel = merged ? build(*merged) : std::nullopt;
  if (!kernel) return {};
  return MergedKernel{work_of(*kernel, graph_.device), mixes_directions(*kernel),
                      jit::has_computed_factor(kernel->spec->body)};
}

void Fusion::add_candidate(int producer, int consumer) {
  if (is_made_early(producer, consumer)) {
    why_not_[{producer, consumer}] = WhyNotFused::made_early;
    return;
  }
  const bool copies_factor = is_factor_copy(groups_[consumer]);
  if (copies_factor && groups_[producer].reduces() && !contraction_in(groups_[producer])) {
    why_not_[{producer, consumer}] = WhyNotFused::mixed_directions;
    return;
  }
  const std::optional<MergedKernel> kernel = kernel_of_merged(producer, consumer);
  if (!kernel) {
    why_not_[{producer, consumer}] = rejected_;
    return;
  }
  if (graph_.device.is_cuda() && kernel->mixes && !mixes_[producer] && !mixes_[consumer]) {
    why_not_[{producer, consumer}] = WhyNotFused::mixed_directions;
    return;
  }
  const Work &of_producer = work_[producer], &of_consumer = work_[consumer];
  const int64_t ticks = ticks_of(of_producer) + ticks_of(of_consumer) - ticks_of(kernel->work);
  const int64_t saved = (ticks + kTicks / 2) / kTicks;
  if (saved <= 0) {
    why_not_[{producer, consumer}] = WhyNotFused::not_profitable;
    return;
  }
  // A group that is much smaller than its neighbour (one number per row) merges first: left between
  // two large groups, it would prevent their merge.
  const auto [less, more] = std::minmax(of_producer.bytes, of_consumer.bytes);
  int64_t first = less * 8 <= more ? int64_t{1} << 60 : 0;
  if (is_copy(groups_[producer])) first = int64_t{1} << 61;
  // An epilogue takes shared memory from a product's pipeline stages, and a reduction cannot merge
  // with a product: so a loss merges with its error before the product of the prediction may.
  if (contraction_in(groups_[producer]) && is_better_in_readers(consumer))
    first = -(int64_t{1} << 60);
  // Each tile evaluates a factor again: whatever else a call may merge with computes it once.
  if (kernel->computes_factor && !contraction_in(groups_[producer])) first = -(int64_t{1} << 61);
  candidates_.push({first + saved, consumer, producer, version_[consumer], version_[producer]});
}

bool Fusion::is_better_in_readers(int group) {
  return std::ranges::any_of(groups_[group].members, [&](const Member& member) {
    std::set<int> readers;
    for (const int reader : dependences_.readers[member.node]) readers.insert(group_of_[reader]);
    if (readers.size() < 2) return false;
    readers.erase(group);
    const auto is_anywhere = [](int) { return true; };
    for (std::size_t o = 0; o < member.outputs.size(); ++o) {
      if (is_needed(member.node, static_cast<int>(o), is_anywhere)) return false;
    }
    return std::ranges::all_of(readers, [&](int g) {
      return !opaque_[g] && !contraction_in(groups_[g]) && merged_of(group, g);
    });
  });
}

bool Fusion::is_copy(const Group& group) const {
  return !copies_.empty() && std::ranges::all_of(group.members, [this](const Member& member) {
    return copies_[member.node];
  });
}

bool Fusion::is_factor_copy(const Group& group) const {
  if (!graph_.device.is_cuda() || group.members.size() != 1) return false;
  const int call = group.members.front().node;
  const auto algebra_of = [this](int node) { return op_info(graph_.nodes[node].call.op).algebra; };
  return algebra_of(call) == Algebra::identity && !dependences_.readers[call].empty() &&
         std::ranges::all_of(dependences_.readers[call], [&](int reader) {
           return algebra_of(reader) == Algebra::contraction;
         });
}

std::optional<Group> Fusion::merged_of(int producer, int consumer) {
  if (groups_[producer].members.size() + groups_[consumer].members.size() >
      static_cast<std::size_t>(kMostMembers))
    return reject(WhyNotFused::too_many_values);
  Group from = groups_[producer], to = groups_[consumer];
  graph_.fusion_work += static_cast<int64_t>(from.members.size() + to.members.size());
  return merged_of(from, to);
}

void Fusion::merge(int producer, int consumer) {
  if (are_over_one_space(producer, consumer)) {
    merge_over_one_space(producer, consumer, *merged_summary(producer, consumer));
  } else {
    replace(consumer, producer, *merged_of(producer, consumer));
  }
}

void Fusion::replace(int group, int other, Group merged) {
  const FusedKernel kernel = *build(merged);
  work_[group] = work_of(kernel, graph_.device);
  mixes_[group] = mixes_directions(kernel);
  take_place(group, other, std::move(merged));
  summaries_[group] = summary_of(group, kernel);
}

void Fusion::take_place(int group, int other, Group merged) {
  for (const Member& member : merged.members) group_of_[member.node] = group;
  groups_[group] = std::move(merged);
  groups_[other].members.clear();
  furthest_.raise(first_call(group), last_call(group));
  ++version_[group], ++version_[other];
}

std::optional<Correspondence> Fusion::correspond_after_splits(Group& consumer, Access& read,
                                                              const Group& producer,
                                                              const Access& made) {
  // Splits change all accesses of the consumer.
  consumer.members.push_back({-1, {read}, {}});
  std::optional<Correspondence> c;
  for (;;) {
    const int rank = consumer.rank();
    read = consumer.members.back().inputs[0];
    c = read.bounds.empty() ? correspond(consumer, read, producer, made)
                            : correspond_within(consumer, read, producer, made);
    if (consumer.rank() == rank) break;
  }
  consumer.members.pop_back();
  return c;
}

std::optional<Group> Fusion::merged_of(Group& from, Group& to) {
  Access read, made;
  each_read(to, from, [&](const Access& r, const Access& m) {
    if (read.buffer < 0 || r.address) read = r, made = m;
  });
  if (read.buffer < 0) return reject(WhyNotFused::different_reads);
  if (read.address) return reject(WhyNotFused::gathered);
  const std::optional<Correspondence> c = correspond_after_splits(to, read, from, made);
  const std::vector<AffineBound> bounds = read.bounds;
  if (!c) return reject(WhyNotFused::no_correspondence);
  if (!bounds.empty() && has_indexed(from)) return reject(WhyNotFused::gathered);
  if (from.reduces()) {
    if (!bounds.empty() || !covers(*c, to, from)) return reject(WhyNotFused::part_of_rows);
    if (waits_for_reduction(from, to) && !is_worth_rows(from, to))
      return reject(WhyNotFused::few_rows);
    if (!push(to, *c, from)) return reject(WhyNotFused::unequal_rows);
  } else {
    // Elements outside of the bounds would be computed in vain, which costs the CPU more than
    // to pass those inside through its caches.
    const bool once = bounds.empty() && !repeats(*c, to);
    if (!once && (!is_cheap(from) || (graph_.device.is_cpu() && !bounds.empty())))
      return reject(WhyNotFused::recomputes);
    if (is_needed_outside(from, to)) {
      if (!once || !covers(*c, to, from)) return reject(WhyNotFused::needed_outside);
      if (is_awaited_outside(from, to) && !is_worth_storing(from, to))
        return reject(WhyNotFused::delays_readers);
    }
    pull(from, *c, to, bounds);
  }
  bool same = true;
  each_read(to, from, [&](const Access& r, const Access& m) {
    same &=
        r.strides == m.strides && r.offset == m.offset && r.dtype == m.dtype && r.bounds == bounds;
  });
  if (!same) return reject(WhyNotFused::different_reads);
  Group merged = std::move(to);
  for (Member& member : from.members) merged.members.push_back(std::move(member));
  std::ranges::sort(merged.members, {}, &Member::node);
  return merged;
}

bool Fusion::repeats(const Correspondence& c, const Group& consumer) {
  for (std::size_t h = 0; h < c.steps.size(); ++h) {
    if (c.steps[h].dim < 0 && !consumer.reduced[h]) return true;
  }
  return false;
}

bool Fusion::has_indexed(const Group& group) const {
  return std::ranges::any_of(group.members, [this](const Member& member) {
    return is_indexed(op_info(graph_.nodes[member.node].call.op));
  });
}

bool Fusion::is_cheap(const Group& group) const {
  if (has_indexed(group)) return false;
  int flops = 0;
  for (const Member& member : group.members)
    flops += op_info(graph_.nodes[member.node].call.op).element_flops;
  return flops <= kMostRepeatedOperations;
}

bool Fusion::is_worth_storing(const Group& producer, const Group& consumer) const {
  // In elements: about what the threads of a large GPU load at once, and what its L2 holds. A sum
  // of columns in a kernel of its own overlaps with other consumers of its operand, which in 16
  // bits saves more than reading the operand again costs, from the L2. In TF32 a product takes the
  // sum for less, unless the summand is cheap.
  constexpr int64_t kShort = 1 << 20, kShortColumns = 1 << 25;
  const bool by_rows = !consumer.reduced.empty() && consumer.reduced.back();
  if (!graph_.device.is_cuda() || !consumer.reduces()) return true;
  const bool is_in_halves = is_half(producer.members.back().outputs.front().dtype);
  if (!by_rows && !is_in_halves && !is_cheap(producer) && is_taken_by_product(consumer))
    return false;
  return producer.count(false) * producer.count(true) >=
         (is_in_halves && !by_rows ? kShortColumns : kShort);
}

bool Fusion::waits_for_reduction(const Group& producer, const Group& consumer) const {
  std::vector<int> after;  // members that depend on a reduction among them, itself included
  const auto is_after = [&](const Source& source) {
    return std::ranges::find(after, source.node) != after.end();
  };
  for (const Member& member : producer.members) {  // in order
    if (op_info(graph_.nodes[member.node].call.op).kind == OpKind::reduction ||
        std::ranges::any_of(dependences_.sources[member.node], is_after))
      after.push_back(member.node);
  }
  return std::ranges::any_of(consumer.members, [&](const Member& member) {
    return member.node >= 0 && std::ranges::any_of(dependences_.sources[member.node], is_after);
  });
}

bool Fusion::is_worth_rows(const Group& producer, const Group& consumer) const {
  constexpr int64_t kShort = 8192;
  // Blocks of rows fill a GPU; a thread of the CPU takes whole rows, too, where it reduces them.
  int64_t rows = 64;
  if (graph_.device.is_cpu()) rows = num_threads() == 1 ? 1 : 2 * num_threads();
  const bool per_element = consumer.count(false) * consumer.count(true) > producer.count(false);
  return !per_element || producer.count(false) >= rows || producer.count(true) <= kShort;
}

bool Fusion::is_needed_outside(const Group& group, const Group& other) const {
  for (const Member& member : group.members) {
    for (std::size_t o = 0; o < member.outputs.size(); ++o) {
      if (is_needed(member.node, static_cast<int>(o),
                    [&](int reader) { return is_in(group, reader) || is_in(other, reader); }))
        return true;
    }
  }
  return false;
}

bool Fusion::is_awaited_outside(const Group& group, const Group& other) const {
  for (const Member& member : group.members) {
    for (const int reader : dependences_.readers[member.node]) {
      const Group& of = groups_[group_of_[reader]];
      if (!is_in(group, reader) && !is_in(other, reader) && (!of.reduces() || contraction_in(of)))
        return true;
    }
  }
  return false;
}

std::nullopt_t Fusion::reject(WhyNotFused why) const {
  rejected_ = why;
  return std::nullopt;
}

void Fusion::find_fills() {
  const auto add = [this](const Node& node) {
    if (op_info(node.call.op).algebra == Algebra::uniform && is_whole(graph_, node.outputs[0]))
      fills_.emplace(node.outputs[0].buffer, node.call);
  };
  std::ranges::for_each(graph_.constants, add);
  for (const Node& node : graph_.nodes) {
    if (flow_.is_intermediate(node.outputs[0].buffer)) add(node);
  }
}

const Call* Fusion::fill_of(const Member& member, std::size_t k) const {
  const Access& read = member.inputs[k];
  const Algebra algebra = op_info(graph_.nodes[member.node].call.op).algebra;
  if (read.address || !read.bounds.empty() || (algebra == Algebra::contraction && k < 2)) return {};
  const auto fill = fills_.find(read.buffer);
  return fill == fills_.end() ? nullptr : &fill->second;
}

std::vector<int> Fusion::operands_of(const Group& group, const Member& member,
                                     const ResultValues& made, FusedKernel& kernel,
                                     BodyReads& reads) const {
  const Node& node = graph_.nodes[member.node];
  std::vector<int> operands;
  for (std::size_t k = 0; k < member.inputs.size(); ++k) {
    const Source source = dependences_.sources[member.node][k];
    if (is_in_current(source.node)) {
      operands.push_back(made.at(key_of(source.node, source.output)));
    } else if (const Call* fill = fill_of(member, k)) {
      BodySpec& spec = *kernel.spec;
      operands.push_back(jit::add_fill(spec.body, *fill, node.inputs[k].dtype, spec.scalars));
    } else {
      operands.push_back(input_of(group, kernel, reads, member.inputs[k], node.inputs[k]));
    }
  }
  return operands;
}

std::vector<int> Fusion::results_of(const Group& group, const Member& member,
                                    std::span<const int> operands, std::span<const DType> dtypes,
                                    FusedKernel& kernel, BodyReads& reads) const {
  const Node& node = graph_.nodes[member.node];
  const OpInfo& info = op_info(node.call.op);
  if (jit::is_made_of_blocks(info))
    return {block_value(group, kernel, reads, node, member, operands)};
  if (is_indexed(info)) return {indexed_value(group, kernel, reads, node, member, operands)};
  return jit::add_call(kernel.spec->body, node.call, operands, dtypes, kernel.spec->scalars);
}

std::optional<FusedKernel> Fusion::build(const Group& group) const {
  FusedKernel kernel;
  kernel.spec = std::make_shared<BodySpec>(space_of(group));
  BodySpec& spec = *kernel.spec;
  jit::Body& body = spec.body;
  body.strict = !graph_.fast;
  body.fast = graph_.fast;
  ResultValues made;
  std::vector<std::pair<const Access*, int>> stored;  // results in memory, and their values
  BodyReads reads;
  mark_members(group);
  const auto inside = [this](int node) { return is_in_current(node); };
  for (const Member& member : group.members) {
    const Node& node = graph_.nodes[member.node];
    const std::vector<int> operands = operands_of(group, member, made, kernel, reads);
    std::vector<DType> dtypes;
    for (const Value& output : node.outputs) dtypes.push_back(output.dtype);
    if (op_info(node.call.op).kind == OpKind::reduction) {
      if (!jit::levels_of(body)[operands[0]].per_element())
        return reject(WhyNotFused::reduces_rows);
      const Dims strides(member.inputs[0].strides);
      if (spec.order.empty()) spec.order = strides;
      if (graph_.device.is_cpu() && !combines_alike(spec, strides, spec.order))
        return reject(WhyNotFused::mixed_directions);
    }
    const std::vector<int> results = results_of(group, member, operands, dtypes, kernel, reads);
    if (member.reduces_columns)
      body.values[results[0]].kind = jit::BodyValue::Kind::column_reduction;
    if (jit::mixes_columns(body)) return reject(WhyNotFused::unequal_rows);
    for (std::size_t o = 0; o < results.size(); ++o) {
      int value = results[o];
      if (body.value(value).dtype != dtypes[o])
        value = body.add_expression("a", dtypes[o], dtypes[o], {value});
      made[key_of(member.node, static_cast<int>(o))] = value;
      if (is_needed(member.node, static_cast<int>(o), inside))
        stored.emplace_back(&member.outputs[o], value);
    }
    add_work(spec, work_of_call_[member.node]);
    body.name += body.name.empty() ? "fused" : "";
  }
  if (body.contraction() >= 0) jit::load_factors_per_element(body);
  if (const auto why = add_outputs(group, stored, kernel)) return reject(*why);
  spec.unread = unread_bytes(kernel);
  if (!keeps_order(group, kernel)) return reject(WhyNotFused::in_place);
  const auto outlives_error = [this](const Value& output) {
    return !graph_.is_temporary(output.buffer);
  };
  if (graph_.device.is_cpu() && !body.checks.empty() &&
      std::ranges::any_of(kernel.outputs, outlives_error))
    return reject(WhyNotFused::checked);
  if (body.contraction() >= 0 && !contracts(graph_, kernel))
    return reject(WhyNotFused::matrix_product);
  if (!has_schedule(graph_.device, spec, strides_of(kernel))) return reject(WhyNotFused::no_kernel);
  // To compute a function again takes longer than to pass its value through the CPU's caches.
  if (!graph_.has_policy && repeats_functions(graph_.device, spec, strides_of(kernel)))
    return reject(WhyNotFused::recomputes);
  return kernel;
}

bool Fusion::keeps_order(const Group& group, const FusedKernel& kernel) const {
  for (std::size_t o = 0; o < kernel.outputs.size(); ++o) {
    const Value& out = kernel.outputs[o];
    for (std::size_t p = 0; p < o; ++p) {
      if (kernel.outputs[p].buffer == out.buffer &&
          may_overlap(kernel.outputs[p].region(), out.region()))
        return false;
    }
    for (std::size_t i = 0; i < kernel.inputs.size(); ++i) {
      const Value& in = kernel.inputs[i];
      if (in.buffer != out.buffer || !may_overlap(in.region(), out.region())) continue;
      if (group.reduces() || is_placed(*kernel.spec, static_cast<int>(i)) ||
          in.strides != out.strides || in.offset != out.offset)
        return false;
    }
  }
  // The kernel reads an input that is no member's result as it was before all of the group's
  // writes.
  std::unordered_set<int> written;
  for (const Member& member : group.members) {
    for (const Value& out : graph_.nodes[member.node].outputs) written.insert(out.buffer);
  }
  for (const Member& member : group.members) {
    for (std::size_t k = 0; k < member.inputs.size(); ++k) {
      const Value& in = graph_.nodes[member.node].inputs[k];
      if (is_in_current(dependences_.sources[member.node][k].node) || !written.contains(in.buffer))
        continue;
      for (const Member& writer : group.members) {
        if (writer.node >= member.node) break;
        for (const Value& out : graph_.nodes[writer.node].outputs) {
          if (out.buffer == in.buffer && may_overlap(out.region(), in.region())) return false;
        }
      }
    }
  }
  return true;
}

int fuse(Graph& graph) {
  const int calls = static_cast<int>(graph.nodes.size());
  if (graph.copies_factors) copy_factors(graph);
  Fusion once(graph);
  once.group();
  Graph changed = graph;
  std::vector<bool> copies = recompute_for_readers(changed, once.groups());
  if (!copies.empty()) {
    Fusion again(changed, std::move(copies));
    again.group();
    const bool is_better = again.cost() < once.cost();
    (is_better ? again : once).emit();
    if (is_better) graph = std::move(changed);
  } else {
    once.emit();
  }
  remove_dead(graph);
  return calls - static_cast<int>(graph.nodes.size());
}

}  // namespace brrr::graph
