// The kernel of a group while it is built: what it reads, as values of its body.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <brrr/graph/ceilings.h>
#include <brrr/graph/fusion_group.h>
#include <brrr/graph/why_not_fused.h>

namespace brrr::graph {

struct FusedKernel {
  std::shared_ptr<BodySpec> spec;
  std::vector<Value> inputs, outputs;
};

// The inputs of a body that is being built, and its values.
struct BodyReads {
  // A bound in the body: values of its coordinate and of both ends.
  struct BodyBound {
    AffineBound bound;
    int index, low, high;
  };
  std::vector<std::pair<Access, int>> inputs;
  std::vector<std::pair<std::vector<std::int64_t>, int>> coordinates;  // by their strides
  std::vector<BodyBound> bounds;
};

// The value of an i64 that is an argument of the kernel.
int number_of(FusedKernel& kernel, std::int64_t number);
// The value of the coordinate with these strides that is 0 at the space's origin.
int index_of(const Group& group, FusedKernel& kernel, BodyReads& reads,
             const std::vector<std::int64_t>& strides);
// The value of a coordinate.
int coordinate_of(const Group& group, FusedKernel& kernel, BodyReads& reads,
                  const Access& coordinate);
// The value of an input, or the input itself if it is an address: `value` is all that its call
// reads.
int input_of(const Group& group, FusedKernel& kernel, BodyReads& reads, const Access& access,
             const Value& value);
// The value of a call whose result is made of blocks, `operands`.
int block_value(const Group& group, FusedKernel& kernel, BodyReads& reads, const Node& node,
                const Member& member, std::span<const int> operands);

// Adds the results that are in memory, by their accesses and values; or says why a kernel cannot
// have them.
std::optional<WhyNotFused> add_outputs(const Group& group,
                                       std::vector<std::pair<const Access*, int>>& stored,
                                       FusedKernel& kernel);

// Whether a body with a contraction is one that a kernel is generated for: factors come from
// memory, and what follows is computed once for each result.
bool contracts(const Graph& graph, const FusedKernel& kernel);
// Whether a contraction alone is better than the library's.
bool is_better_alone(const Graph& graph, const FusedKernel& kernel);

// The bytes of inputs that are gathered from, and not read.
std::int64_t unread_bytes(const FusedKernel& kernel);

std::vector<Dims> strides_of(const FusedKernel& kernel);
std::int64_t flops_of(const Node& node);
// The work of a single call, and of a kernel of several.
Work work_of(const Node& node, Device device);
Work work_of(const FusedKernel& kernel, Device device);
// Whether eager's CPU kernel combines the elements of a row in the same order for operands with
// these strides. A generated kernel has one order for all of its reductions.
bool combines_alike(const BodySpec& spec, const Dims& one, const Dims& other);
// Whether neighbours in memory are in one row for some operands of a kernel with reductions, and in
// one column for others. Threads go one way: a copy that transposes is better a kernel of its own.
bool mixes_directions(const FusedKernel& kernel);

}  // namespace brrr::graph
