// Two custom ops with gradients: a scalar expression, compiled for both devices, and a structured
// op of C++ functions. Both check, fail and differentiate like built-in ops.
#include <brrr/brrr.h>

#include <cmath>
#include <cstdio>
#include <utility>

using namespace brrr;

// mish(x) = x tanh(log(1 + exp(x))). Its gradient is written over public ops, so it has a gradient
// itself.
bool try_mish() {
  const auto mish = register_op({.name = "mish",
                                 .expression = "a * tanh(log1p(exp(a)))",
                                 .gradient =
                                     [](auto& r) {
                                       const Tensor& a = r.operand(0);
                                       const Tensor t = tanh(softplus(a));
                                       r.set(0, r.g() * (t + a * sigmoid(a) * (1 - t * t)));
                                     },
                                 .needs = "a"});
  const Tensor x = requires_grad_(linspace(-2, 2, 5));
  const Tensor y = call_op(mish, {x});
  backward(sum(y));
  std::printf("x = %s\nmish = %s\ngradient = %s\n", to_string(detach(x)).c_str(),
              to_string(detach(y)).c_str(), to_string(grad_of(x)).c_str());
  // Compares with finite differences, to the second order.
  const GradcheckResult checked =
      gradcheck([&](const Tensor& a) { return call_op(mish, {a}); },
                requires_grad_(randn({8}, {.dtype = f64})), {.second_order = true});
  std::printf("gradcheck: %s\n\n", checked ? "passed" : checked.message.c_str());
  const double mish_of_2 = 2 * std::tanh(std::log1p(std::exp(2.0)));
  return checked && std::abs(item(select(y, 0, 4)) - mish_of_2) < 1e-6;
}

// The outer product of two vectors, with a CPU kernel.
bool try_outer() {
  StructuredOp outer;
  outer.name = "outer";
  outer.inputs = 2;
  outer.infer = [](const core::Call& call, core::OutputSpec* outputs) {
    const Tensor &a = call.input(0), &b = call.input(1);
    if (a.rank() != 1 || b.rank() != 1 || a.dtype() != f32 || b.dtype() != f32) {
      throw Error("[outer] expected two vectors of f32, got " + a.describe() + " and " +
                  b.describe());
    }
    outputs[0] = {.dtype = f32, .device = a.device(), .shape = {a.size(0), b.size(0)}};
  };
  outer.cpu = [](const core::Call& call, Tensor* outputs) {
    const Tensor a = contiguous(call.input(0)), b = contiguous(call.input(1));
    float* out = outputs[0].data<float>();
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      for (std::int64_t j = 0; j < b.numel(); ++j) {
        *out++ = a.data<float>()[i] * b.data<float>()[j];
      }
    }
  };
  outer.cost = [](const core::Call& call, std::span<const Tensor> outputs) {
    return core::Cost{.flops = outputs[0].numel(), .bytes = core::operand_bytes(call, outputs)};
  };
  outer.gradient = [](auto& r) {
    if (r.wants(0)) r.set(0, matmul(r.g(), r.operand(1)));
    if (r.wants(1)) r.set(1, matmul(transpose(r.g(), 0, 1), r.operand(0)));
  };
  outer.needs = "a b";
  outer.pure = true;
  const auto outer_op = register_op(std::move(outer));
  const Tensor left = requires_grad_(tensor({1, 2})), right = tensor({3, 4, 5});
  const Tensor product = call_op(outer_op, {left, right}, {}).front();
  backward(sum(product));
  std::printf("outer = %s\ngradient of its sum with respect to the first = %s\n",
              to_string(detach(product)).c_str(), to_string(grad_of(left)).c_str());

  try {
    call_op(outer_op, {product, product}, {});
  } catch (const Error& error) {
    std::printf("refused as expected: %s\n", error.what());
  }
  return item(all(eq(grad_of(left), 12.0))) == 1;
}

int main() try {
  const bool good = try_mish();
  return try_outer() && good ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
