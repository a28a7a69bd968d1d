// Integers that a double cannot represent: wrap-around, values above 2^53, corner cases of
// division. The harness compares doubles, so these are compared as integers.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "tests/harness/catch.h"

using namespace brrr;

namespace {

using I32 = std::vector<std::int32_t>;
using I64 = std::vector<std::int64_t>;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int32_t kMost32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kLeast32 = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;  // the first whole number that f64 lacks

Tensor whole(const I64& values) {
  return tensor(values, {static_cast<std::int64_t>(values.size())});
}
Tensor whole(const I32& values) {
  return tensor(values, {static_cast<std::int64_t>(values.size())});
}
I64 back(const Tensor& x) { return to_vector<std::int64_t>(x); }
I32 back32(const Tensor& x) { return to_vector<std::int32_t>(x); }
std::vector<bool> truths(const Tensor& x) { return to_vector<bool>(x); }

}  // namespace

TEST_CASE("integer arithmetic wraps", "[integers]") {
  CHECK(back(whole(I64{kMost, kLeast, -1}) + whole(I64{1, -1, kLeast})) ==
        I64{kLeast, kMost, kMost});
  CHECK(back(whole(I64{kLeast, kMost}) - whole(I64{1, -1})) == I64{kMost, kLeast});
  CHECK(back(whole(I64{kOdd, kMost}) * whole(I64{3, 2})) == I64{kOdd * 3, -2});
  CHECK(back(neg(whole(I64{kLeast, kOdd}))) == I64{kLeast, -kOdd});
  CHECK(back(abs(whole(I64{kLeast, -kOdd}))) == I64{kLeast, kOdd});
  CHECK(back(square(whole(I64{std::int64_t{1} << 32, 3}))) == I64{0, 9});
  CHECK(back32(whole(I32{kMost32, kLeast32}) + whole(I32{1, -1})) == I32{kLeast32, kMost32});
  CHECK(back32(whole(I32{65536, 46341}) * whole(I32{65536, 46341})) == I32{0, -2147479015});
  CHECK(back32(neg(whole(I32{kLeast32}))) == I32{kLeast32});
  CHECK(back32(addcmul(whole(I32{1}), whole(I32{kMost32}), whole(I32{2}))) == I32{-1});
}

TEST_CASE("whole numbers past 2^53 stay whole", "[integers]") {
  const Tensor x = whole(I64{kOdd, kOdd - 1, kMost, kLeast});
  CHECK(back(x + 2) == I64{kOdd + 2, kOdd + 1, kLeast + 1, kLeast + 2});
  CHECK(back(maximum(x, kOdd)) == I64{kOdd, kOdd, kMost, kOdd});
  CHECK(back(clamp(x, -kOdd, kOdd)) == I64{kOdd, kOdd - 1, kOdd, -kOdd});
  CHECK(truths(eq(x, kOdd)) == std::vector<bool>{true, false, false, false});
  CHECK(truths(gt(x, kOdd - 1)) == std::vector<bool>{true, false, true, false});
  CHECK(back(where(eq(x, kOdd), x, 0)) == I64{kOdd, 0, 0, 0});
  CHECK(back(max(x)) == I64{kMost});
  CHECK(back(min(x)) == I64{kLeast});
  CHECK(back(sum(whole(I64{kOdd, kOdd, 1}))) == I64{2 * kOdd + 1});
  CHECK(back(prod(whole(I64{kOdd, 3}))) == I64{kOdd * 3});
  CHECK(back(argmax(whole(I64{kOdd - 1, kOdd, 5}))) == I64{1});
  CHECK(back(cumsum(whole(I64{kOdd, 1, 1}), 0)) == I64{kOdd, kOdd + 1, kOdd + 2});
  CHECK(back(full({2}, kOdd, {.dtype = i64})) == I64{kOdd, kOdd});
  CHECK(back(scalar_tensor(kOdd, {.dtype = i64})) == I64{kOdd});
  CHECK(back(gather(x, 0, whole(I64{2, 0}))) == I64{kMost, kOdd});
  CHECK(back(cat({x, x})) == I64{kOdd, kOdd - 1, kMost, kLeast, kOdd, kOdd - 1, kMost, kLeast});
  CHECK(back(contiguous(transpose(reshape(x, {2, 2}), 0, 1))) ==
        I64{kOdd, kMost, kOdd - 1, kLeast});
  CHECK(item<std::int64_t>(select(x, 0, 0)) == kOdd);
  CHECK(back(sum(whole(I32{kMost32, kMost32, kMost32}))) == I64{3 * std::int64_t{kMost32}});
}

TEST_CASE("sum_to widens integers whatever it sums", "[integers]") {
  const Tensor x = whole(I32{kMost32, kMost32});
  CHECK(sum_to(x, {2}).dtype() == i64);
  CHECK(sum_to(x, {1}).dtype() == i64);
  CHECK(back(sum_to(x, {1})) == I64{2 * std::int64_t{kMost32}});
  CHECK(sum_to(gt(x, 0), {2}).dtype() == i64);
  const Tensor f = cast(x, f16);
  CHECK(sum_to(f, {2}).same_view_as(f));
}

TEST_CASE("integer remainders and powers", "[integers]") {
  const Tensor a = whole(I64{7, -7, 7, -7, 6, 0, 5, kLeast, kLeast});
  const Tensor b = whole(I64{3, 3, -3, -3, 3, 5, 0, -1, 1});
  CHECK(back(remainder(a, b)) == I64{1, 2, -2, -1, 0, 0, 0, 0, 0});
  CHECK(back32(remainder(whole(I32{kLeast32, 5}), whole(I32{-1, 0}))) == I32{0, 0});
  CHECK(back(pow(whole(I64{2, -2, 3, 0, 5, 1, -1, -1, 2}),
                 whole(I64{62, 3, 39, 0, 0, -4, -3, -2, -1}))) ==
        I64{std::int64_t{1} << 62, -8, 4052555153018976267, 1, 1, 1, -1, 1, 0});
  CHECK(back32(pow(whole(I32{3, 2}), 4)) == I32{81, 16});
}

TEST_CASE("bits of integers", "[integers]") {
  CHECK(back(bitwise_not(whole(I64{0, -1, kOdd}))) == I64{-1, 0, ~kOdd});
  CHECK(back(bitwise_and(whole(I64{kMost, kOdd}), whole(I64{kOdd, 1}))) == I64{kOdd, 1});
  CHECK(back(bitwise_or(whole(I64{kLeast}), whole(I64{1}))) == I64{kLeast + 1});
  CHECK(back(bitwise_xor(whole(I64{kMost}), whole(I64{-1}))) == I64{kLeast});
}

TEST_CASE("conversions of integers", "[integers]") {
  CHECK(back(cast(whole(I32{kMost32, kLeast32}), i64)) == I64{kMost32, kLeast32});
  CHECK(back32(cast(whole(I64{kMost32, -5}), i32)) == I32{kMost32, -5});
  CHECK(to_vector<double>(cast(whole(I64{kOdd + 1}), f64)) ==
        std::vector<double>{double(kOdd + 1)});
  CHECK(back(cast(tensor(std::vector<double>{1.9, -1.9, 0.5}, {3}), i64)) == I64{1, -1, 0});
  CHECK(truths(cast(whole(I64{0, 1, -5, std::int64_t{1} << 32}), boolean)) ==
        std::vector<bool>{false, true, true, true});
  CHECK(truths(cast(tensor({0.0f, -0.0f, 1e-30f, -2}), boolean)) ==
        std::vector<bool>{false, false, true, true});
}

TEST_CASE("one element of an integer tensor is read exactly", "[integers]") {
  CHECK(item<std::int64_t>(whole(I64{kOdd})) == kOdd);
  CHECK(item<std::int64_t>(whole(I64{kLeast})) == kLeast);
  CHECK(item<std::int64_t>(tensor<std::int64_t>({kMost})) == kMost);
  CHECK(item(whole(I64{kOdd})) == 0x1p53);  // a double, and the nearest
}

TEST_CASE("a floating number is the integer that it equals, or is refused", "[integers]") {
  const double inf = std::numeric_limits<double>::infinity();
  const double numbers[] = {0.0,          -0.9,
                            2.9,          -2.9,
                            0x1p62,       0x1p63,
                            -0x1p63,      1e300,
                            -1e300,       std::nextafter(0x1p63, 0),
                            inf,          -inf,
                            std::nan(""), std::nextafter(-0x1p63, -inf)};
  for (const double number : numbers) {
    const std::int64_t as_cast = back(cast(full({1}, number, {.dtype = f64}), i64))[0];
    CHECK(Scalar(number).to_int() == as_cast);
    INFO(number);
    if (static_cast<long double>(as_cast) == static_cast<long double>(number)) {
      CHECK(back(full({1}, number, {.dtype = i64})) == I64{as_cast});
    } else {
      CHECK_THROWS_AS(full({1}, number, {.dtype = i64}), Error);
    }
  }
  CHECK(Scalar(1e300).to_int() == kMost);
  CHECK(Scalar(-inf).to_int() == kLeast);
  CHECK(Scalar(std::nan("")).to_int() == 0);
  CHECK(Scalar(kOdd).to_int() == kOdd);
}
