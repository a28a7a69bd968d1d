// Groups of calls that may become one kernel, and how the spaces of two groups correspond.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// An affine function of the coordinates of a group's space. An access has elements where its value
// is in [0, size).
struct AffineBound {
  Dims strides;
  std::int64_t offset = 0, size = 0;

  friend bool operator==(const AffineBound&, const AffineBound&) = default;
};

// A value as strides over the space of a group.
struct Access {
  int buffer = -1;
  DType dtype = DType::f32;
  Dims strides;
  std::int64_t offset = 0;
  // Inputs: where any bound is violated the value is zero, and memory is not read. The first bound
  // belongs to the call's own block (jit::is_made_of_blocks).
  std::vector<AffineBound> bounds = {};
  bool address = false;  // inputs: the base address of reads at computed indices

  // Calls f with the strides and the offset of the access and of each bound.
  template <class F>
  void each_function(F&& f) {
    f(strides, offset);
    for (AffineBound& bound : bounds) f(bound.strides, bound.offset);
  }

  friend bool operator==(const Access&, const Access&) = default;
};

struct Member {
  int node = -1;
  std::vector<Access> inputs, outputs;
  std::vector<Access> coordinates = {};  // linear functions of the space, of no buffer
  // A reduction over the dimensions that the group does not reduce.
  bool reduces_columns = false;
};

struct Group {
  Dims sizes;
  std::vector<bool> reduced;
  std::vector<Member> members;  // in the order of the graph

  int rank() const { return sizes.size(); }
  bool reduces() const { return std::ranges::find(reduced, true) != reduced.end(); }
  std::int64_t count(bool of_reduced) const {
    std::int64_t n = 1;
    for (int d = 0; d < rank(); ++d) n *= reduced[d] == of_reduced ? sizes[d] : 1;
    return n;
  }
  template <class F>
  void each_access(F&& f) {
    for (Member& member : members) {
      for (Access& access : member.inputs) f(access);
      for (Access& access : member.outputs) f(access);
      for (Access& access : member.coordinates) f(access);
    }
  }
  // Joins dimensions d and d + 1 if every access traverses them as one dimension.
  bool join(int d) {
    bool joint = reduced[d] == reduced[d + 1];
    const auto each_strides = [this](auto f) {
      each_access([&](Access& access) {
        access.each_function([&](Dims& strides, std::int64_t&) { f(strides); });
      });
    };
    each_strides(
        [&](const Dims& strides) { joint &= strides[d] == strides[d + 1] * sizes[d + 1]; });
    if (!joint) return false;
    each_strides([&](Dims& strides) { strides.erase(d); });
    sizes[d + 1] *= sizes[d];
    sizes.erase(d);
    reduced.erase(reduced.begin() + d);
    return true;
  }
  // Splits dimension d into two, of which the inner one has `inner` elements.
  void split(int d, std::int64_t inner) {
    each_access([&](Access& access) {
      access.each_function([&](Dims& strides, std::int64_t&) {
        const std::int64_t stride = strides[d];
        strides[d] = stride * inner;
        strides.insert(d + 1, stride);
      });
    });
    sizes[d] /= inner;
    sizes.insert(d + 1, inner);
    reduced.insert(reduced.begin() + d + 1, reduced[d]);
  }
};

// Whether this call can be part of a group; the group of this call alone. `number`: of the call.
bool is_fusable(const Node& node);
// Whether a kernel of this op needs the coordinates of its elements.
bool needs_coordinates(const OpInfo& op);
// Whether the planner can elide a concatenation because its operands are computed in its result.
bool is_made_in_place(const Graph& graph, const Node& node);
// Whether a large copy and its source have only short contiguous runs in common (a transpose). The
// CPU's copy kernel walks in tiles there; a fused kernel would walk run by run, which is slower
// than a separate copy.
bool is_scattered_copy(const Node& node);
Group group_of(const Node& node, int number);

// How a read moves along one dimension of the consumer: `factor` steps along dimension `dim` of the
// producer for each step. dim -1: the read is constant.
struct DimStep {
  int dim = -1;
  std::int64_t factor = 0;
};

struct Correspondence {
  std::vector<DimStep> steps;  // of each dimension of the consumer
  Dims origin;                 // where the read begins, by dimension of the producer
};

// How `read`, over the space of `consumer`, traverses the elements that `made` writes over the
// space of `producer`. None: there is no correspondence; or a dimension of the consumer traverses
// several of the producer's and has been split, so the call must be repeated.
std::optional<Correspondence> correspond(Group& consumer, const Access& read, const Group& producer,
                                         const Access& made);
// The same for a read with bounds: the correspondence holds within the bounds only.
std::optional<Correspondence> correspond_within(Group& consumer, const Access& read,
                                                const Group& producer, const Access& made);
// Whether the consumer reads every element of the producer's unreduced space (several times, if the
// read is constant in some of the consumer's dimensions).
bool covers(const Correspondence& c, const Group& consumer, const Group& producer);
// Rewrites the producer's accesses over the consumer's space, with the bounds of the consumer's
// read.
void pull(Group& producer, const Correspondence& c, const Group& consumer,
          const std::vector<AffineBound>& bounds);
// Rewrites the accesses of a group over the space of a product. `read` of the group and `factor` of
// the product read the same tensor; the group's dimensions become those in which the factor varies.
// False: they do not correspond.
bool spread(Group& group, const Access& read, const Group& product, const Access& factor);
// Rewrites the consumer's accesses over the space of a producer with reductions, all of whose
// results it reads. The correspondence is that of a read of the producer's rows.
bool push(Group& consumer, Correspondence c, Group& producer);

}  // namespace brrr::graph
