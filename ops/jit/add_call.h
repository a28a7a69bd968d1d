// Translates calls to values of a body, by the rows of the op table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <brrr/dispatch/call.h>
#include <brrr/ops/jit/body.h>

namespace brrr::jit {

// Whether a body can compute calls of this op: pointwise rows, conversions, formulas, reductions,
// products of matrices, copies.
bool has_values(const OpInfo& op);
// Whether a call of this op copies the elements of its operand to other memory.
bool is_copy(const OpInfo& op);
// Whether a result of this op consists of blocks: ranges along one dimension, each copied from an
// operand. Elements in no block are zero.
bool is_made_of_blocks(const OpInfo& op);
// The starts of the blocks of such a call along dimension `dim` of its result.
struct Blocks {
  int dim = 0;
  std::vector<std::int64_t> starts;  // of each operand
};
// `sizes`: of each operand along that dimension. None: an operand's elements do not follow one
// another.
std::optional<Blocks> blocks_of(const Call& call, std::span<const std::int64_t> sizes);
// The dimension that the blocks divide.
int block_dim(const Call& call);
// Appends the value of such a call, of type `result`. `inside`: for each operand, the condition
// that the element is in its block.
int add_blocks(Body& body, const Call& call, DType result, std::span<const int> operands,
               std::span<const int> inside, std::vector<std::uint64_t>& scalars);
// Appends whether coordinate `index` is at least scalar `low` and below scalar `high`.
int add_within(Body& body, int index, int low, int high);

// Appends the values of a call: `operands` are those of its inputs. Its numbers become scalars of
// the body, whose bits are appended to `scalars`. Returns a value for each of its outputs, whose
// types are `outputs`. A copy's value is its operand, of the type that it has.
std::vector<int> add_call(Body& body, const Call& call, std::span<const int> operands,
                          std::span<const DType> outputs, std::vector<std::uint64_t>& scalars);

// Appends the number that a call fills a tensor of `dtype` with.
int add_fill(Body& body, const Call& call, DType dtype, std::vector<std::uint64_t>& scalars);

// A number of a call in the bits of a scalar of `type`.
std::uint64_t scalar_bits(Attr attr, bool is_double, DType type);

}  // namespace brrr::jit
