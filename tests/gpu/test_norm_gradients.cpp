// Kernels on CUDA that reduce rows and columns: the gradients of norms, against f64 on the CPU.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

namespace brrr::test {
namespace {

using Tensors = std::vector<Tensor>;

// The norm of x + y with a scale and a shift, times something: its gradients, and x + y.
Tensors layer_norm_gradients(const Tensors& a) {
  const auto leaf = [&](std::size_t i) { return requires_grad_(detach(a[i])); };
  const Tensor x = leaf(0), scale = leaf(1), shift = leaf(2), h = x + detach(a[3]);
  const Tensor y = layer_norm(h, 1, scale, shift);
  Tensors results = grad(sum(y * a[4] * 0.125), {x, scale, shift});
  results.push_back(detach(h));
  return results;
}

Tensors rms_norm_gradients(const Tensors& a) {
  const auto leaf = [&](std::size_t i) { return requires_grad_(detach(a[i])); };
  const Tensor x = leaf(0), scale = leaf(1);
  return grad(sum(rms_norm(x, 1, scale) * a[4] * 0.125), {x, scale});
}

// Sums of columns in passes before and after the reduction of rows, their mean, and sin and cos,
// which a vector computes again where the fast form is not exact.
Tensors softmax_and_columns(const Tensors& a) {
  const Tensor y = softmax(sin(a[0] * 40.0) + a[3], -1);
  Dims rows;
  for (int d = 0; d + 1 < y.rank(); ++d) rows.push_back(d);
  return {y, mean(y * a[4], rows), max(cos(a[0] * 40.0), rows) * 2.0};
}

// The largest error relative to the largest element.
double error(const Tensor& got, const Tensor& wanted) {
  const Tensor at = to(to(got, cpu), f64);
  CHECK(at.numel() == wanted.numel());
  return item(max(abs(at - wanted))) / std::max(1e-3, item(max(abs(wanted))));
}

void check(const std::function<Tensors(const Tensors&)>& function, const Dims& shape, DType dtype,
           Rounding rounding) {
  const std::int64_t last = shape[shape.size() - 1];
  const Tensors given = {noise(shape, 1, dtype), noise({last}, 2, dtype), noise({last}, 3, dtype),
                         noise(shape, 4, dtype), noise(shape, 5, dtype)};
  Tensors arguments, exact;
  for (const Tensor& x : given) {
    arguments.push_back(to(x, cuda(0)));
    exact.push_back(to(x, f64));
  }
  auto step = compile(function,
                      {.mode = Mode::fused, .rounding = rounding, .fallback = OnFallback::refuse});
  const Tensors got = step(arguments), again = step(arguments), wanted = function(exact);
  INFO(name_of(dtype) << " " << given[0].describe() << step.graph_text());
  CHECK(step.kernels().size() == 1);
  CHECK(step.kernels()[0].source.find("ColumnPartial") != std::string::npos);
  const double bound = dtype == f32 ? 2e-5 : 0.02;
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("result " << i);
    CHECK(error(got[i], wanted[i]) <= bound);
    CHECK(to_vector<double>(to(to(got[i], cpu), f64)) ==
          to_vector<double>(to(to(again[i], cpu), f64)));
  }
}

const std::vector<Dims> kShapes = {{2, 2},      {3, 7},        {1000, 8},   {129, 33},
                                   {640, 96},   {2000, 100},   {4096, 512}, {1025, 1000},
                                   {517, 1024}, {333, 1536},   {200, 2047}, {1300, 4096},
                                   {3, 50, 72}, {16, 64, 256}, {40000, 64}};

}  // namespace

TEST_CASE("the gradients of a norm are one kernel, with those of scale and shift", "[gpu][fuse]") {
  for (const DType dtype : {f32, bf16}) {
    for (const Dims& shape : kShapes) {
      check(layer_norm_gradients, shape, dtype, Rounding::eager);
      check(rms_norm_gradients, shape, dtype, Rounding::fast);
    }
  }
}

TEST_CASE("columns are reduced in each pass over rows", "[gpu][fuse]") {
  for (const Dims& shape : kShapes) check(softmax_and_columns, shape, f32, Rounding::eager);
}

TEST_CASE("kernels of rows and columns read and write within their tensors",
          "[gpu][fuse][sanitized]") {
  for (const Dims& shape : {Dims{67, 33}, Dims{300, 1000}, Dims{40, 256}}) {
    check(layer_norm_gradients, shape, f32, Rounding::eager);
    check(softmax_and_columns, shape, f32, Rounding::eager);
  }
}

}  // namespace brrr::test
