// Two ops of one's own: a scalar expression that both devices compile, and a structured op made of
// functions. Both broadcast, check and fail like the built-in ones.
#include <brrr/brrr.h>

#include <cmath>
#include <cstdio>
#include <utility>

using namespace brrr;

int main() {
  PointwiseOp mish_row;
  mish_row.name = "mish";
  mish_row.expression = "a * tanh(log1p(exp(a)))";
  const Op mish = register_op(mish_row);
  const Tensor x = linspace(-2, 2, 5);
  const Tensor y = call_op(mish, {x});
  std::printf("mish(%s) = %s\n", to_string(x).c_str(), to_string(y).c_str());

  // The outer product of two vectors, computed by a function on the CPU.
  StructuredOp outer;
  outer.name = "outer";
  outer.inputs = 2;
  outer.infer = [](const Call& call, OutputSpec* outputs) {
    const Tensor &a = call.input(0), &b = call.input(1);
    if (a.rank() != 1 || b.rank() != 1 || a.dtype() != f32 || b.dtype() != f32) {
      throw Error("[outer] expected two vectors of f32, got " + a.describe() + " and " +
                  b.describe());
    }
    outputs[0] = {.dtype = f32, .device = a.device(), .shape = {a.size(0), b.size(0)}};
  };
  outer.cpu = [](const Call& call, Tensor* outputs) {
    const Tensor a = contiguous(call.input(0)), b = contiguous(call.input(1));
    float* out = outputs[0].data<float>();
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      for (std::int64_t j = 0; j < b.numel(); ++j) {
        *out++ = a.data<float>()[i] * b.data<float>()[j];
      }
    }
  };
  const Op outer_op = register_op(std::move(outer));
  const Tensor product = call_op(outer_op, {tensor({1, 2}), tensor({3, 4, 5})}, {}).front();
  std::printf("outer = %s\n", to_string(product).c_str());

  try {
    call_op(outer_op, {product, product}, {});
  } catch (const Error& error) {
    std::printf("as it should be: %s\n", error.what());
  }
  const double wanted = 2 * std::tanh(std::log1p(std::exp(2.0)));
  return std::abs(item(select(y, 0, 4)) - wanted) < 1e-6 ? 0 : 1;
}
