// Cells of views, structured ops and composites, compared with index arithmetic or with sums in
// double precision.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/harness/op_harness.h"

namespace brrr::test {

// Row name to its cells. A row of ops.def that is missing here fails check_structured_coverage.
using CellsOf = void (*)(Report& report, Device device);
const std::map<std::string, CellsOf>& structured_cells();
void check_structured_coverage(Report& report);

void check_view_cells(Report& report,
                      Device device);  // view permute expand slice and what is built on them
void check_copy_cells(Report& report, Device device);  // every pair of types, copy_, fill_, clone
void check_creation_cells(Report& report,
                          Device device);  // full arange linspace eye one_hot and the likes
void check_random_cells(Report& report, Device device);
void check_join_cells(Report& report, Device device);  // cat stack split chunk
void check_index_cells(Report& report,
                       Device device);  // gather index_select embedding scatter_add nonzero
void check_checked_cells(Report& report, Device device);
void check_scan_cells(Report& report, Device device);  // cumsum tril triu
void check_formula_cells(Report& report, Device device);
void check_matmul_cells(Report& report, Device device);  // ranks, transposes, batches, linear
void check_matmul_bound(Report& report, Device device, int shapes);  // within gamma_K |A||B|
void check_composite_cells(Report& report,
                           Device device);  // softmax layer_norm logsumexp var and the likes
void check_form_cells(Report& report,
                      Device device);  // clamp_min masked_fill repeat roll and the likes
void check_edge_cells(Report& report, Device device);   // 0-d tensors and dimension 0, empty lists
void check_large_cells(Report& report, Device device);  // of sizes that are cut into chunks

// --- For the files that hold the cells
// -----------------------------------------------------------------------------

// A position in a shape, from and to its row-major number.
using Index = std::vector<std::int64_t>;
Index index_of(std::int64_t number, std::span<const std::int64_t> shape);
std::int64_t number_of(const Index& index, std::span<const std::int64_t> shape);

// Runs `call` on the inputs and on meta tensors like them; checks the result's dtype, shape and
// values, and that the inputs are unchanged.
void expect(Report& report, const std::string& cell, const TensorCall& call,
            const std::vector<Sample>& inputs, DType dtype, const Dims& shape,
            const Values& expected, const Match& match = {});
// The same, with values by position.
void expect_at(Report& report, const std::string& cell, const TensorCall& call,
               const std::vector<Sample>& inputs, DType dtype, const Dims& shape,
               const std::function<double(const Index&)>& value, const Match& match = {});
void expect_true(Report& report, const std::string& cell, bool holds,
                 const std::string& problem = "does not hold");

// Samples of the dtype in [-2, 2], a function of `key` alone.
Sample sample_of(const std::string& key, const Dims& shape, DType dtype, Layout layout,
                 Device device);
// Whole numbers in [0, below), as i64.
Sample indices_of(const std::string& key, const Dims& shape, std::int64_t below, Layout layout,
                  Device device);

}  // namespace brrr::test
