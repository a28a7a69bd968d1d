// Bodies with a contraction.
#pragma once

#include <utility>
#include <vector>

#include <brrr/ops/body_spec.h>

namespace brrr::testing {

// tanh(a b + row), and a b + row, over dimensions [batch, row, column, summed].
inline BodySpec layer_of(DType dtype, const Dims& dims) {
  BodySpec spec;
  spec.dims = dims;
  spec.reduced = 1u << (dims.size() - 1);
  jit::Body& body = spec.body;
  body.name = "layer";
  body.strict = true;
  const int a = body.add_input(dtype), b = body.add_input(dtype),
            row = body.add_input(dtype, jit::Body::Scope::row);
  jit::BodyValue product;
  product.kind = jit::BodyValue::Kind::contraction;
  product.dtype = product.type = f32;
  product.operands = {a, b};
  const int sum = body.add_expression("a + b", dtype, dtype, {body.add(product), row});
  body.add_output(sum, dtype);
  body.add_output(body.add_expression("tanh(a)", dtype, dtype, {sum}), dtype);
  // The sums of the rows of a, and the largest of the columns of b.
  const auto reduce = [&](int factor, const char* combine) {
    jit::BodyValue value;
    value.kind = jit::BodyValue::Kind::reduction;
    value.dtype = dtype;
    value.type = f32;
    value.operands = {factor};
    value.expression = "a", value.identity = "K(0)", value.combine = combine, value.finish = "x";
    return body.add(std::move(value));
  };
  body.add_output(reduce(a, "x + y"), dtype);
  body.add_output(reduce(b, "x > y ? x : y"), dtype);
  return spec;
}

// The following are over dimensions [row, column, summed]. FLOPs are those of the product and one
// for each value after it.
inline jit::BodyValue product_of_factors(int a, int b, DType dtype) {
  jit::BodyValue product;
  product.kind = jit::BodyValue::Kind::contraction;
  product.dtype = dtype;
  product.type = f32;
  product.operands = {a, b};
  return product;
}

// a b + bias + residual: inputs a, b, bias of columns, residual.
inline BodySpec residual_of(DType dtype, DType residual, std::int64_t m, std::int64_t n,
                            std::int64_t k) {
  BodySpec spec;
  spec.dims = {m, n, k};
  spec.reduced = 4;
  spec.flops = 2 * m * n * k + 2 * m * n;
  jit::Body& body = spec.body;
  body.name = "residual";
  const int a = body.add_input(dtype), b = body.add_input(dtype),
            bias = body.add_input(dtype, jit::Body::Scope::row),
            other = body.add_input(residual, jit::Body::Scope::row);
  const int product = body.add(product_of_factors(a, b, dtype));
  const int sum = body.add_expression("a + b", dtype, dtype, {product, bias});
  body.add_output(body.add_expression("a + b", dtype, dtype, {sum, other}), dtype);
  return spec;
}
inline std::vector<Dims> strides_of_residual(std::int64_t n, std::int64_t k) {
  return {{k, 0, 1}, {0, 1, n}, {0, 1, 0}, {n, 1, 0}, {n, 1, 0}};
}

// a b, and the sums of a's rows, where a has adjacent rows: the gradients of a weight and a bias.
inline BodySpec weight_gradient_of(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  BodySpec spec;
  spec.dims = {m, n, k};
  spec.reduced = 4;
  spec.flops = 2 * m * n * k + m * k;
  jit::Body& body = spec.body;
  body.name = "weight_gradient";
  const int a = body.add_input(dtype), b = body.add_input(dtype);
  body.add_output(body.add(product_of_factors(a, b, dtype)), dtype);
  jit::BodyValue sum;
  sum.kind = jit::BodyValue::Kind::reduction;
  sum.dtype = dtype;
  sum.type = f32;
  sum.operands = {a};
  sum.expression = "a", sum.identity = "K(0)", sum.combine = "x + y", sum.finish = "x";
  body.add_output(body.add(std::move(sum)), dtype);
  return spec;
}
inline std::vector<Dims> strides_of_weight_gradient(std::int64_t m, std::int64_t n) {
  return {{1, 0, m}, {0, 1, n}, {n, 1, 0}, {1, 0, 0}};
}

// The product of (x - column) * number and of weight where mask, scaled by rows of B: inputs x of
// `stored`, column, weight, mask, scale.
inline BodySpec computed_product_of(DType dtype, DType stored, std::int64_t m, std::int64_t n,
                                    std::int64_t k) {
  BodySpec spec;
  spec.dims = {m, n, k};
  spec.reduced = 4;
  spec.flops = 2 * m * n * k;
  jit::Body& body = spec.body;
  body.name = "computed_product";
  body.strict = true;
  const int x = body.add_input(stored), column = body.add_input(dtype),
            weight = body.add_input(dtype), mask = body.add_input(boolean),
            scale = body.add_input(f32), number = body.add_scalar(f32);
  const int centered = body.add_expression("a - b", f32, f32, {x, column});
  const int a = body.add_expression("a * b", f32, dtype, {centered, number});
  const int kept = body.add_expression("a ? b : c", dtype, dtype, {mask, weight, number});
  body.values.back().select = true;
  const int b = body.add_expression("a * b", f32, dtype, {kept, scale});
  body.add_output(body.add(product_of_factors(a, b, dtype)), dtype);
  spec.scalars = {0};
  return spec;
}
// x and weight with adjacent elements along k, or across it.
inline std::vector<Dims> strides_of_computed(std::int64_t m, std::int64_t n, std::int64_t k,
                                             bool along) {
  const Dims x = along ? Dims{k, 0, 1} : Dims{1, 0, m},
             weight = along ? Dims{0, k, 1} : Dims{0, 1, n};
  return {x, {0, 0, 1}, weight, weight, {0, 1, 0}, {n, 1, 0}};
}

// a b alone.
inline BodySpec plain_product_of(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  BodySpec spec;
  spec.dims = {m, n, k};
  spec.reduced = 4;
  spec.flops = 2 * m * n * k;
  jit::Body& body = spec.body;
  body.name = "product";
  const int a = body.add_input(dtype), b = body.add_input(dtype);
  body.add_output(body.add(product_of_factors(a, b, dtype)), dtype);
  return spec;
}
inline std::vector<Dims> strides_along_k(std::int64_t n, std::int64_t k) {
  return {{k, 0, 1}, {0, k, 1}, {n, 1, 0}};
}

}  // namespace brrr::testing
