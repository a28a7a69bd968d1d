// Operators and short forms: comparisons, bits, writes into temporaries, one number as a list of
// sizes; and comparisons of whole tensors.
#include <brrr/brrr.h>

#include <cmath>
#include <limits>

#include "tests/harness/catch.h"
#include "tests/harness/doubles.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of, test::Numbers, test::numbers;

namespace {

using Bools = std::vector<bool>;
Bools bools(const Tensor& x) {
  CHECK(x.dtype() == boolean);
  return to_vector<bool>(x);
}

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

template <class T>
concept TakesABoolForDims = requires(T x) {
  sum(x, true);
};

template <class T>
concept HasLogicalOperators = requires(T x) {
  x&& x;
}
|| requires(T x) { x || x; }
|| requires(T x) { !x; };

}  // namespace

TEST_CASE("comparison operators give bool tensors", "[operators]") {
  const Tensor a = tensor({1, 2, 3}), b = tensor({3, 2, 1}),
               column = tensor<std::int64_t>({{2}, {3}});
  CHECK(bools(a == b) == Bools{false, true, false});
  CHECK(bools(a != b) == Bools{true, false, true});
  CHECK(bools(a < b) == Bools{true, false, false});
  CHECK(bools(a <= b) == Bools{true, true, false});
  CHECK(bools(a > b) == Bools{false, false, true});
  CHECK(bools(a >= b) == Bools{false, true, true});
  CHECK(bools(a == 2) == Bools{false, true, false});
  CHECK(bools(a != 2) == Bools{true, false, true});
  CHECK(bools(a < 2.5) == Bools{true, true, false});
  CHECK(bools(a <= 1) == Bools{true, false, false});
  CHECK(bools(a > 2) == Bools{false, false, true});
  CHECK(bools(a >= 2) == Bools{false, true, true});
  CHECK(bools(2 == a) == Bools{false, true, false});
  CHECK(bools(2 != a) == Bools{true, false, true});
  CHECK(bools(2 < a) == Bools{false, false, true});
  CHECK(bools(2 <= a) == Bools{false, true, true});
  CHECK(bools(2 > a) == Bools{true, false, false});
  CHECK(bools(2.5 >= a) == Bools{true, true, false});
  CHECK((a > column).describe() == "bool[2, 3]");
  const Tensor nan = full({1}, kNan);
  CHECK(bools(nan == nan) == Bools{false});
  CHECK(bools(nan != nan) == Bools{true});
  CHECK(error_of([&] { eq(a, zeros(2)); }) ==
        "[eq] expected shapes that broadcast, got [3] and [2]");
}

TEST_CASE("bools and integers combine by bits", "[operators]") {
  const Tensor x = tensor({0, 1, 2, 3});
  CHECK(bools((x > 0) & (x < 3)) == Bools{false, true, true, false});
  CHECK(bools((x == 0) | (x == 3)) == Bools{true, false, false, true});
  CHECK(bools((x > 0) ^ (x > 1)) == Bools{false, true, false, false});
  CHECK(bools(~(x > 1)) == Bools{true, true, false, false});
  CHECK(bools((x > 0) & true) == bools(x > 0));
  const Tensor n = tensor<std::int64_t>({5, 6});
  CHECK(numbers(n & 4) == Numbers{4, 4});
  CHECK(numbers(1 | n) == Numbers{5, 7});
  CHECK(numbers(n ^ n) == Numbers{0, 0});
  CHECK(numbers(~n) == Numbers{-6, -7});
  Tensor mask = x > 0;
  mask &= x < 3;
  mask |= x == 0;
  mask ^= true;
  CHECK(bools(mask) == Bools{false, false, false, true});
  mask[0] |= true;
  CHECK(bools(mask) == Bools{true, false, false, true});
  CHECK_THAT(error_of([&] { bitwise_and(x, x); }),
             Catch::Contains("[bitwise_and] expected operands of"));
  STATIC_REQUIRE_FALSE(HasLogicalOperators<Tensor>);  // they could not stop at the first operand
}

TEST_CASE("equal compares shapes and every element", "[operators]") {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  CHECK(equal(x, x));
  CHECK(equal(x, transpose(transpose(x, 0, 1), 0, 1)));
  CHECK_FALSE(equal(x, transpose(x, 0, 1)));
  CHECK_FALSE(equal(x, reshape(x, 4)));
  CHECK_FALSE(equal(x, tensor({{1, 2}})));  // which would broadcast
  CHECK(equal(x, cast(x, i64)));
  CHECK(equal(zeros({0, 2}), zeros({0, 2})));
  CHECK_FALSE(equal(zeros({0, 2}), zeros({0, 3})));
  CHECK_FALSE(equal(full({1}, kNan), full({1}, kNan)));
  CHECK(equal(scalar_tensor(true, {.dtype = boolean}), scalar_tensor(1)));
  CHECK(error_of([&] { equal(x, Tensor()); }) ==
        "[equal] expected a tensor, got an undefined one as operand 1");
  CHECK_THAT(error_of([&] { equal(meta({2}), meta({2})); }),
             Catch::Contains("[equal] expected a tensor with values"));
  auto step = compile([](const Tensor& t) { return equal(t, t) ? t + 1 : t; });
  CHECK_THAT(error_of([&] { step(x); }), Catch::Contains("[equal]"));
}

TEST_CASE("allclose is PyTorch's", "[operators]") {
  const Tensor x = tensor({1, 100, kInf, -kInf});
  CHECK(allclose(x, x));
  CHECK(allclose(x, tensor({1.000001, 100.0005, kInf, -kInf})));
  CHECK_FALSE(allclose(x, tensor({1.00002, 100, kInf, -kInf})));
  CHECK_FALSE(allclose(x, tensor({1, 100, kInf, kInf})));
  CHECK_FALSE(allclose(tensor({1, 2}), tensor({kInf, 2})));
  CHECK(allclose(tensor({1.0}), tensor({1.1}), 0, 0.2));
  // The tolerance is relative to the second.
  CHECK(allclose(tensor({1.0}), tensor({2.0}), 0.5, 0));
  CHECK_FALSE(allclose(tensor({2.0}), tensor({1.0}), 0.5, 0));
  CHECK(bools(isclose(tensor({1, kNan}), tensor({1, kNan}))) == Bools{true, false});
  CHECK(allclose(tensor({1, kNan}), tensor({1, kNan}), 1e-5, 1e-8, true));
  // Halves in f32: f16 has no 1e-8, nor the difference of its largest numbers.
  CHECK(allclose(zeros(1, {.dtype = f16}), zeros(1, {.dtype = f16}) + 0x1p-24, 0, 1e-7));
  CHECK_FALSE(allclose(full(1, 6e4, {.dtype = f16}), full(1, -6e4, {.dtype = f16})));
  const std::int64_t big = std::int64_t{1} << 53;
  CHECK_FALSE(allclose(tensor<std::int64_t>({big}), tensor<std::int64_t>({big - 1}), 0, 0.5));
  CHECK(allclose(tensor<bool>({true}), tensor<bool>({true})));
  CHECK(allclose(ones({2, 3}), ones(3)));  // it broadcasts, as PyTorch's
  const Tensor w = requires_grad_(ones(2));
  CHECK_FALSE(requires_grad(isclose(w, w * 2)));
  CHECK(error_of([&] { allclose(x, x, -1); }) ==
        "[allclose] expected tolerances of at least 0, got -1 and 1e-08");
  CHECK(error_of([&] { allclose(x, zeros(3)); }) ==
        "[allclose] expected shapes that broadcast, got [4] and [3]");
}

TEST_CASE("one number is a list of one size or dimension", "[operators]") {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK(numbers(sum(x, 1)) == Numbers{6, 15});
  CHECK(sum(x, -1, true).describe() == "f32[2, 1]");
  CHECK(numbers(mean(x, 0)) == Numbers{2.5, 3.5, 4.5});
  CHECK(numbers(prod(x, 1)) == Numbers{6, 120});
  CHECK(numbers(max(x, 0)) == Numbers{4, 5, 6});
  CHECK(numbers(min(x, 1)) == Numbers{1, 4});
  CHECK(numbers(norm(tensor({{3, 4}}), 1)) == Numbers{5});
  CHECK(bools(any(x > 5, 1)) == Bools{false, true});
  CHECK(bools(all(x > 1, 1)) == Bools{false, true});
  CHECK(numbers(var(x, 1)) == Numbers{1, 1});
  CHECK(numbers(brrr::std(x, 1)) == Numbers{1, 1});
  CHECK(logsumexp(x, 1).describe() == "f32[2]");
  CHECK(error_of([&] { sum(x, 2); }) == "[sum] expected a dimension in [-2, 1], got 2");
  CHECK(zeros(3).describe() == "f32[3]");
  CHECK(randn(0).describe() == "f32[0]");
  CHECK(view(x, -1).describe() == "f32[6]");
  CHECK(tensor(std::vector<float>{1, 2}, 2).describe() == "f32[2]");
  STATIC_REQUIRE_FALSE(TakesABoolForDims<Tensor>);  // keepdim it is not, and no dimension either
}

TEST_CASE("functions in place take temporaries, such as views", "[operators]") {
  const Tensor x = reshape(arange(6.0), {3, 2});
  fill_(select(x, 0, 1), 1);
  CHECK(numbers(x) == Numbers{0, 1, 1, 1, 4, 5});
  add_(narrow(x, 0, -1, 1), 2);
  copy_(x[0], tensor({8, 9}));
  neg_(x[1]);
  CHECK(numbers(x) == Numbers{8, 9, -1, -1, 6, 7});
  clamp_(x[0], 0, 8.5);
  masked_fill_(x[1], x[1] < 0, 3);
  addcmul_(x[2], ones(2), ones(2), 0.5);
  zero_(x[{Slice{}, 1}]);
  CHECK(numbers(x) == Numbers{8, 0, 3, 0, 6.5, 0});
  clamp_min_(x[2], 7);
  clamp_max_(x[0], 7);
  x[1] -= 1;
  x[1] *= 2;
  x[1] /= tensor({4, 1});
  CHECK(numbers(x) == Numbers{7, 0, 1, -2, 7, 7});
  // What comes back is the same tensor, and lives on.
  const Tensor& kept = relu_(x - 1);
  CHECK(numbers(kept) == Numbers{6, 0, 0, 0, 6, 6});
  CHECK(mul_(x[0], 2).shares_storage_with(x));
  Tensor y = zeros(2);
  CHECK(&add_(y, 1) == &y);
}

TEST_CASE("a pointer is no number", "[operators]") {
  STATIC_REQUIRE_FALSE(std::is_constructible_v<Scalar, const char*>);
  STATIC_REQUIRE(std::is_constructible_v<Scalar, bool>);
  CHECK(Scalar(true).category() == Category::boolean);
}
