// The one harness that walks the op table: every pointwise op and reduction, in every type that it
// accepts, over shapes and layouts, in place and with numbers at each position, against the float64
// references. A new row in ops.def needs one line in op_references.cpp and is tested whole; without
// that line these tests fail.
//
// The device is a parameter: tests/ops/test_ops.cpp runs the cells on the CPU,
// tests/gpu/test_ops.cpp on CUDA.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/harness/op_references.h"
#include "tests/harness/samples.h"
#include <brrr/dispatch/op_info.h>
#include <brrr/dispatch/scalar.h>
#include <brrr/ops/operand.h>

namespace brrr::test {

// An operand: a tensor, or a number in the code.
struct Operand {
  Tensor tensor;
  std::optional<Scalar> number;
};

// A pointwise row's public functions behind one signature.
struct Pointwise {
  Op op;
  int arity;
  Tensor (*call)(std::span<const Operand> operands);
  Tensor& (*call_in_place)(Tensor& first, std::span<const Operand> rest);
};
// A formula row by its public functions: tensors and numbers in the row's order.
struct FormulaRow {
  Op op;
  std::vector<Tensor> (*call)(std::span<const Tensor> operands,
                              std::span<const brrr::Operand> numbers);
  void (*call_in_place)(std::span<const Tensor> operands, std::span<const brrr::Operand> numbers);
};
std::span<const FormulaRow> formula_rows();

std::span<const Pointwise> pointwise_ops();

struct Reduction {
  Op op;
  Tensor (*all)(const Tensor&);
  Tensor (*over)(const Tensor&, const Dims&, bool keepdim);
};
std::span<const Reduction> reduction_ops();

// A run may be one of several that share the rows between them: BRRR_TEST_PART=2/16 has the cells
// of every sixteenth pair of op and dtype. On a GPU each pair compiles kernels of its own, so parts
// run side by side. Without the variable a run has every cell.
bool in_this_part(std::string_view op, DType dtype);
bool in_this_part(const std::string& what);

// Names of the rows that are neither: each must have cells in structured_cells().
std::vector<std::string> structured_ops();

// Runs the call, then the same call on meta tensors: "" when shape and dtype agree with the result.
using TensorCall = std::function<Tensor(std::span<const Tensor>)>;
Tensor run_with_meta(const TensorCall& call, std::span<const Tensor> inputs, std::string& problem);

// One operand of a cell before it has values.
struct Slot {
  DType dtype;
  Dims shape;
  Layout layout = Layout::contiguous;
  bool number = false;
};

// One call of a pointwise op, checked: result or refusal, inputs unchanged, meta, and for in-place
// forms every byte of the buffer around.
struct Cell {
  const Pointwise* row;
  std::vector<Slot> slots;
  bool in_place = false;
  std::vector<Values> values = {};                    // instead of samples
  bool signs = false;                                 // zeros are compared with their signs
  bool exact = false;                                 // no tolerance
  bool (*excused)(const double* operands) = nullptr;  // elements that may be anything
};
void run(Report& report, const Cell& cell, Device device);

// --- The cells. Each adds to the report.
// ---------------------------------------------------------------------------

void check_references(Report& report);             // every row has a reference
void check_unary(Report& report, Device device);   // types × shapes × layouts
void check_binary(Report& report, Device device);  // and broadcast pairs, numbers, in place
void check_ternary(Report& report, Device device);
void check_mixed_types(Report& report, Device device);  // all pairs of types, values and refusals
void check_reductions(Report& report, Device device);   // types × shapes × layouts × dims
void check_special_values(Report& report, Device device);  // NaN, ±Inf, ±0, denormals, largest
void check_special_reductions(Report& report, Device device);

}  // namespace brrr::test
