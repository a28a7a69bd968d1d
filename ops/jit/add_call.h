// From calls to values of a body: what a row of the op table computes, over values that are there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <brrr/dispatch/call.h>
#include <brrr/ops/jit/body.h>

namespace brrr::jit {

// Whether a body can compute calls of this op: pointwise rows, conversions, formulas, reductions,
// products of matrices, copies.
bool has_values(const OpInfo& op);
// Whether a call of this op gives the elements of its operand, in other memory.
bool is_copy(const OpInfo& op);

// Appends the values of a call: `operands` are those of its inputs. Its numbers become scalars of
// the body, whose bits are appended to `scalars`. Returns a value for each of its outputs, whose
// types are `outputs`. A copy's value is its operand, of the type that it has.
std::vector<int> add_call(Body& body, const Call& call, std::span<const int> operands,
                          std::span<const DType> outputs, std::vector<std::uint64_t>& scalars);

// A number of a call in the bits of a scalar of `type`.
std::uint64_t scalar_bits(Attr attr, bool is_double, DType type);

}  // namespace brrr::jit
