// Groups of calls that may become one kernel, and how the spaces of two groups correspond.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// An affine function of the coordinates of a group's space, whose values are below `size` and not
// below 0 where an access has elements.
struct AffineBound {
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0, size = 0;

  friend bool operator==(const AffineBound&, const AffineBound&) = default;
};

// A value as strides over the space of a group.
struct Access {
  int buffer = -1;
  DType dtype = DType::f32;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  // Inputs: outside of any of these the value is zero, and memory is not read. The first one is of
  // the call's own block (jit::is_made_of_blocks).
  std::vector<AffineBound> bounds = {};
  bool address = false;  // inputs: elements are read at computed distances from here

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
};

struct Group {
  std::vector<std::int64_t> sizes;
  std::vector<bool> reduced;
  std::vector<Member> members;  // in the order of the graph

  int rank() const { return static_cast<int>(sizes.size()); }
  bool reduces() const { return std::ranges::find(reduced, true) != reduced.end(); }
  std::int64_t count(bool of_reduced) const {
    std::int64_t n = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) n *= reduced[d] == of_reduced ? sizes[d] : 1;
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
  // Dimensions d and d + 1 become one where every access passes through them as one.
  bool join(int d) {
    const std::size_t at = static_cast<std::size_t>(d);
    bool joint = reduced[at] == reduced[at + 1];
    const auto each_strides = [this](auto f) {
      each_access([&](Access& access) {
        access.each_function(
            [&](std::vector<std::int64_t>& strides, std::int64_t&) { f(strides); });
      });
    };
    each_strides([&](const std::vector<std::int64_t>& strides) {
      joint &= strides[at] == strides[at + 1] * sizes[at + 1];
    });
    if (!joint) return false;
    each_strides([&](std::vector<std::int64_t>& strides) { strides.erase(strides.begin() + d); });
    sizes[at + 1] *= sizes[at];
    sizes.erase(sizes.begin() + d);
    reduced.erase(reduced.begin() + d);
    return true;
  }
  // Dimension d becomes two, of which the inner one has `inner` elements.
  void split(int d, std::int64_t inner) {
    each_access([&](Access& access) {
      access.each_function([&](std::vector<std::int64_t>& strides, std::int64_t&) {
        const std::int64_t stride = strides[d];
        strides[d] = stride * inner;
        strides.insert(strides.begin() + d + 1, stride);
      });
    });
    sizes[d] /= inner;
    sizes.insert(sizes.begin() + d + 1, inner);
    reduced.insert(reduced.begin() + d + 1, reduced[d]);
  }
};

// Whether a group can have this call, and the group of it alone. `number`: of the call.
bool is_fusable(const Node& node);
// Whether a kernel of this op needs the coordinates of its elements.
bool needs_coordinates(const OpInfo& op);
// Whether the planner can spare a call: operands that follow one another are made in its result.
bool is_made_in_place(const Graph& graph, const Node& node);
// Whether a large copy has short runs in common with what it copies. The CPU's copies walk in tiles
// there; a fused kernel walks run by run, and costs more than the copy.
bool is_scattered_copy(const Node& node);
Group group_of(const Node& node, int number);

// One dimension of a consumer: `factor` steps along a producer's dimension for each of its own.
// dim -1: the read does not move.
struct DimStep {
  int dim = -1;
  std::int64_t factor = 0;
};

struct Correspondence {
  std::vector<DimStep> steps;        // of each dimension of the consumer
  std::vector<std::int64_t> origin;  // where the read begins, by dimension of the producer
};

// How `read`, over the space of `consumer`, moves through what `made` writes over the space of
// `producer`. None: there is no such correspondence, or a dimension of the consumer ran through
// several of the producer's and was split: then ask again.
std::optional<Correspondence> correspond(Group& consumer, const Access& read, const Group& producer,
                                         const Access& made);
// The same of a read with bounds: within them. Of the elements outside the correspondence says
// nothing, though it is linear there too.
std::optional<Correspondence> correspond_within(Group& consumer, const Access& read,
                                                const Group& producer, const Access& made);
// Whether each element of the producer's unreduced space is read, once for all of the other
// dimensions.
bool covers(const Correspondence& c, const Group& consumer, const Group& producer);
// Writes the producer's accesses over the consumer's space, with the bounds of what is read of it.
void pull(Group& producer, const Correspondence& c, const Group& consumer,
          const std::vector<AffineBound>& bounds);
// Writes the accesses of a group that reads what `factor` reads over the space of a product that
// has that factor: its dimensions become those that the factor varies in. False: they do not
// correspond.
bool spread(Group& group, const Access& read, const Group& product, const Access& factor);
// Writes the consumer's accesses over the space of a producer with reductions, all of whose results
// it reads. The correspondence is that of a read of the producer's rows.
bool push(Group& consumer, Correspondence c, Group& producer);

}  // namespace brrr::graph
