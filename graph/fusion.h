// Groups of the calls of a graph while they are found (fuse.cpp), products among them
// (fusion_products.cpp), and the graph of the groups (fusion_emit.cpp).
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/graph/flow.h>
#include <brrr/graph/fusion_group.h>
#include <brrr/graph/fusion_kernel.h>
#include <brrr/graph/fusion_reads.h>
#include <brrr/graph/predicted_time.h>
#include <brrr/graph/recompute.h>

namespace brrr::graph {

// The largest of the values of all indices up to one, while values only rise (a Fenwick tree).
class LargestBefore {
 public:
  explicit LargestBefore(std::size_t count) : largest_(count + 1, -1) {}

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
        ceilings_(ceilings_for(graph)),
        work_(graph.nodes.size()),
        mixes_(graph.nodes.size(), false),
        version_(graph.nodes.size(), 0),
        furthest_(graph.nodes.size()),
        seen_(graph.nodes.size(), 0) {
    find_fills();
  }

  void group();

  // For passes that recompute values: a product reads its factors from memory.
  GroupsOfCalls groups() const;

  // The predicted time of the step's kernels one after another, in picoseconds.
  std::int64_t cost() const;

  // Replaces the calls of each group by one node; returns how many fewer there are.
  int emit();

 private:
  static constexpr int kMostMembers = 256, kMostVisited = 4096;

  bool is_in(const Group& group, int node) const {
    return std::ranges::any_of(group.members,
                               [node](const Member& member) { return member.node == node; });
  }

  // Merges pairs of a producer and a consumer, those first that save the most time.
  void merge_all();

  // A merge, and its rank: the picoseconds that it saves.
  struct Merge {
    std::int64_t rank;
    int consumer, producer, consumer_version, producer_version;

    // The first of a queue has the largest: of equal ones the earliest in the graph.
    friend bool operator<(const Merge& a, const Merge& b) {
      return std::tie(a.rank, b.consumer, b.producer) < std::tie(b.rank, a.consumer, a.producer);
    }
  };

  // Adds the producers that a group may merge with and, with `consumers_too`, the consumers.
  void add_candidates(int group, bool consumers_too);

  void add_candidate(int producer, int consumer);

  // The predicted time of a kernel in a replay, in 2^-16 ps: merges that save as many bytes must
  // not differ by how three times were rounded.
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

  // Whether several calls read some result of the group and every group that reads it could merge
  // with this one: then that result need not be in memory.
  bool is_better_in_readers(int group);

  // Whether the consumer consists of calls that run again in the backward pass, and the producer
  // runs in the forward pass: one kernel of both would keep what the former make.
  bool is_made_early(int producer, int consumer) const;

  // Calls f with every call that runs in the kernel of a group.
  template <class F>
  void each_call(int group, F&& f) const {
    for (const Group* of : {&groups_[group], &beside_[group]}) {
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
  int furthest_before(int call) const;

  // Whether some other group must run between two of them.
  bool has_path_between(int from, int to);

  std::optional<Group> merged_of(int producer, int consumer);

  void merge(int producer, int consumer);

  // Merges calls that run again for a reader that needs their results in memory, such as a product,
  // with a kernel that reads what they read.
  void merge_recomputed();
  std::optional<Group> in_kernel_of_reader(int recomputed, int reader);
  // Whether few groups beside this one read a buffer in the backward pass.
  bool is_of_one_layer(int buffer, int recomputed) const;

  // Merges independent reductions that read one tensor in the same order, such as the gradients of
  // a norm's scale and shift: the tensor is read once.
  void merge_siblings();
  // The merged group, or none if the two share no access to a tensor, or depend on each other.
  std::optional<Group> side_by_side(int one, int other);
  // Whether the two may share an access: elements in one place, and as many of them. All norms read
  // the flat tensor of parameters, each elsewhere; a step has too many pairs of them to merge each.
  bool may_share_read(const Group& one, const Group& other) const;

  // Group `merged` takes the place of two.
  void replace(int group, int other, Group merged);

  // --- Reductions of the factors of matrix products ---

  // A product reads every row of one factor and every column of the other: a reduction over the
  // summed dimension of what a factor is (the gradient of a bias) costs no other read.
  void merge_reductions_of_factors();

  // --- Products side by side ---

  // Products that do not depend on each other run in one launch if the device can run small ones at
  // once, or if tiles of both are faster than a launch each: the chain has a node less.
  void pair_products();
  using Pairs = std::vector<std::pair<int, int>>;
  // A product that no other product depends on, such as the gradient of a weight, beside the next
  // product of the chain: its factors are final when that launch starts, so it reads and multiplies
  // them before it waits for the launch ahead.
  Pairs beside_next(const std::vector<int>& products);
  Pairs readers_of_one_factor(const std::vector<int>& products);
  bool may_pair(int one, int other);
  void pair(int one, int other);

  // Of each call, whether a matrix product depends on it.
  std::vector<bool> leads_to_product() const;
  // What the factors of a product are, of those that calls make.
  std::vector<Source> factors_of(int product) const;
  bool have_factor_in_common(int one, int other) const;

  bool is_independent(int one, int other);

  bool is_single(int g) const { return is_live(g) && beside_[g].members.empty(); }

  double share_of(int g) const;
  bool are_better_together(int one, int other) const;

  bool is_live(int g) const { return !opaque_[g] && !groups_[g].members.empty(); }

  const Member* contraction_in(const Group& group) const;

  // The group of a product and a reduction of what one of its factors is.
  std::optional<Group> with_reduction(int product, int reduction) const;

  // Calls f with every read in `to` of a result of `from`, and that result.
  template <class F>
  void each_read(Group& to, Group& from, F&& f) {
    for (Member& reader : to.members) {
      for (std::size_t k = 0; k < reader.inputs.size(); ++k) {
        const Source source = reads_.sources[reader.node][k];
        if (source.node < 0) continue;
        for (Member& writer : from.members) {
          if (writer.node == source.node) f(reader.inputs[k], writer.outputs[source.output]);
        }
      }
    }
  }

  std::optional<Group> merged_of(Group& from, Group& to);

  // `correspond`, once the consumer's dimensions are split as it asks for; `read` is then over
  // them.
  static std::optional<Correspondence> correspond_after_splits(Group& consumer, Access& read,
                                                               const Group& producer,
                                                               const Access& made);

  // Whether elements of the producer would be computed several times. Values of rows are not: a
  // row's are computed once.
  static bool repeats(const Correspondence& c, const Group& consumer);

  // Whether it gathers, scatters, draws or checks.
  bool has_indexed(const Group& group) const;
  bool is_cheap(const Group& group) const;

  // Whether a reduction that also stores what it reduces is faster than a kernel before it: a short
  // reduction delays the readers of the stored value, and could run concurrently with them.
  bool is_worth_storing(const Group& producer, const Group& consumer) const;

  // Whether the consumer reads what depends on a reduction of the producer.
  bool waits_for_reduction(const Group& producer, const Group& consumer) const;
  // Whether what is computed over whole rows leaves enough rows to fill a device.
  bool is_worth_rows(const Group& producer, const Group& consumer) const;

  // Whether anybody but the members of the two groups reads what the first one makes.
  bool is_needed_outside(const Group& group, const Group& other) const;
  // Whether a call outside of both reads the first one's result and is no reduction. A reduction
  // could still be merged, so it does not count.
  bool is_awaited_outside(const Group& group, const Group& other) const;

  // Whether a result must be in memory: it escapes, or a call reads it that is not `inside`.
  template <class Inside>
  bool is_needed(int node, int output, const Inside& inside) const {
    const Value& value = graph_.nodes[node].outputs[output];
    if (!graph_.is_temporary(value.buffer) || flow_.escapes(value.buffer)) return true;
    return std::ranges::any_of(reads_.readers[node], [&](int reader) {
      if (inside(reader)) return false;
      return std::ranges::any_of(graph_.nodes[reader].inputs, [&](const Value& in) {
        return in.buffer == value.buffer && may_overlap(in.region(), value.region());
      });
    });
  }

  // Says why the group at hand is none.
  std::nullopt_t reject(WhyNotFused why) const;

  // --- From a group to a kernel ---

  // Buffers that are one number throughout.
  void find_fills();
  // The call that fills what input `k` of a call reads, if a kernel can have the number in place of
  // it; null: it cannot.
  const Call* fill_of(const Member& member, std::size_t k) const;

  // The values of results, by call and output, and those of a call's operands.
  using ResultValues = std::map<std::pair<int, int>, int>;
  std::vector<int> operands_of(const Group& group, const Member& member, const ResultValues& made,
                               FusedKernel& kernel, BodyReads& reads) const;
  // Appends the values of a call's results.
  std::vector<int> results_of(const Group& group, const Member& member,
                              std::span<const int> operands, std::span<const DType> dtypes,
                              FusedKernel& kernel, BodyReads& reads) const;

  // The kernel of a group; none where no body computes it.
  std::optional<FusedKernel> build(const Group& group) const;

  // Whether the kernel reads nothing that it writes, but for elements that the same thread wrote
  // after it read them.
  bool keeps_order(const Group& group, const FusedKernel& kernel) const;

  // --- The graph of the groups ---

  // Records the values between groups, with the reason of the last attempt to merge the two groups.
  void note_unfused();

  // Whether a call that fuses with nothing is better as a body: a product that is several calls of
  // the library, or on CUDA zeros and a block among them.
  bool is_body_alone(int g) const;

  // The node of two bodies in one launch.
  static Node together(const Node& one, const Node& other);

  Node node_of(const Group& group) const;

  // When a group is to run: at its last call. One of the forward pass at its first reader's, if
  // that is earlier: a loss in one kernel with the last gradient of the step would otherwise run
  // after all calls that run again.
  int due(int group, const std::vector<int>& readers) const;
  // Groups after all that their calls depend on; else in the order in which they are due.
  std::vector<int> order_of_groups() const;

  Graph& graph_;
  std::vector<bool> copies_;
  Flow flow_;
  Reads reads_;
  std::map<int, Call> fills_;  // by buffer: the call that fills it
  std::vector<int> group_of_;  // of each call
  std::vector<Group> groups_;  // by one of their calls; others are empty
  // By group: another one that runs in the same launch, whose calls are in `group_of_` as this
  // one's.
  std::vector<Group> beside_;
  std::vector<bool> opaque_;  // groups that merge with nothing
  Ceilings ceilings_;
  std::vector<Work> work_;    // of the kernel of a group
  std::vector<bool> mixes_;   // whether it mixes directions
  std::vector<int> version_;  // of a group: merges so far
  std::priority_queue<Merge> candidates_;
  std::map<std::pair<int, int>, WhyNotFused> why_not_;  // of a producer and a consumer
  mutable WhyNotFused rejected_{};                      // why the last group was none
  LargestBefore furthest_;  // by the first call of a group: its last one
  std::vector<int> seen_;   // by group: the last search that came to it
  int search_ = 0;
};

}  // namespace brrr::graph
