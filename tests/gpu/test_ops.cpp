// The forward matrix on CUDA: the same cells as tests/ops/test_ops.cpp, with inputs built on the
// CPU and moved.
#include <cstdio>
#include <cstdlib>

#include "tests/harness/catch.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/op_structured.h"

using namespace brrr::test;

namespace {

template <class Check>
void run_on_cuda(const char* what, Check check) {
  Report report;
  check(report, brrr::cuda());
  std::printf("%-24s %7ld cells on CUDA\n", what, report.cells);
  INFO(what << ": " << report.text());
  CHECK((report.cells > 0 || std::getenv("BRRR_TEST_PART")));  // a part may have none
  CHECK(report.failed == 0);
}

}  // namespace

TEST_CASE("unary ops on CUDA", "[gpu][rows]") { run_on_cuda("unary", check_unary); }
TEST_CASE("binary ops on CUDA", "[gpu][rows]") { run_on_cuda("binary", check_binary); }
TEST_CASE("ternary ops on CUDA", "[gpu][rows]") { run_on_cuda("ternary", check_ternary); }
TEST_CASE("pairs of types on CUDA", "[gpu][rows]") {
  run_on_cuda("mixed types", check_mixed_types);
}
TEST_CASE("reductions on CUDA", "[gpu][rows]") { run_on_cuda("reductions", check_reductions); }
TEST_CASE("special values on CUDA", "[gpu][rows]") {
  run_on_cuda("special values", check_special_values);
}
TEST_CASE("special values in reductions on CUDA", "[gpu][rows]") {
  run_on_cuda("special reductions", check_special_reductions);
}
TEST_CASE("views on CUDA", "[gpu][cells]") { run_on_cuda("views", check_view_cells); }
TEST_CASE("copies on CUDA", "[gpu][cells]") { run_on_cuda("copies", check_copy_cells); }
TEST_CASE("creation on CUDA", "[gpu][cells]") { run_on_cuda("creation", check_creation_cells); }
TEST_CASE("random draws on CUDA", "[gpu][cells]") { run_on_cuda("random", check_random_cells); }
TEST_CASE("joins and splits on CUDA", "[gpu][cells]") { run_on_cuda("joins", check_join_cells); }
TEST_CASE("indexing on CUDA", "[gpu][cells]") { run_on_cuda("indexing", check_index_cells); }
TEST_CASE("formulas on CUDA", "[gpu]") { run_on_cuda("formulas", check_formula_cells); }
TEST_CASE("checked values on CUDA", "[gpu]") { run_on_cuda("checked", check_checked_cells); }
TEST_CASE("scans and triangles on CUDA", "[gpu]") { run_on_cuda("scans", check_scan_cells); }
TEST_CASE("matrix products on CUDA", "[gpu]") { run_on_cuda("matmul", check_matmul_cells); }
TEST_CASE("large tensors on CUDA", "[gpu]") { run_on_cuda("large", check_large_cells); }
TEST_CASE("composites on CUDA", "[gpu]") { run_on_cuda("composites", check_composite_cells); }

TEST_CASE("named forms and copies on CUDA", "[gpu][cells]") {
  run_on_cuda("forms", check_form_cells);
}
TEST_CASE("edges of shape on CUDA", "[gpu][cells]") { run_on_cuda("edges", check_edge_cells); }

TEST_CASE("the error of matrix products on CUDA is within its bound", "[gpu]") {
  run_on_cuda("matmul bound",
              [](Report& report, brrr::Device device) { check_matmul_bound(report, device, 500); });
}
