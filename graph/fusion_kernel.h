// Builds the kernel of a group: adds the values that it reads to its body.
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
  std::vector<std::pair<Dims, int>> coordinates;  // by their strides
  std::vector<BodyBound> bounds;
};

// The body value of an i64 number, which becomes an argument of the kernel.
int number_of(FusedKernel& kernel, std::int64_t number);
// The value of the coordinate with these strides that is 0 at the space's origin.
int index_of(const Group& group, FusedKernel& kernel, BodyReads& reads, const Dims& strides);
// The value of a coordinate.
int coordinate_of(const Group& group, FusedKernel& kernel, BodyReads& reads,
                  const Access& coordinate);
// The body value of an input, or the number of the input if it is an address. `value`: the elements
// that its call reads.
int input_of(const Group& group, FusedKernel& kernel, BodyReads& reads, const Access& access,
             const Value& value);
// The body value of a call that joins blocks (a concatenation, a padded slice). `operands`: blocks.
int block_value(const Group& group, FusedKernel& kernel, BodyReads& reads, const Node& node,
                const Member& member, std::span<const int> operands);

// The dimensions of a group's kernel, without its body.
BodySpec space_of(const Group& group);
// The dimensions that each value of a body varies in, as bits.
std::vector<std::uint32_t> dims_of_values(const FusedKernel& kernel);

// Adds the results that must be in memory, given as accesses and values. Returns why a kernel
// cannot store them, or none.
std::optional<WhyNotFused> add_outputs(const Group& group,
                                       std::vector<std::pair<const Access*, int>>& stored,
                                       FusedKernel& kernel);
// Why a body has too many parts for a kernel, or none.
std::optional<WhyNotFused> over_limits(std::size_t operands, std::size_t values,
                                       std::size_t scalars, bool without_outputs);
// The 16-bit elements among these operands of a kernel, which it converts.
std::int64_t conversions_of(std::span<const Value> inputs, std::span<const Value> outputs);

// Whether a kernel can be generated for a body with a contraction: factors are read from memory, or
// in a small product computed from what is, and all later values are computed once for each result.
bool contracts(const Graph& graph, const FusedKernel& kernel);
// Whether a contraction that nothing fuses with should be generated rather than run in cuBLASLt.
bool is_better_alone(const Graph& graph, const FusedKernel& kernel);

// The bytes of gathered inputs that the kernel does not read.
std::int64_t unread_bytes(const FusedKernel& kernel);

std::vector<Dims> strides_of(const FusedKernel& kernel);
std::int64_t flops_of(const Node& node);
// The work of a single call, and of a kernel of several.
Work work_of(const Node& node, Device device);
Work work_of(const FusedKernel& kernel, Device device);
// Adds that of a call to a body's.
void add_work(BodySpec& spec, const Work& work);
// Whether eager's CPU kernel combines the elements of a row in the same order for operands with
// these two strides. A generated kernel combines all of its reductions in one order.
bool combines_alike(const BodySpec& spec, const Dims& one, const Dims& other);
// Whether a kernel with reductions has operands that are contiguous along rows and others that are
// contiguous along columns. Adjacent threads can read only one kind in adjacent addresses, so a
// separate transposing copy is faster.
bool mixes_directions(const FusedKernel& kernel);

}  // namespace brrr::graph
