// tensor({...}): numbers in nested braces.
#include <brrr/brrr.h>

#include "tests/harness/catch.h"
#include "tests/harness/doubles.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of, test::Numbers, test::numbers;

TEST_CASE("braces nest to any depth", "[literals]") {
  const Tensor matrix = tensor({{1, 2.5}, {-3, 4}, {5, 6}});
  CHECK(matrix.describe() == "f32[3, 2]");
  CHECK(numbers(matrix) == Numbers{1, 2.5, -3, 4, 5, 6});
  const Tensor box = tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}});
  CHECK(box.describe() == "f32[2, 2, 2]");
  CHECK(numbers(box) == Numbers{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(tensor({{{{1}}}, {{{2}}}}).describe() == "f32[2, 1, 1, 1]");
  CHECK(tensor({{1}, {2}}).describe() == "f32[2, 1]");  // no list of two numbers
  CHECK(tensor({{1, 2}}).describe() == "f32[1, 2]");
  CHECK(tensor({{1}}).describe() == "f32[1, 1]");
  CHECK(tensor({1}).describe() == "f32[1]");
  CHECK(tensor({}).describe() == "f32[0]");
  CHECK(tensor({{}, {}}).describe() == "f32[2, 0]");
  CHECK(tensor({{1, 2}, {3, 4}}, cpu).describe() == "f32[2, 2]");
  const int n = 7;
  CHECK(numbers(tensor({{n, n + 1}})) == Numbers{7, 8});
}

TEST_CASE("the type of a literal is f32 or the one named", "[literals]") {
  CHECK(tensor({true, false}).dtype() == f32);
  const Tensor whole = tensor<std::int64_t>({{1, std::int64_t{1} << 60}, {3, 4}});
  CHECK(whole.describe() == "i64[2, 2]");
  CHECK(to_vector<std::int64_t>(whole)[1] == std::int64_t{1} << 60);
  CHECK(tensor<bool>({{true}, {false}}).describe() == "bool[2, 1]");
  CHECK(tensor<double>({{0.1, 1e300}}).describe() == "f64[1, 2]");
  CHECK(numbers(tensor<double>({0.1})) == Numbers{0.1});
  CHECK(tensor<BFloat16>({{1, 2}}).describe() == "bf16[1, 2]");
  CHECK(numbers(tensor<Float16>({Float16(0.5f), Float16(2.0f)})) == Numbers{0.5, 2});
}

TEST_CASE("braces of no one shape are refused with the place", "[literals]") {
  CHECK(error_of([] {
          tensor({{1, 2}, {3}});
        }) == "[tensor] expected a list of 2 at [1], as in the places before it, got a list of 1");
  CHECK(error_of([] {
          tensor({{1, 2}, 3});
        }) == "[tensor] expected a list of 2 at [1], as in the places before it, got a number");
  CHECK(error_of([] {
          tensor({1, {2}});
        }) == "[tensor] expected a number at [1], as in the places before it, got a list of 1");
  CHECK(error_of([] {
          tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8, 9}}});
        }) ==
        "[tensor] expected a list of 2 at [1, 1], as in the places before it, got a list of 3");
  CHECK(error_of([] {
          tensor({{}, {1}});
        }) == "[tensor] expected a list of 0 at [1], as in the places before it, got a list of 1");
  CHECK(error_of([] { tensor({{{{{{{{{1}}}}}}}}}); }).find("at most 8") != std::string::npos);
}

TEST_CASE("numbers that the type of a literal does not hold are refused", "[literals]") {
  CHECK(error_of([] {
          tensor<std::int64_t>({1, 2.5});
        }) == "[tensor] expected a number that i64 holds, got 2.5");
  CHECK(error_of([] { tensor<std::int32_t>({std::int64_t{1} << 31}); }) ==
        "[tensor] expected a number that i32 holds, got 2147483648");
  CHECK(error_of([] { tensor<bool>({2}); }) == "[tensor] expected a number that bool holds, got 2");
  CHECK(error_of([] { tensor({1e300}); }) ==
        "[tensor] expected a number that f32 holds, got 1e+300");
}
