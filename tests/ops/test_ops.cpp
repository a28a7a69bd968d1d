// The forward matrix on the CPU: each test case is one kind of cell of the harness.
#include <cstdio>

#include "tests/harness/catch.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/op_structured.h"

using namespace brrr::test;

namespace {

void finish(const char* what, const Report& report) {
  std::printf("%-24s %7ld cells\n", what, report.cells);
  INFO(what << ": " << report.text());
  CHECK(report.failed == 0);
}

template <class Check>
void run_on_cpu(const char* what, Check check) {
  Report report;
  check(report, brrr::cpu);
  CHECK(report.cells > 0);
  finish(what, report);
}

}  // namespace

TEST_CASE("every row of the op table has a reference", "[ops]") {
  Report report;
  check_references(report);
  check_structured_coverage(report);
  finish("rows", report);
}

TEST_CASE("unary ops", "[ops]") { run_on_cpu("unary", check_unary); }
TEST_CASE("binary ops", "[ops-binary]") { run_on_cpu("binary", check_binary); }
TEST_CASE("ternary ops", "[ops]") { run_on_cpu("ternary", check_ternary); }
TEST_CASE("pairs of types", "[ops]") { run_on_cpu("mixed types", check_mixed_types); }
TEST_CASE("reductions", "[ops-reductions]") { run_on_cpu("reductions", check_reductions); }
TEST_CASE("special values", "[ops]") { run_on_cpu("special values", check_special_values); }
TEST_CASE("special values in reductions", "[ops]") {
  run_on_cpu("special reductions", check_special_reductions);
}
TEST_CASE("views", "[ops-structured]") { run_on_cpu("views", check_view_cells); }
TEST_CASE("copies", "[ops-structured]") { run_on_cpu("copies", check_copy_cells); }
TEST_CASE("creation", "[ops-structured]") { run_on_cpu("creation", check_creation_cells); }
TEST_CASE("random draws", "[ops-structured]") { run_on_cpu("random", check_random_cells); }
TEST_CASE("joins and splits", "[ops-structured]") { run_on_cpu("joins", check_join_cells); }
TEST_CASE("indexing", "[ops-structured]") { run_on_cpu("indexing", check_index_cells); }
TEST_CASE("formulas", "[ops-structured]") { run_on_cpu("formulas", check_formula_cells); }
TEST_CASE("checked values", "[ops-structured]") { run_on_cpu("checked", check_checked_cells); }
TEST_CASE("scans and triangles", "[ops-structured]") { run_on_cpu("scans", check_scan_cells); }
TEST_CASE("matrix products", "[ops-matmul]") { run_on_cpu("matmul", check_matmul_cells); }
TEST_CASE("large tensors", "[ops-large]") { run_on_cpu("large", check_large_cells); }
TEST_CASE("composites", "[ops-structured]") { run_on_cpu("composites", check_composite_cells); }

TEST_CASE("named forms and copies", "[ops-structured]") { run_on_cpu("forms", check_form_cells); }
TEST_CASE("edges of shape", "[ops-structured]") { run_on_cpu("edges", check_edge_cells); }

TEST_CASE("the error of matrix products is within its bound", "[ops-matmul]") {
  Report report;
  check_matmul_bound(report, brrr::cpu, 500);
  finish("matmul bound", report);
}
