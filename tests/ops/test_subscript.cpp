// x[...]: integers, slices, new dimensions and tensors as indices, with NumPy's semantics; writes
// through views; errors.
#include <brrr/brrr.h>

#include <type_traits>

#include "tests/harness/catch.h"
#include "tests/harness/doubles.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of, test::leaf, test::Numbers, test::numbers;

namespace {

const Tensor kBox = reshape(arange(24.0), {2, 3, 4});

// "f32[2] 1 2", so that one comparison holds shape and values.
std::string text(const Tensor& x) {
  std::string all = x.describe();
  for (const double value : to_vector<double>(x)) all += " " + std::to_string(int(value));
  return all;
}

}  // namespace

TEST_CASE("x[i] drops a dimension and x[slice] keeps it", "[subscript]") {
  const Tensor& x = kBox;
  CHECK(text(x[1]) == "f32[3, 4] 12 13 14 15 16 17 18 19 20 21 22 23");
  CHECK(text(x[-2][2]) == "f32[4] 8 9 10 11");
  CHECK(text(x[{1, 2}]) == "f32[4] 20 21 22 23");
  CHECK(text(x[{-1, -3, 3}]) == "f32[] 15");
  CHECK(text(x[1][0][Slice{1, 3}]) == "f32[2] 13 14");
  CHECK(text(x[{0, Slice{1}, Slice{.step = 2}}]) == "f32[2, 2] 4 6 8 10");
  CHECK(text(x[{Slice{}, -1, Slice{-2}}]) == "f32[2, 2] 10 11 22 23");
  CHECK(text(x[{0, 0, Slice{.end = -1}}]) == "f32[3] 0 1 2");
  CHECK(text(x[{0, 0, Slice{-100, 100, 3}}]) == "f32[2] 0 3");  // ends are cut to the dimension
  CHECK(text(x[{0, 0, Slice{3, 1}}]) == "f32[0]");
  CHECK(text(x[Slice{2}]) == "f32[0, 3, 4]");
  const std::size_t unsigned_place = 1;
  CHECK(text(x[unsigned_place][2]) == text(x[1][2]));
}

TEST_CASE("newaxis adds a dimension and ellipsis expands to full slices", "[subscript]") {
  const Tensor &x = kBox, v = arange(3.0);
  CHECK(text(v[newaxis]) == "f32[1, 3] 0 1 2");
  CHECK(text(v[{Slice{}, newaxis}]) == "f32[3, 1] 0 1 2");
  CHECK(text(v[{newaxis, 1, newaxis}]) == "f32[1, 1] 1");
  CHECK(text(x[{ellipsis, 0}]) == "f32[2, 3] 0 4 8 12 16 20");
  CHECK(text(x[{1, ellipsis, 3}]) == "f32[3] 15 19 23");
  CHECK(text(x[{1, ellipsis, 0, 3}]) == "f32[] 15");
  CHECK(text(x[{0, 1, 2, ellipsis}]) == "f32[] 6");
  CHECK(text(x[{ellipsis, newaxis}]) == text(unsqueeze(x, -1)));
  CHECK(x[ellipsis].same_view_as(x));
  CHECK(scalar_tensor(5)[ellipsis].rank() == 0);
  CHECK(text(scalar_tensor(5)[newaxis]) == "f32[1] 5");
}

TEST_CASE("indices give views of any layout, which writes go through", "[subscript]") {
  const Tensor x = reshape(arange(6.0), {2, 3});
  fill_(x[0], 7);
  CHECK(numbers(x) == Numbers{7, 7, 7, 3, 4, 5});
  copy_(x[{Slice{}, 1}], tensor({8, 9}));
  CHECK(numbers(x) == Numbers{7, 8, 7, 3, 9, 5});
  x[1] += 10;
  x[{0, Slice{1}}] *= tensor({2, 3});
  CHECK(numbers(x) == Numbers{7, 16, 21, 13, 19, 15});
  const Tensor transposed = transpose(x, 0, 1);
  CHECK(text(transposed[{1, newaxis}]) == "f32[1, 2] 16 19");
  CHECK(transposed[2].shares_storage_with(x));
  zero_(transposed[-1]);
  CHECK(numbers(x) == Numbers{7, 16, 0, 13, 19, 0});
  CHECK(text(expand(arange(3.0), {2, 3})[{Slice{}, 1}]) == "f32[2] 1 1");
}

TEST_CASE("a temporary handle is not assigned to", "[subscript]") {
  STATIC_REQUIRE_FALSE(std::is_assignable_v<Tensor, Tensor>);
  STATIC_REQUIRE_FALSE(std::is_assignable_v<Tensor, const Tensor&>);
  STATIC_REQUIRE_FALSE(std::is_assignable_v<Tensor, double>);
  STATIC_REQUIRE(std::is_assignable_v<Tensor&, Tensor>);
  STATIC_REQUIRE(std::is_assignable_v<Tensor&, const Tensor&>);
}

TEST_CASE("indices that are not there are refused", "[subscript]") {
  const Tensor x = zeros({3, 4});
  CHECK(error_of([&] { x[5]; }) ==
        "[index] expected an index in [-3, 3) for dimension 0 of f32[3, 4], got 5");
  CHECK(error_of([&] {
          x[{Slice{1}, -5}];
        }) == "[index] expected an index in [-4, 4) for dimension 1 of f32[3, 4], got -5");
  CHECK(error_of([&] { zeros({0})[0]; }) ==
        "[index] expected an index in [0, 0) for dimension 0 of f32[0], got 0");
  CHECK(error_of([&] {
          x[{0, 0, 0}];
        }) == "[index] expected at most 2 indices and one ellipsis for f32[3, 4], got 3 and 0");
  CHECK(error_of([&] {
          x[{ellipsis, ellipsis}];
        }) == "[index] expected at most 2 indices and one ellipsis for f32[3, 4], got 0 and 2");
  CHECK(error_of([&] { scalar_tensor(1)[0]; }) ==
        "[index] expected at most 0 indices and one ellipsis for f32[], got 1 and 0");
  CHECK(error_of([&] { x[Slice{.step = 0}]; }) == "[index] expected a step of at least 1, got 0");
  CHECK(error_of([&] { Tensor()[0]; }) == "[index] expected a tensor, got an undefined one");
  CHECK(error_of([&] { select(x, 1, 4); }) ==
        "[select] expected an index in [-4, 4) for dimension 1 of f32[3, 4], got 4");
}

TEST_CASE("gradients go through indices", "[subscript][autograd]") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6});
  const Tensor box = reshape(x, {2, 3});
  CHECK(numbers(grad(sum(box[{1, Slice{.step = 2}}] * 5), x)) == Numbers{0, 0, 0, 5, 0, 5});
  CHECK(numbers(grad(sum(x[tensor<std::int64_t>({1, 1, -1})]), x)) == Numbers{0, 2, 0, 0, 0, 1});
  CHECK(numbers(grad(sum(x[x > 4] * 3), x)) == Numbers{0, 0, 0, 0, 3, 3});
}

TEST_CASE("a compiled step indexes as an eager one", "[subscript][compile]") {
  const auto part = [](const Tensor& x) { return x[{1, Slice{1}, newaxis}] * x[{0, -1}]; };
  auto step = compile(part);
  for (int i = 0; i < 3; ++i) CHECK(equal(step(kBox + i), part(kBox + i)));
}

TEST_CASE("an integer tensor as index picks rows, a bool tensor those where it is true",
          "[subscript]") {
  const Tensor x = reshape(arange(6.0), {3, 2});
  CHECK(text(x[tensor<std::int64_t>({2, 0, -3, -1})]) == "f32[4, 2] 4 5 0 1 0 1 4 5");
  CHECK(text(x[tensor<std::int32_t>({{0}, {1}})]) == "f32[2, 1, 2] 0 1 2 3");
  CHECK(text(x[scalar_tensor(1, {.dtype = i64})]) == "f32[2] 2 3");
  CHECK(text(x[zeros({0}, {.dtype = i64})]) == "f32[0, 2]");
  CHECK(text(transpose(x, 0, 1)[tensor<std::int64_t>({1})]) == "f32[1, 3] 1 3 5");
  CHECK(text(x[x > 2]) == "f32[3] 3 4 5");
  CHECK(text(x[tensor<bool>({true, false, true})]) == "f32[2, 2] 0 1 4 5");
  CHECK(text(kBox[kBox[{ellipsis, 0}] == 8]) == "f32[1, 4] 8 9 10 11");
  CHECK(text(x[x < 0]) == "f32[0]");

  CHECK(error_of([&] {
          x[tensor<std::int64_t>({0, 3})];
        }) == "[index] expected values in [-3, 2], got 3 at position 1");
  CHECK(error_of([&] {
          x[tensor({0, 1})];
        }) ==
        "[index] expected integers or bools as index of a tensor with dimensions, got f32[2] as "
        "index of f32[3, 2]");
  CHECK(error_of([&] { scalar_tensor(1)[tensor<std::int64_t>({0})]; }) ==
        "[index] expected integers or bools as index of a tensor with dimensions, got i64[1] as "
        "index of f32[]");
  CHECK(error_of([&] {
          x[tensor<bool>({true, false})];
        }) == "[index] expected a mask of the first dimensions of f32[3, 2], got bool[2]");
  CHECK(error_of([&] { x[Tensor()]; }) ==
        "[index] expected a tensor, got an undefined one as operand 1");
}

TEST_CASE("narrow counts a negative start from the end", "[subscript]") {
  const Tensor x = arange(5.0);
  CHECK(text(narrow(x, 0, -2, 2)) == "f32[2] 3 4");
  CHECK(text(narrow(x, 0, -5, 1)) == "f32[1] 0");
  CHECK(text(narrow(x, 0, -1, 0)) == "f32[0]");
  CHECK(error_of([&] { narrow(x, 0, -6, 1); }) ==
        "[narrow] expected a range within dimension 0 of f32[5], got start -6 and length 1");
  CHECK(error_of([&] { narrow(x, 0, -1, 2); }) ==
        "[narrow] expected a range within dimension 0 of f32[5], got start -1 and length 2");
}
