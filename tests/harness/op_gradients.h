// Cells of gradients: every row of the op table and every composite against finite differences in
// f64, of first and second order. Which rows must have a gradient follows from their dtypes and
// results, independently of the row's own gradient column.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/op_harness.h"

namespace brrr::test {

void check_pointwise_gradients(Report& report);          // tensors, numbers, broadcasts
void check_in_place_gradients(Report& report);           // right, or refused
void check_reduction_gradients(Report& report);          // dims, keepdim, layouts
void check_reduction_special_gradients(Report& report);  // ties and zeros

// Row name to its cells. A row of ops.def that is missing here fails check_gradient_coverage.
using GradientCellsOf = void (*)(Report& report);
const std::map<std::string, GradientCellsOf>& structured_gradient_cells();
void check_gradient_coverage(Report& report);

void check_view_gradients(Report& report);
void check_join_gradients(Report& report);
void check_index_gradients(Report& report);
void check_scan_gradients(Report& report);
void check_matmul_gradients(Report& report);
void check_composite_gradients(Report& report);
void check_constant_results(Report& report);  // of ops that nothing can be differentiated through

// --- For the files that hold the cells ---

// An f64 leaf with values in [low, high], no two operands of one call near each other and none near
// a multiple of a half: kinks of the rows are there. `place` is the operand's in its call.
Tensor smooth_leaf(const std::string& key, const Dims& shape, Layout layout, double low,
                   double high, int place = 0);
// An f64 leaf of well separated values.
Tensor distinct_leaf(const std::string& key, const Dims& shape, Layout layout, double low,
                     double high);
Tensor leaf_of(const Values& values, const Dims& shape, Layout layout = Layout::contiguous);

using ManyToMany = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
// gradcheck to the second order; along directions where the inputs are large.
void expect_gradient(Report& report, const std::string& cell, const ManyToMany& fn,
                     const std::vector<Tensor>& inputs);
void expect_gradient(Report& report, const std::string& cell,
                     const std::function<Tensor(std::span<const Tensor>)>& fn,
                     const std::vector<Tensor>& inputs);

extern const std::vector<Dims> kGradientShapes;
inline constexpr Layout kLeafLayouts[] = {Layout::contiguous, Layout::transposed, Layout::strided,
                                          Layout::offset};

}  // namespace brrr::test
