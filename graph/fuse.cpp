// Fusion: groups of calls that become one kernel each, so that what they hand to one another stays
// in registers.
//
// A group has a space of dimensions, some of them reduced, and every operand of its calls is a
// strided access over that space. To merge a producer with a consumer, one read of the producer's
// result decides how the two spaces correspond: each dimension of the consumer runs along one
// dimension of the producer, after dimensions of either were split where reshapes ask for it. A
// producer without reductions is rewritten in the consumer's space; one with reductions keeps its
// own, and the consumer must cover it whole. Views cost nothing: they are strides.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_group.h"
#include "brrr/graph/fusion_kernel.h"
#include "brrr/graph/fusion_reads.h"
#include "brrr/graph/recompute.h"
#include "brrr/ops/jit/add_call.h"

namespace brrr::graph {
namespace {

using std::int64_t;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// The largest of the values of all indices up to one, while values only rise (a Fenwick tree).
class LargestBefore {
 public:
  explicit LargestBefore(std::size_t count) : largest_(count + 1, -1) {}

  void raise(int index, int value) {
    for (std::size_t i = at(index) + 1; i < largest_.size(); i += i & -i)
      largest_[i] = std::max(largest_[i], value);
  }
  int up_to(int index) const {
    int largest = -1;
    for (std::size_t i = at(index) + 1; i > 0; i -= i & -i)
      largest = std::max(largest, largest_[i]);
    return largest;
  }

 private:
  std::vector<int> largest_;
};

class Fusion {
 public:
  // `copies`: calls that are there for their reader alone, and fuse with that first.
  explicit Fusion(Graph& graph, std::vector<bool> copies = {})
      : graph_(graph),
        copies_(std::move(copies)),
        flow_(graph),
        reads_(graph),
        group_of_(graph.nodes.size()),
        groups_(graph.nodes.size()),
        beside_(graph.nodes.size()),
        opaque_(graph.nodes.size(), false),
        bytes_(graph.nodes.size(), 0),
        mixes_(graph.nodes.size(), false),
        version_(graph.nodes.size(), 0),
        furthest_(graph.nodes.size()),
        seen_(graph.nodes.size(), 0) {}

  void group() {
    std::iota(group_of_.begin(), group_of_.end(), 0);
    const int calls = static_cast<int>(graph_.nodes.size());
    for (int i = 0; i < calls; ++i) {
      const Node& node = graph_.nodes[at(i)];
      opaque_[at(i)] = !is_fusable(node) || is_made_in_place(graph_, node) ||
                       (graph_.device.is_cpu() && is_scattered_copy(node));
      if (opaque_[at(i)]) {
        groups_[at(i)].members.push_back({i, {}, {}});
        continue;
      }
      groups_[at(i)] = group_of(node, i);
      const std::optional<FusedKernel> kernel =
          groups_[at(i)].rank() > kMaxDims ? std::nullopt : build(groups_[at(i)]);
      opaque_[at(i)] = !kernel;
      if (kernel) {
        bytes_[at(i)] = bytes_of(*kernel);
        mixes_[at(i)] = mixes_directions(*kernel);
      }
    }
    merge_all();
    merge_reductions_of_factors();
    pair_products();
  }

  GroupsOfCalls groups() const { return {group_of_, opaque_}; }

  // The time of the step, as bytes that are moved in it.
  int64_t cost() const {
    int64_t cost = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].members.empty()) continue;
      const Node& alone = graph_.nodes[g];
      cost += bytes_of_launch() + (opaque_[g] ? bytes_moved(alone) : bytes_[g]);
    }
    return cost;
  }

  // Replaces the calls of each group by one node; returns how many fewer there are.
  int emit() {
    note_unfused();
    const std::vector<int> order = order_of_groups();
    std::vector<Node> nodes;
    for (const int g : order) {
      const Group& group = groups_[at(g)];
      if (!beside_[at(g)].members.empty()) {
        nodes.push_back(together(node_of(group), node_of(beside_[at(g)])));
      } else if (group.members.size() == 1 && !is_body_alone(g)) {
        nodes.push_back(std::move(graph_.nodes[at(group.members[0].node)]));
        nodes.back().calls = {group.members[0].node};
      } else {
        nodes.push_back(node_of(group));
      }
    }
    return replace_nodes(graph_, std::move(nodes));
  }

 private:
  static constexpr int kMostMembers = 64, kMostVisited = 4096;

  bool is_in(const Group& group, int node) const {
    return std::ranges::any_of(group.members,
                               [node](const Member& member) { return member.node == node; });
  }

  // Merges pairs of a producer and a consumer, those first that save the most bytes.
  void merge_all() {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!opaque_[g]) add_candidates(static_cast<int>(g), false);
    }
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      if (best.producer_version != version_[at(best.producer)] ||
          best.consumer_version != version_[at(best.consumer)])
        continue;
      if (has_path_between(best.producer, best.consumer)) {
        why_not_[{best.producer, best.consumer}] = WhyNotFused::cycle;
        continue;
      }
      merge(best.producer, best.consumer);
      add_candidates(best.consumer, true);
    }
  }

  // A merge, and its rank: the bytes that it saves.
  struct Candidate {
    int64_t rank;
    int consumer, producer, consumer_version, producer_version;

    // The first of a queue has the largest: of equal ones the earliest in the graph.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return std::tie(a.rank, b.consumer, b.producer) < std::tie(b.rank, a.consumer, a.producer);
    }
  };

  // What a group may merge with: producers and, if asked for, consumers.
  void add_candidates(int group, bool consumers_too) {
    std::vector<int> producers, consumers;
    for (const Member& member : groups_[at(group)].members) {
      for (const Source& source : reads_.sources[at(member.node)]) {
        if (source.node >= 0) producers.push_back(group_of_[at(source.node)]);
      }
      for (const int reader : reads_.readers[at(member.node)])
        consumers.push_back(group_of_[at(reader)]);
    }
    if (!consumers_too) consumers.clear();
    const auto each = [&](std::vector<int>& others, auto add) {
      std::ranges::sort(others);
      others.erase(std::ranges::unique(others).begin(), others.end());
      for (const int other : others) {
        if (other != group && !opaque_[at(other)]) add(other);
      }
    };
    each(producers, [&](int other) { add_candidate(other, group); });
    each(consumers, [&](int other) { add_candidate(group, other); });
  }

  void add_candidate(int producer, int consumer) {
    const std::optional<Group> merged = merged_of(producer, consumer);
    const std::optional<FusedKernel> kernel = merged ? build(*merged) : std::nullopt;
    if (!kernel) {
      why_not_[{producer, consumer}] = rejected_;
      return;
    }
    if (graph_.device.is_cuda() && mixes_directions(*kernel) && !mixes_[at(producer)] &&
        !mixes_[at(consumer)]) {
      why_not_[{producer, consumer}] = WhyNotFused::mixed_directions;
      return;
    }
    const int64_t saved = bytes_[at(producer)] + bytes_[at(consumer)] - bytes_of(*kernel);
    if (saved + bytes_of_launch() <= 0) {
      why_not_[{producer, consumer}] = WhyNotFused::not_profitable;
      return;
    }
    // What is small beside its neighbour (a number of each row) comes first: between two large
    // groups it would keep them apart.
    const auto [less, more] = std::minmax(bytes_[at(producer)], bytes_[at(consumer)]);
    int64_t first = less * 8 <= more ? int64_t{1} << 60 : 0;
    if (is_copy(groups_[at(producer)])) first = int64_t{1} << 61;
    candidates_.push(
        {first + saved, consumer, producer, version_[at(consumer)], version_[at(producer)]});
  }

  // A kernel less is worth the bytes that are moved in the time of its launch.
  int64_t bytes_of_launch() const { return graph_.device.is_cuda() ? 4 << 20 : 1 << 14; }

  bool is_copy(const Group& group) const {
    return !copies_.empty() && std::ranges::all_of(group.members, [this](const Member& member) {
      return copies_[at(member.node)];
    });
  }

  // Calls f with every call that runs in the kernel of a group.
  template <class F>
  void each_call(int group, F&& f) const {
    for (const Group* of : {&groups_[at(group)], &beside_[at(group)]}) {
      for (const Member& member : of->members) f(member.node);
    }
  }
  int first_call(int group) const {
    int first = static_cast<int>(groups_.size());
    each_call(group, [&](int call) { first = std::min(first, call); });
    return first;
  }
  int last_call(int group) const {
    int last = -1;
    each_call(group, [&](int call) { last = std::max(last, call); });
    return last;
  }

  // The last call from which a path may lead to `call`. Paths go forward from call to call, and
  // back only within a group.
  int furthest_before(int call) const {
    for (;;) {
      const int furthest = furthest_.up_to(call);
      if (furthest <= call) return call;
      call = furthest;
    }
  }

  // Whether some other group must run between two of them.
  bool has_path_between(int from, int to) {
    std::vector<int> stack;
    int visited = 0;
    ++search_;
    const int last = furthest_before(last_call(to));
    const auto expand = [&](int group, bool first) {
      each_call(group, [&](int call) {
        for (const int next : reads_.successors[at(call)]) {
          const int of = group_of_[at(next)];
          if (of == group || (first && of == to) || seen_[at(of)] == search_) continue;
          if (first_call(of) > last) continue;
          seen_[at(of)] = search_;
          stack.push_back(of);
        }
      });
    };
    expand(from, true);
    while (!stack.empty()) {
      const int group = stack.back();
      stack.pop_back();
      if (group == to || ++visited > kMostVisited) return true;
      expand(group, false);
    }
    return false;
  }

  std::optional<Group> merged_of(int producer, int consumer) {
    if (groups_[at(producer)].members.size() + groups_[at(consumer)].members.size() >
        static_cast<std::size_t>(kMostMembers))
      return reject(WhyNotFused::too_many_values);
    Group from = groups_[at(producer)], to = groups_[at(consumer)];
    return merged_of(from, to);
  }

  void merge(int producer, int consumer) {
    replace(consumer, producer, *merged_of(producer, consumer));
  }

  // Group `merged` takes the place of two.
  void replace(int group, int other, Group merged) {
    for (const Member& member : merged.members) group_of_[at(member.node)] = group;
    const FusedKernel kernel = *build(merged);
    bytes_[at(group)] = bytes_of(kernel);
    mixes_[at(group)] = mixes_directions(kernel);
    groups_[at(group)] = std::move(merged);
    groups_[at(other)].members.clear();
    furthest_.raise(first_call(group), last_call(group));
    ++version_[at(group)], ++version_[at(other)];
  }

  // --- Reductions of the factors of matrix products ---

  // A product reads every row of one factor and every column of the other: a reduction over the
  // summed dimension of what a factor is (the gradient of a bias) costs no other read.
  void merge_reductions_of_factors() {
    const int count = static_cast<int>(groups_.size());
    std::vector<int> reductions;
    for (int g = 0; g < count; ++g) {
      if (is_live(g) && groups_[at(g)].reduces() && !contraction_in(groups_[at(g)]))
        reductions.push_back(g);
    }
    for (int g = 0; g < count; ++g) {
      if (!is_live(g) || !contraction_in(groups_[at(g)])) continue;
      for (const int reduction : reductions) {
        if (!is_live(reduction) || has_path_between(g, reduction) || has_path_between(reduction, g))
          continue;
        if (std::optional<Group> merged = with_reduction(g, reduction))
          replace(g, reduction, std::move(*merged));
      }
    }
  }

  // --- Products side by side ---

  // Products of one factor that depend on each other in no way (the gradients of a layer's input
  // and of its weight) run in one launch where the device has room for both: a node less in the
  // chain.
  void pair_products() {
    std::map<std::pair<int, int>, std::vector<int>> readers;  // groups, by what a factor is
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
      const Member* product = is_live(g) ? contraction_in(groups_[at(g)]) : nullptr;
      for (std::size_t k = 0; product && k < 2; ++k) {
        const Source& source = reads_.sources[at(product->node)][k];
        if (source.node >= 0) readers[{source.node, source.output}].push_back(g);
      }
    }
    for (const auto& [source, groups] : readers) {
      for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
        const int one = groups[i], other = groups[i + 1];
        if (one == other || !is_single(one) || !is_single(other)) continue;
        if (share_of(one) + share_of(other) > 1 || !is_independent(one, other)) continue;
        for (const Member& member : groups_[at(other)].members) group_of_[at(member.node)] = one;
        beside_[at(one)] = std::move(groups_[at(other)]);
        groups_[at(other)].members.clear();
        bytes_[at(one)] += bytes_[at(other)];
        furthest_.raise(first_call(one), last_call(one));
      }
    }
  }

  bool is_independent(int one, int other) {
    const auto precedes = [&](int from, int to) {
      bool direct = false;
      each_call(from, [&](int call) {
        for (const int next : reads_.successors[at(call)]) direct |= group_of_[at(next)] == to;
      });
      return direct || has_path_between(from, to);
    };
    return !precedes(one, other) && !precedes(other, one);
  }

  bool is_single(int g) const { return is_live(g) && beside_[at(g)].members.empty(); }

  double share_of(int g) const {
    const FusedKernel kernel = *build(groups_[at(g)]);
    return share_of_device(graph_.device, *kernel.spec, strides_of(kernel));
  }

  bool is_live(int g) const { return !opaque_[at(g)] && !groups_[at(g)].members.empty(); }

  const Member* contraction_in(const Group& group) const {
    const auto found = std::ranges::find_if(group.members, [&](const Member& member) {
      return op_info(graph_.nodes[at(member.node)].call.op).algebra == Algebra::contraction;
    });
    return found == group.members.end() ? nullptr : &*found;
  }

  // The group of a product and a reduction of what one of its factors is.
  std::optional<Group> with_reduction(int product, int reduction) const {
    const Group& to = groups_[at(product)];
    const Member& contraction = *contraction_in(to);
    const Member& reader = groups_[at(reduction)].members.front();
    for (std::size_t k = 0; k < 2; ++k) {
      const Access& factor = contraction.inputs[k];
      if (reader.inputs.empty() || reader.inputs[0].buffer != factor.buffer ||
          reader.inputs[0].offset != factor.offset || reader.inputs[0].dtype != factor.dtype ||
          !(reads_.sources[at(reader.node)][0] == reads_.sources[at(contraction.node)][k]))
        continue;
      Group from = groups_[at(reduction)];
      for (int d = from.rank() - 2; d >= 0; --d) from.join(d);
      if (!spread(from, Access(from.members.front().inputs[0]), to, factor)) continue;
      Group merged = to;
      for (Member& member : from.members) merged.members.push_back(std::move(member));
      std::ranges::sort(merged.members, {}, &Member::node);
      if (build(merged)) return merged;
    }
    return {};
  }

  // Calls f with every read in `to` of a result of `from`, and that result.
  template <class F>
  void each_read(Group& to, Group& from, F&& f) {
    for (Member& reader : to.members) {
      for (std::size_t k = 0; k < reader.inputs.size(); ++k) {
        const Source source = reads_.sources[at(reader.node)][k];
        if (source.node < 0) continue;
        for (Member& writer : from.members) {
          if (writer.node == source.node) f(reader.inputs[k], writer.outputs[at(source.output)]);
        }
      }
    }
  }

  std::optional<Group> merged_of(Group& from, Group& to) {
    Access read, made;
    each_read(to, from, [&](const Access& r, const Access& m) {
      if (read.buffer < 0) read = r, made = m;
    });
    if (read.buffer < 0) return reject(WhyNotFused::different_reads);
    // Splits of the consumer change its accesses, so the read is found again by its place.
    Member probe{-1, {read}, {}};
    to.members.push_back(probe);
    std::optional<Correspondence> c;
    for (;;) {
      const int rank = to.rank();
      const Access now = to.members.back().inputs[0];
      c = now.bounds.empty() ? correspond(to, now, from, made)
                             : correspond_within(to, now, from, made);
      if (to.rank() == rank) break;
    }
    const std::vector<Bound> bounds = to.members.back().inputs[0].bounds;
    to.members.pop_back();
    if (!c) return reject(WhyNotFused::no_correspondence);
    if (from.reduces()) {
      if (!bounds.empty() || !covers(*c, to, from)) return reject(WhyNotFused::part_of_rows);
      if (!is_worth_rows(from, to)) return reject(WhyNotFused::few_rows);
      if (!push(to, *c, from)) return reject(WhyNotFused::unequal_rows);
    } else {
      // Outside of bounds elements are computed for nothing.
      const bool once = bounds.empty() && !repeats(*c, to);
      if (!once && !is_cheap(from)) return reject(WhyNotFused::recomputes);
      if (is_needed_outside(from, to)) {
        if (!once || !covers(*c, to, from)) return reject(WhyNotFused::needed_outside);
        if (!is_worth_storing(from, to)) return reject(WhyNotFused::delays_readers);
      }
      pull(from, *c, to, bounds);
    }
    bool same = true;
    each_read(to, from, [&](const Access& r, const Access& m) {
      same &= r.strides == m.strides && r.offset == m.offset && r.dtype == m.dtype &&
              r.bounds == bounds;
    });
    if (!same) return reject(WhyNotFused::different_reads);
    Group merged = std::move(to);
    for (Member& member : from.members) merged.members.push_back(std::move(member));
    std::ranges::sort(merged.members, {}, &Member::node);
    return merged;
  }

  // Whether elements of the producer would be computed several times. Values of rows are not: a
  // row's are computed once.
  static bool repeats(const Correspondence& c, const Group& consumer) {
    for (std::size_t h = 0; h < c.steps.size(); ++h) {
      if (c.steps[h].dim < 0 && !consumer.reduced[h]) return true;
    }
    return false;
  }

  bool is_cheap(const Group& group) const {
    constexpr int kCheap = 8;  // operations
    int flops = 0;
    for (const Member& member : group.members)
      flops += op_info(graph_.nodes[at(member.node)].call.op).element_flops;
    return flops <= kCheap;
  }

  // Whether a reduction that also stores what it reduces beats a kernel before it: a short one
  // delays whoever waits for what is stored, and could run beside them.
  bool is_worth_storing(const Group& producer, const Group& consumer) const {
    constexpr int64_t kShort = 1 << 20;  // elements
    return !graph_.device.is_cuda() || !consumer.reduces() ||
           producer.count(false) * producer.count(true) >= kShort;
  }

  // Whether what is computed over whole rows leaves enough rows to fill a device.
  bool is_worth_rows(const Group& producer, const Group& consumer) const {
    constexpr int64_t kRows = 64, kShort = 8192;
    const bool per_element = consumer.count(false) * consumer.count(true) > producer.count(false);
    return !per_element || producer.count(false) >= kRows || producer.count(true) <= kShort;
  }

  // Whether anybody but the members of the two groups reads what the first one makes.
  bool is_needed_outside(const Group& group, const Group& other) const {
    for (const Member& member : group.members) {
      for (std::size_t o = 0; o < member.outputs.size(); ++o) {
        if (is_needed(member.node, static_cast<int>(o),
                      [&](int reader) { return is_in(group, reader) || is_in(other, reader); }))
          return true;
      }
    }
    return false;
  }

  // Whether a result must be in memory: it escapes, or a call reads it that is not `inside`.
  template <class Inside>
  bool is_needed(int node, int output, const Inside& inside) const {
    const Value& value = graph_.nodes[at(node)].outputs[at(output)];
    if (!graph_.is_temporary(value.buffer) || flow_.escapes(value.buffer)) return true;
    return std::ranges::any_of(reads_.readers[at(node)], [&](int reader) {
      if (inside(reader)) return false;
      return std::ranges::any_of(graph_.nodes[at(reader)].inputs, [&](const Value& in) {
        return in.buffer == value.buffer && may_overlap(in.region(), value.region());
      });
    });
  }

  // Says why the group at hand is none.
  std::nullopt_t reject(WhyNotFused why) const {
    rejected_ = why;
    return std::nullopt;
  }

  // --- From a group to a kernel ---

  // The kernel of a group; none where no body computes it.
  std::optional<FusedKernel> build(const Group& group) const {
    FusedKernel kernel;
    kernel.spec = std::make_shared<BodySpec>();
    BodySpec& spec = *kernel.spec;
    jit::Body& body = spec.body;
    body.strict = true;
    for (int d = 0; d < group.rank(); ++d) {
      spec.dims.push_back(group.sizes[at(d)]);
      spec.reduced |= static_cast<std::uint32_t>(group.reduced[at(d)]) << d;
    }
    if (spec.dims.empty()) spec.dims.push_back(1);
    std::map<std::pair<int, int>, int> made;            // values of results
    std::vector<std::pair<const Access*, int>> stored;  // results in memory, and their values
    BodyReads reads;
    const auto inside = [&](int node) { return is_in(group, node); };
    for (const Member& member : group.members) {
      const Node& node = graph_.nodes[at(member.node)];
      std::vector<int> operands;
      for (std::size_t k = 0; k < member.inputs.size(); ++k) {
        const Source source = reads_.sources[at(member.node)][k];
        operands.push_back(source.node >= 0 && inside(source.node)
                               ? made.at({source.node, source.output})
                               : input_of(group, kernel, reads, member.inputs[k], node.inputs[k]));
      }
      std::vector<DType> dtypes;
      for (const Value& output : node.outputs) dtypes.push_back(output.dtype);
      if (op_info(node.call.op).kind == OpKind::reduction) {
        if (!jit::levels_of(body)[at(operands[0])].per_element())
          return reject(WhyNotFused::reduces_rows);
        if (spec.order.empty()) spec.order = Dims(member.inputs[0].strides);
      }
      const std::vector<int> results =
          jit::is_made_of_blocks(op_info(node.call.op))
              ? std::vector<int>{block_value(kernel, reads, node, member, operands)}
              : jit::add_call(body, node.call, operands, dtypes, spec.scalars);
      for (std::size_t o = 0; o < results.size(); ++o) {
        int value = results[o];
        if (body.value(value).dtype != dtypes[o])
          value = body.add_expression("a", dtypes[o], dtypes[o], {value});
        made[{member.node, static_cast<int>(o)}] = value;
        if (is_needed(member.node, static_cast<int>(o), inside))
          stored.emplace_back(&member.outputs[o], value);
      }
      spec.flops += flops_of(node);
      body.name += body.name.empty() ? "fused" : "";
    }
    if (const auto why = add_outputs(group, stored, kernel)) return reject(*why);
    if (!keeps_order(group, kernel)) return reject(WhyNotFused::in_place);
    if (body.contraction() >= 0 && !contracts(graph_, kernel))
      return reject(WhyNotFused::matrix_product);
    return kernel;
  }

  // Whether the kernel reads nothing that it writes, but for elements that the same thread wrote
  // after it read them.
  bool keeps_order(const Group& group, const FusedKernel& kernel) const {
    for (std::size_t o = 0; o < kernel.outputs.size(); ++o) {
      const Value& out = kernel.outputs[o];
      for (std::size_t p = 0; p < o; ++p) {
        if (kernel.outputs[p].buffer == out.buffer &&
            may_overlap(kernel.outputs[p].region(), out.region()))
          return false;
      }
      for (const Value& in : kernel.inputs) {
        if (in.buffer != out.buffer || !may_overlap(in.region(), out.region())) continue;
        if (group.reduces() || in.strides != out.strides || in.offset != out.offset) return false;
      }
    }
    // An input that is not a member's result must be as it was before all of the group's writes.
    for (const Member& member : group.members) {
      for (std::size_t k = 0; k < member.inputs.size(); ++k) {
        const Source source = reads_.sources[at(member.node)][k];
        if (source.node >= 0 && is_in(group, source.node)) continue;
        const Value& in = graph_.nodes[at(member.node)].inputs[k];
        for (const Member& writer : group.members) {
          if (writer.node >= member.node) break;
          for (const Value& out : graph_.nodes[at(writer.node)].outputs) {
            if (out.buffer == in.buffer && may_overlap(out.region(), in.region())) return false;
          }
        }
      }
    }
    return true;
  }

  // --- The graph of the groups ---

  // What goes from group to group, and why it does: from the last attempt to merge the two.
  void note_unfused() {
    const std::size_t calls = graph_.nodes.size();
    for (std::size_t i = 0; i < calls; ++i) {
      const Node& node = graph_.nodes[i];
      std::vector<std::pair<int, int>> known;
      for (const Source& source : reads_.sources[i]) {
        if (source.node < 0 || group_of_[at(source.node)] == group_of_[i]) continue;
        const std::pair edge{source.node, source.output};
        if (std::ranges::find(known, edge) != known.end()) continue;
        known.push_back(edge);
        const int from = group_of_[at(source.node)], to = group_of_[i];
        const auto tried = why_not_.find({from, to});
        const Node& producer = graph_.nodes[at(source.node)];
        graph_.unfused.push_back(
            {.why = opaque_[at(from)] || opaque_[at(to)] || tried == why_not_.end()
                        ? WhyNotFused::opaque_call
                        : tried->second,
             .producer = source.node,
             .consumer = static_cast<int>(i),
             .value = producer.outputs[at(source.output)],
             .producer_op = producer.call.op,
             .consumer_op = node.call.op,
             .is_producer_opaque = opaque_[at(from)],
             .producer_site = producer.site,
             .consumer_site = node.site});
      }
    }
  }

  // Whether a call that fuses with nothing is better as a body: a product that is several calls of
  // the library, or on CUDA zeros and a block among them.
  bool is_body_alone(int g) const {
    if (!is_live(g)) return false;
    if (contraction_in(groups_[at(g)])) return is_better_alone(graph_, *build(groups_[at(g)]));
    return graph_.device.is_cuda() &&
           op_info(graph_.nodes[at(g)].call.op).algebra == Algebra::embedding;
  }

  // The node of two bodies in one launch.
  static Node together(const Node& one, const Node& other) {
    auto spec = std::make_shared<BodySpec>(*one.body);
    spec->beside = other.body;
    const auto joined = [](auto a, const auto& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    Node node = fused_node(std::move(spec), joined(one.inputs, other.inputs),
                           joined(one.outputs, other.outputs), joined(one.fused, other.fused));
    node.role = one.role;
    node.site = one.site;
    node.composite = one.composite;
    node.module = one.module;
    node.call.in_place = one.call.in_place || other.call.in_place;
    node.calls = joined(one.calls, other.calls);
    return node;
  }

  Node node_of(const Group& group) const {
    FusedKernel kernel = *build(group);
    const Node& last = graph_.nodes[at(group.members.back().node)];
    std::vector<std::string> names;
    for (const Member& member : group.members)
      names.emplace_back(op_info(graph_.nodes[at(member.node)].call.op).name);
    Node node = fused_node(kernel.spec, kernel.inputs, kernel.outputs, std::move(names));
    node.role = last.role;
    node.site = last.site;
    node.composite = last.composite;
    node.module = last.module;
    for (const Member& member : group.members) {
      node.call.in_place |= graph_.nodes[at(member.node)].call.in_place;
      node.calls.push_back(member.node);
    }
    return node;
  }

  // Groups after all that their calls depend on; else in the order of their last calls.
  std::vector<int> order_of_groups() const {
    std::vector<int> waits(groups_.size(), 0);
    std::vector<std::vector<int>> next(groups_.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const int to = group_of_[i];
      for (const int before : reads_.predecessors[i]) {
        const int from = group_of_[at(before)];
        if (from == to) continue;
        next[at(from)].push_back(to);
        ++waits[at(to)];
      }
    }
    using Entry = std::pair<int, int>;  // the last call of a group, and the group
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto add = [&](int g) { ready.push({last_call(g), g}); };
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].members.empty() && waits[g] == 0) add(static_cast<int>(g));
    }
    std::vector<int> order;
    while (!ready.empty()) {
      const int g = ready.top().second;
      ready.pop();
      order.push_back(g);
      for (const int to : next[at(g)]) {
        if (--waits[at(to)] == 0) add(to);
      }
    }
    return order;
  }

  Graph& graph_;
  std::vector<bool> copies_;
  Flow flow_;
  Reads reads_;
  std::vector<int> group_of_;  // of each call
  std::vector<Group> groups_;  // by one of their calls; others are empty
  // By group: another one that runs in the same launch, whose calls are in `group_of_` as this
  // one's.
  std::vector<Group> beside_;
  std::vector<bool> opaque_;    // groups that merge with nothing
  std::vector<int64_t> bytes_;  // that the kernel of a group moves
  std::vector<bool> mixes_;     // whether it mixes directions
  std::vector<int> version_;    // of a group: merges so far
  std::priority_queue<Candidate> candidates_;
  std::map<std::pair<int, int>, WhyNotFused> why_not_;  // of a producer and a consumer
  mutable WhyNotFused rejected_{};                      // why the last group was none
  LargestBefore furthest_;  // by the first call of a group: its last one
  std::vector<int> seen_;   // by group: the last search that came to it
  int search_ = 0;
};

}  // namespace

int fuse(Graph& graph) {
  const int calls = static_cast<int>(graph.nodes.size());
  Fusion once(graph);
  once.group();
  Graph changed = graph;
  std::vector<bool> copies = recompute_for_readers(changed, once.groups());
  if (!copies.empty()) {
    Fusion again(changed, std::move(copies));
    again.group();
    if (again.cost() < once.cost()) {
      again.emit();
      graph = std::move(changed);
      remove_dead(graph);
      return calls - static_cast<int>(graph.nodes.size());
    }
  }
  return once.emit();
}

}  // namespace brrr::graph
