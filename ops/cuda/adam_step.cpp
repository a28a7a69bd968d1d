// Adam's step on CUDA: one generated kernel of three outputs.
#include "brrr/ops/adam_step.h"

#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/kernels.h"

namespace brrr::on_cuda {
namespace {

using namespace adam_step_call;

DType computed_in(const Call& call) { return jit::register_dtype(call.input(1).dtype()); }

jit::KernelSpec make(const void* of) {
  const Call& call = *static_cast<const Call*>(of);
  const DType type = computed_in(call);
  jit::KernelSpec spec;
  spec.name = std::string("adam_step_") + name_of(call.input(0).dtype()).data();
  int operand[kOperands], coefficient[kCoefficients], next = kOperands;
  for (int i = 0; i < kOperands; ++i) operand[i] = spec.add_input(call.input(i).dtype());
  for (int i = 0; i < kCoefficients; ++i) {
    coefficient[i] =
        is_tensor(call, i) ? spec.add_input(call.input(next++).dtype()) : spec.add_scalar(type);
  }
  const auto [param, mean, square, gradient, mean_of_ones, square_of_ones] = operand;
  const auto [rate, mean_weight, square_weight, eps, decay] = coefficient;
  const auto value = [&](const char* text, std::vector<int> operands) {
    jit::Value expression;
    expression.kind = jit::Value::Kind::expression;
    expression.type = expression.dtype = type;
    expression.operands = std::move(operands);
    expression.text = text;
    return spec.add(std::move(expression));
  };
  const int new_mean = value("moved(a, b, c)", {mean, gradient, mean_weight});
  const int new_square = value("moved(a, b * b, c)", {square, gradient, square_weight});
  int down = value("adam_direction(a, b, c, d, e)",
                   {new_mean, new_square, mean_of_ones, square_of_ones, eps});
  if (decays(call)) down = value("a + b * c", {down, param, decay});
  spec.add_output(value("a - b * c", {param, down, rate}), call.input(0).dtype());
  spec.add_output(new_mean, call.input(1).dtype());
  spec.add_output(new_square, call.input(2).dtype());
  return spec;
}

}  // namespace

void adam_step(const Call& call, Tensor* outputs) {
  Elementwise work;
  work.n_outputs = 3;
  for (int i = 0; i < work.n_outputs; ++i) work.outputs[i] = outputs[i].impl();
  work.what = static_cast<std::uint64_t>(call.op) | std::uint64_t{decays(call)} << 16 |
              static_cast<std::uint64_t>(call.attrs[kCoefficients].i()) << 17;
  work.n_inputs = static_cast<int>(call.n_inputs);
  for (int i = 0, at = 22; i < work.n_inputs; ++i, at += 3) {
    work.inputs[i] = call.input(i).impl();
    work.what |= static_cast<std::uint64_t>(call.input(i).dtype()) << at;
  }
  for (int i = 0; i < kCoefficients; ++i) {
    if (!is_tensor(call, i))
      work.scalars[work.n_scalars++] = argument_of(call.attrs[i], true, computed_in(call));
  }
  work.make = make;
  work.of = &call;
  run_elementwise(work);
}

}  // namespace brrr::on_cuda
