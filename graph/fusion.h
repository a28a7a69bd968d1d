// The fusion pass: merges calls of a graph into groups (fuse.cpp, products in fusion_products.cpp),
// then emits a graph with one node for each group (fusion_emit.cpp).
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/graph/flow.h>
#include <brrr/graph/flow_dependences.h>
#include <brrr/graph/fusion_group.h>
#include <brrr/graph/fusion_kernel.h>
#include <brrr/graph/predicted_time.h>
#include <brrr/graph/recompute.h>

namespace brrr::graph {

// The maximum of the values at indices 0 to i, where values may only increase (a Fenwick tree).
class PrefixMaximum {
 public:
  explicit PrefixMaximum(std::size_t count) : largest_(count + 1, -1) {}

  void raise(int index, int value) {
    for (std::size_t i = static_cast<std::size_t>(index) + 1; i < largest_.size(); i += i & -i)
      largest_[i] = std::max(largest_[i], value);
  }
  int up_to(int index) const {
    int largest = -1;
    for (std::size_t i = static_cast<std::size_t>(index) + 1; i > 0; i -= i & -i)
      largest = std::max(largest, largest_[i]);
    return largest;
  }

 private:
  std::vector<int> largest_;
};

class Fusion {
 public:
  // `copies`: calls that recomputation duplicated for one reader; they fuse with it first.
  explicit Fusion(Graph& graph, std::vector<bool> copies = {})
      : graph_(graph),
        copies_(std::move(copies)),
        flow_(graph),
        dependences_(graph),
        group_of_(graph.nodes.size()),
        groups_(graph.nodes.size()),
        paired_(graph.nodes.size()),
        opaque_(graph.nodes.size(), false),
        ceilings_(ceilings_for(graph)),
        work_of_call_(graph.nodes.size()),
        work_(graph.nodes.size()),
        mixes_(graph.nodes.size(), false),
        version_(graph.nodes.size(), 0),
        furthest_(graph.nodes.size()),
        seen_(graph.nodes.size(), 0),
        summaries_(graph.nodes.size()),
        member_of_(graph.nodes.size(), 0) {
    find_fills();
  }

  void group();

  // The groups, for passes that recompute values.
  GroupsOfCalls groups() const;

  // The predicted time of the step's kernels one after another, in picoseconds.
  std::int64_t cost() const;

  // Replaces the calls of each group by one node; returns by how many the number of nodes
  // decreased.
  int emit();

 private:
  static constexpr int kMostMembers = 256, kMostVisited = 4096;
  using Pairs = std::vector<std::pair<int, int>>;

  bool is_in(const Group& group, int node) const {
    return std::ranges::any_of(group.members,
                               [node](const Member& member) { return member.node == node; });
  }

  // Makes a group the current one, so that is_in_current() need not search its members.
  void mark_members(const Group& group) const {
    ++current_;
    for (const Member& member : group.members) {
      if (member.node >= 0) member_of_[member.node] = current_;
    }
  }
  bool is_in_current(int node) const { return node >= 0 && member_of_[node] == current_; }

  // Merges pairs of a producer and a consumer, those first that save the most time.
  void merge_all();

  // A merge, and its rank: the picoseconds that it saves.
  struct Merge {
    std::int64_t rank;
    int consumer, producer, consumer_version, producer_version;

    // Order of the priority queue: the largest saving first, among equals the earliest in the
    // graph.
    friend bool operator<(const Merge& a, const Merge& b) {
      return std::tie(a.rank, b.consumer, b.producer) < std::tie(b.rank, a.consumer, a.producer);
    }
  };

  // Adds the producers that a group may merge with and, with `consumers_too`, the consumers.
  void add_candidates(int group, bool consumers_too);

  void add_candidate(int producer, int consumer);

  // What ranks a merge.
  struct MergedKernel {
    Work work;
    bool mixes = false, computes_factor = false;
  };
  std::optional<MergedKernel> kernel_of_merged(int producer, int consumer);

  // Ticks of 2^-16 ps for predicted times, so that rounding three times does not rank merges that
  // save equally many bytes.
  static constexpr std::int64_t kTicks = 1 << 16;
  std::int64_t ticks_of(const Work& work) const {
    Work scaled = work;
    // Merges are ranked by memory traffic and arithmetic alone.
    scaled.functions = scaled.draws = scaled.conversions = 0;
    for (std::int64_t* each : {&scaled.bytes, &scaled.flops, &scaled.product_flops})
      *each = std::min(*each, INT64_MAX / kTicks) * kTicks;
    return time_of(scaled, ceilings_, ceilings_.node_ps * kTicks).ps();
  }

  bool is_copy(const Group& group) const;
  // Whether the group is a copy that only products read, as one that copy_factors() inserted.
  bool is_factor_copy(const Group& group) const;

  // Whether some result of the group has several readers and the group could be merged into each of
  // them (recomputed there): then the result need not be in memory.
  bool is_better_in_readers(int group);

  // Whether the consumer is a recomputation in the backward pass and the producer runs in the
  // forward pass: merged, they would keep the values that rematerialization wants to drop.
  bool is_made_early(int producer, int consumer) const;

  // Calls f with every call that runs in the kernel of a group.
  template <class F>
  void each_call(int group, F&& f) const {
    for (const Group* of : {&groups_[group], &paired_[group]}) {
      for (const Member& member : of->members) f(member.node);
    }
  }
  int first_call(int group) const {
    int first = static_cast<int>(groups_.size());
    for (const Group* of : {&groups_[group], &paired_[group]}) {
      if (!of->members.empty()) first = std::min(first, of->members.front().node);
    }
    return first;
  }
  int last_call(int group) const {
    int last = -1;
    for (const Group* of : {&groups_[group], &paired_[group]}) {
      if (!of->members.empty()) last = std::max(last, of->members.back().node);
    }
    return last;
  }

  // The last call from which a path of dependences may lead to `call`. Paths lead from a call to
  // later ones, and to earlier ones only within a group.
  int furthest_before(int call) const;

  // Whether some other group must run between the two, so that merging them would make a cycle.
  bool has_path_between(int from, int to);

  std::optional<Group> merged_of(int producer, int consumer);

  void merge(int producer, int consumer);

  // --- Summaries of groups ---

  // The operands of a group's kernel, of which there are few, however many calls it has. Between
  // regular groups over one space they decide whether these may merge and how much that saves, so a
  // merge in a long chain costs no more than one in a short chain. Other groups are built, unless
  // their operands are too many.
  struct Summary {
    struct Operand {
      Access access;  // of groups that are not regular: any of those of its buffer
      Source source;  // of an input; or the output itself
      // Of regular groups.
      Value value = {};
      std::int64_t bytes = 0, conversions = 0;
      bool full = false;  // an output: each element of the space has a value and a place of its own
    };
    std::vector<Operand> inputs = {}, outputs = {};
    // Only pointwise calls and reductions of rows, none of which depends on coordinates or order.
    bool regular = false;
    std::size_t values = 0, scalars = 0;  // of the body, without inputs
    Work work;
    bool mixes = false;  // mixes_directions
  };
  Summary summary_of(int group, const FusedKernel& kernel) const;
  bool is_regular(const Group& group, const FusedKernel& kernel) const;
  // Whether no kernel has enough operands for the two groups together.
  bool have_too_many_operands(int producer, int consumer) const;
  // Whether both are regular, at most one reduces, and the consumer reads each element where the
  // producer writes it.
  bool are_over_one_space(int producer, int consumer) const;
  // The operands of two such groups together, and their work; none if they must not merge.
  struct MergedSummary {
    std::vector<const Summary::Operand*> inputs, outputs;
    Work work;
    bool mixes = false;
  };
  std::optional<MergedSummary> merged_summary(int producer, int consumer);
  bool may_reduce_together(int producer, int consumer);
  void merge_over_one_space(int producer, int consumer, const MergedSummary& merged);

  // Merges recomputed calls whose results must be in memory (for a product) into a kernel that
  // reads the same operands.
  void merge_recomputed();
  std::optional<Group> in_kernel_of_reader(int recomputed, int reader);
  // Whether, in the backward pass, at most a few groups besides this one read a buffer.
  bool is_of_one_layer(int buffer, int recomputed) const;

  // Merges independent reductions that read one tensor in the same order, such as the gradients of
  // a norm's scale and shift: the tensor is read once.
  void merge_siblings();
  // The merged group, or none if the two share no access to a tensor, or depend on each other.
  std::optional<Group> side_by_side(int one, int other);
  // Merges a reduction of columns into the kernel of a reduction of rows that reads or writes the
  // same elements, such as the gradients of a norm's scale and shift into that of its input.
  // Returns whether there was one.
  bool merge_columns_into_rows();
  std::optional<Group> rows_with_columns(int rows, int columns);
  // Pairs of groups with reductions that read the same value, or of which one reads a value that
  // the other writes. A pair is listed once for each such value.
  Pairs neighbours_with_reductions() const;
  // Whether the two may read the same elements: a quick test by address range and size. All norms
  // read the flat tensor of parameters, each at another offset, and trying to merge each pair of
  // them would take too long.
  bool may_share_read(const Group& one, const Group& other) const;

  // Group `merged` takes the place of two.
  void replace(int group, int other, Group merged);
  void take_place(int group, int other, Group merged);

  // --- Reductions of the factors of matrix products ---

  // A product reads both factors as a whole. So it can also reduce a factor over the summed
  // dimension (the gradient of a bias) without reading it once more.
  void merge_reductions_of_factors();

  // --- Products side by side ---

  // Runs two independent products in one launch if they are small enough to run concurrently, or if
  // tiles of both in one grid are predicted to be faster. The chain of launches is one node
  // shorter.
  void pair_products();
  // Pairs a product that no other product depends on, such as the gradient of a weight, with the
  // next product of the chain. Its factors are final when that launch starts, so it multiplies them
  // before it waits for the previous launch.
  Pairs pairs_with_next(const std::vector<int>& products);
  Pairs readers_of_one_factor(const std::vector<int>& products);
  bool may_pair(int one, int other);
  void pair(int one, int other);

  // For each call, whether a matrix product depends on it.
  std::vector<bool> leads_to_product() const;
  // The results that a product's factors read.
  std::vector<Source> factors_of(int product) const;
  bool have_factor_in_common(int one, int other) const;

  bool is_independent(int one, int other);

  bool is_single(int g) const { return is_live(g) && paired_[g].members.empty(); }

  double share_of(const Group& product) const;
  bool are_better_together(int one, int other) const;

  bool is_live(int g) const { return !opaque_[g] && !groups_[g].members.empty(); }

  // The product that a group computes; none of a group that is a call of its own.
  const Member* contraction_in(const Group& group) const;

  // The group of a product and a reduction of one of its factors.
  std::optional<Group> with_reduction(const Group& product, const Group& reduction) const;
  // Whether a product would take the reduction, which reads a factor of it.
  bool is_taken_by_product(const Group& reduction) const;

  // Calls f with every read in `to` of a result of `from`, and that result.
  template <class F>
  void each_read(Group& to, Group& from, F&& f) {
    for (Member& reader : to.members) {
      for (std::size_t k = 0; k < reader.inputs.size(); ++k) {
        const Source source = dependences_.sources[reader.node][k];
        if (source.node < 0) continue;
        for (Member& writer : from.members) {
          if (writer.node == source.node) f(reader.inputs[k], writer.outputs[source.output]);
        }
      }
    }
  }

  std::optional<Group> merged_of(Group& from, Group& to);

  // `correspond`, repeated until it needs no further split of the consumer's dimensions. Rewrites
  // `read` for the split dimensions.
  static std::optional<Correspondence> correspond_after_splits(Group& consumer, Access& read,
                                                               const Group& producer,
                                                               const Access& made);

  // Whether elements of the producer would be computed several times. Values of rows do not count,
  // since they are computed once per row.
  static bool repeats(const Correspondence& c, const Group& consumer);

  // Whether the group gathers, scatters, draws or checks.
  bool has_indexed(const Group& group) const;
  bool is_cheap(const Group& group) const;

  // Whether a reduction should also store its operand for other readers, in place of a kernel
  // before it. A short reduction should not: it would delay these readers, and could run
  // concurrently with them.
  bool is_worth_storing(const Group& producer, const Group& consumer) const;

  // Whether the consumer reads a value that depends on a reduction of the producer.
  bool waits_for_reduction(const Group& producer, const Group& consumer) const;
  // Whether there are enough rows to fill the device with a kernel that computes whole rows.
  bool is_worth_rows(const Group& producer, const Group& consumer) const;

  // Whether a call outside of the two groups reads a result of the first.
  bool is_needed_outside(const Group& group, const Group& other) const;
  // Whether a call outside of both groups, other than a reduction, reads a result of the first. A
  // reduction does not count, since it could still be merged.
  bool is_awaited_outside(const Group& group, const Group& other) const;

  // Whether a result must be in memory: it escapes, or a call for which `inside` is false reads it.
  template <class Inside>
  bool is_needed(int node, int output, const Inside& inside) const {
    const Value& value = graph_.nodes[node].outputs[output];
    if (!graph_.is_temporary(value.buffer) || flow_.escapes(value.buffer)) return true;
    const bool is_only_one = graph_.nodes[node].outputs.size() == 1;
    return std::ranges::any_of(dependences_.readers[node], [&](int reader) {
      if (inside(reader)) return false;
      return is_only_one || std::ranges::any_of(graph_.nodes[reader].inputs, [&](const Value& in) {
               return in.buffer == value.buffer && may_overlap(in.region(), value.region());
             });
    });
  }

  // Records why the current group cannot be a kernel.
  std::nullopt_t reject(WhyNotFused why) const;

  // --- From a group to a kernel ---

  // Finds buffers that are filled with one number.
  void find_fills();
  // The call that fills the buffer of input `k`, if the kernel can use the number in place of the
  // input; else null.
  const Call* fill_of(const Member& member, std::size_t k) const;

  // The values of results, by call and output.
  using ResultValues = std::unordered_map<std::int64_t, int>;
  static std::int64_t key_of(int call, int output) { return std::int64_t{call} << 8 | output; }
  std::vector<int> operands_of(const Group& group, const Member& member, const ResultValues& made,
                               FusedKernel& kernel, BodyReads& reads) const;
  // Appends the values of a call's results.
  std::vector<int> results_of(const Group& group, const Member& member,
                              std::span<const int> operands, std::span<const DType> dtypes,
                              FusedKernel& kernel, BodyReads& reads) const;

  // The kernel of a group; none if no body can compute it.
  std::optional<FusedKernel> build(const Group& group) const;

  // Whether in-place writes are safe: an element that the kernel writes is read, if at all, by the
  // same thread before it writes it.
  bool keeps_order(const Group& group, const FusedKernel& kernel) const;

  // --- The graph of the groups ---

  // Records the values between groups, with the reason of the last attempt to merge the two groups.
  void note_unfused();

  // Whether a call that fuses with no other is still better generated: a product that would be
  // several calls of the library, or on CUDA a block among zeros.
  bool is_body_alone(int g) const;

  // The node of two bodies in one launch.
  static Node together(const Node& one, const Node& other);

  Node node_of(const Group& group) const;

  // The position at which a group should run: that of its last call; for a group with calls of the
  // forward pass that of its first reader, if earlier. Otherwise a loss in one kernel with the last
  // gradient of the step would run after all recomputations.
  int due(int group, const std::vector<int>& readers) const;
  // Groups in topological order; among ready groups the one that is due first.
  std::vector<int> order_of_groups() const;

  Graph& graph_;
  std::vector<bool> copies_;
  Flow flow_;
  CallDependences dependences_;
  std::map<int, Call> fills_;  // by buffer: the call that fills it
  std::vector<int> group_of_;  // of each call
  std::vector<Group> groups_;  // by one of their calls; others are empty
  // By group: a second group in the same launch. `group_of_` maps its calls to the first.
  std::vector<Group> paired_;
  std::vector<bool> opaque_;  // groups that cannot merge
  Ceilings ceilings_;
  std::vector<Work> work_of_call_;
  std::vector<Work> work_;    // of the kernel of a group
  std::vector<bool> mixes_;   // by group: mixes_directions of its kernel
  std::vector<int> version_;  // of a group: merges so far
  std::priority_queue<Merge> candidates_;
  std::map<std::pair<int, int>, WhyNotFused> why_not_;  // of a producer and a consumer
  mutable WhyNotFused rejected_{};                      // why the last attempt failed
  PrefixMaximum furthest_;  // by the first call of a group: its last one
  std::vector<int> seen_;   // by group: the last search that visited it
  int search_ = 0;
  std::vector<Summary> summaries_;  // by group
  // By call: the last group that was marked as the current one.
  mutable std::vector<int> member_of_;
  mutable int current_ = 0;
};

}  // namespace brrr::graph
