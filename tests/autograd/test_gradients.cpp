// Every gradient of the op table against differences, to the second order.
#include "tests/harness/catch.h"
#include "tests/harness/op_gradients.h"

using namespace brrr::test;

namespace {

void holds(void (*check)(Report&), long least) {
  Report report;
  check(report);
  INFO(report.text());
  CHECK(report.failed == 0);
  CHECK(report.cells >= least);
}

}  // namespace

TEST_CASE("every row has cells for its gradient", "[gradients]") {
  holds(check_gradient_coverage, 20);
}
TEST_CASE("gradients of pointwise rows", "[gradients]") { holds(check_pointwise_gradients, 2500); }
TEST_CASE("gradients of rows in place are right or refused", "[gradients]") {
  holds(check_in_place_gradients, 140);
}
TEST_CASE("gradients of reductions", "[gradients]") { holds(check_reduction_gradients, 1000); }
TEST_CASE("gradients of reductions at ties and zeros", "[gradients]") {
  holds(check_reduction_special_gradients, 40);
}
TEST_CASE("gradients of views", "[gradients]") { holds(check_view_gradients, 500); }
TEST_CASE("gradients of joins and splits", "[gradients]") { holds(check_join_gradients, 100); }
TEST_CASE("gradients of indexing", "[gradients]") { holds(check_index_gradients, 100); }
TEST_CASE("gradients of scans and triangles", "[gradients]") { holds(check_scan_gradients, 100); }
TEST_CASE("gradients of matrix products", "[gradients]") { holds(check_matmul_gradients, 200); }
TEST_CASE("gradients of composites", "[gradients]") { holds(check_composite_gradients, 400); }
TEST_CASE("what has no gradient is constant", "[gradients]") { holds(check_constant_results, 12); }
