// References of every pointwise op and reduction in double precision, independent of the kernels,
// and the promotion rule. The harness compares the op table with them.
#pragma once

#include <span>
#include <string>

#include "tests/harness/samples.h"
#include <brrr/dispatch/op_info.h>

namespace brrr::test {

// The type that an op computes in. Calling it rounds an intermediate to that type: f16 and bf16
// compute in f32.
struct Computing {
  DType dtype;
  double operator()(double value) const;
};

using PointwiseReference = double (*)(const double* operands, const Computing& rounded);
using ReductionReference = double (*)(std::span<const double> values);

// Null when the op has none: the harness fails then.
PointwiseReference pointwise_reference(const std::string& op);
ReductionReference reduction_reference(const std::string& op);

// An operand as promotion sees it: a tensor with dimensions counts before a 0-d one, that before a
// number in the code, unless the later one is of a higher category.
enum class Rank { dimensions, zero_d, number };
struct Typed {
  DType dtype;  // numbers: boolean, i64 or f64 stand for the category
  Rank rank;
};
DType result_type(std::span<const Typed> operands);

// The type that a row computes in and the type of what it returns; `accepted` is false when the row
// does not compute in that type, so that the call must throw.
struct Types {
  DType computing, output;
  bool accepted;
};
Types types_of(const OpInfo& info, std::span<const Typed> operands);

}  // namespace brrr::test
