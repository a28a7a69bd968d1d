// Forms of calls that programs write: sizes without braces, a dtype alone, a number as a tensor,
// shapes that are compared, and functions of <cmath> that are spelled otherwise.
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"
#include "tests/harness/samples.h"

#include "brrr/autograd/autograd.h"
#include "brrr/ops/functions.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("creation takes sizes without braces", "[call-forms]") {
  const std::size_t wide = 3;
  CHECK(zeros(2, 3).shape() == Dims{2, 3});
  CHECK(ones(2, wide, 1).shape() == Dims{2, 3, 1});
  CHECK(empty(1, 2, 3, 4, 5, 6, 7, 8).rank() == 8);
  CHECK(rand(4, 4).shape() == Dims{4, 4});
  manual_seed(3);
  const Tensor braces = randn({4, 4});
  manual_seed(3);
  CHECK(equal(randn(4, 4), braces));
  CHECK_THROWS_AS(zeros(2, -1), Error);
  CHECK_THROWS_AS(zeros(1, 1, 1, 1, 1, 1, 1, 1, 1), Error);
  CHECK(zeros(3).shape() == Dims{3});
  CHECK(full(4, 4).shape() == Dims{4});  // a value
}

TEST_CASE("creation takes a dtype alone", "[call-forms]") {
  const DeviceGuard guard(Device::cpu());
  for (const DType dtype : {f32, f64, f16, bf16, i32, i64, boolean}) {
    CHECK(zeros({2}, dtype).dtype() == dtype);
    CHECK(ones(2, dtype).dtype() == dtype);
    CHECK(empty({2, 2}, dtype).dtype() == dtype);
    CHECK(full({2}, 1, dtype).dtype() == dtype);
  }
  CHECK(randn({2}, f64).dtype() == f64);
  CHECK(zeros({2}, {.dtype = i64}).dtype() == i64);
}

TEST_CASE("a number is a tensor without dimensions", "[call-forms]") {
  const Tensor three = tensor(3.0), count = tensor<std::int64_t>((std::int64_t{1} << 60) + 1);
  CHECK(three.rank() == 0);
  CHECK(three.dtype() == f32);
  CHECK(item(three) == 3);
  CHECK(tensor(3).dtype() == f32);
  CHECK(count.dtype() == i64);
  CHECK(item<std::int64_t>(count) == (std::int64_t{1} << 60) + 1);
  CHECK(tensor<double>(0.1).dtype() == f64);
  CHECK(tensor({3.0}).shape() == Dims{1});  // braces are lists
  CHECK(tensor<std::int64_t>({1}).shape() == Dims{1});
  CHECK(tensor<std::int64_t>({{1, 2}}).shape() == Dims{1, 2});
}

TEST_CASE("shapes and strides are compared as values", "[call-forms]") {
  const Tensor x = zeros(2, 3), y = ones(2, 3), t = transpose(x, 0, 1);
  CHECK(x.shape() == y.shape());
  CHECK(x.strides() == y.strides());
  CHECK(x.shape() != t.shape());
  CHECK_FALSE(x.shape() == zeros(2).shape());
  CHECK_FALSE(x.shape() == zeros(2, 3, 1).shape());
  CHECK(zeros({}).shape() == sum(x).shape());
  CHECK(t.shape() == Dims{3, 2});
  CHECK(Dims{3, 2} == t.shape());
  const std::span<const std::int64_t> sizes = x.shape();
  CHECK(sizes.size() == 2);
}

TEST_CASE("gradients of a list of tensors", "[call-forms][autograd]") {
  const Tensor a = requires_grad_(tensor({1, 2})), b = requires_grad_(tensor({3, 4}));
  const Tensor loss = sum(a * b);
  const std::vector<Tensor> list{a, b};
  const std::vector<Tensor> by_list = grad(loss, list, {.retain_graph = true});
  const std::vector<Tensor> by_braces = grad(loss, {a, b}, {.retain_graph = true});
  REQUIRE(by_list.size() == 2);
  CHECK(equal(by_list[0], b));
  CHECK(equal(by_list[1], a));
  CHECK(equal(by_list[0], by_braces[0]));
  CHECK(equal(grad(loss, std::vector<Tensor>{b})[0], a));
  CHECK_THROWS_AS(grad(sum(a), list), Error);  // b is unused
}

namespace {

#define IS_CALLED(name, ...) \
  requires(Tensor x) { name(__VA_ARGS__); }
template <class Tensor>
constexpr int deleted_spellings =
    !IS_CALLED(fabs, x) + !IS_CALLED(fmax, x, x) + !IS_CALLED(fmin, x, x) + !IS_CALLED(fmod, x, x) +
    !IS_CALLED(rint, x) + !IS_CALLED(hypot, x, x) + !IS_CALLED(log10, x) + !IS_CALLED(exp2, x);
#undef IS_CALLED

}  // namespace

TEST_CASE("functions of the C library do not take tensors", "[call-forms]") {
  STATIC_REQUIRE(deleted_spellings<Tensor> == 8);
  STATIC_REQUIRE(deleted_spellings<double> == 0);
}
