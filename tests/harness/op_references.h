// References of every pointwise op and reduction in double precision, independent of the kernels,
// and the promotion rule. The harness compares the op table with them.
#pragma once

#include <span>
#include <string>

#include "tests/harness/samples.h"
#include <brrr/dispatch/op_info.h>

namespace brrr::test {

// The dtype that an op computes in. Calling it rounds an intermediate to that dtype: f16 and bf16
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

// An operand for promotion: tensors with dimensions take precedence over 0-d ones, and those over
// numbers, unless the latter have a higher category.
enum class Rank { dimensions, zero_d, number };
struct Typed {
  DType dtype;  // numbers: boolean, i64 or f64 stand for the category
  Rank rank;
};
DType result_type(std::span<const Typed> operands);

// The dtype that a row computes in and the dtype of its result; `accepted` is false if the row does
// not support the operands' dtypes, so that the call must throw.
struct Types {
  DType computing, output;
  bool accepted;
};
Types types_of(const OpInfo& info, std::span<const Typed> operands);

}  // namespace brrr::test
