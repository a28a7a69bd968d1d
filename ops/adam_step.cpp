#include "brrr/ops/adam_step.h"

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"

namespace brrr {
namespace {

void dispatch_step(const AdamOperands& operands, const AdamCoefficients& coefficients,
                   std::array<Tensor, 3>& outputs, bool in_place) {
  using namespace adam_step_call;
  const auto& [param, mean, square, gradient, mean_of_ones, square_of_ones] = operands;
  const Tensor* inputs[kOperands + kCoefficients] = {&param,    &mean,         &square,
                                                     &gradient, &mean_of_ones, &square_of_ones};
  Call call(Op::adam_step, inputs, kOperands);
  call.in_place = in_place;
  std::int64_t tensors = 0;
  for (const Operand* coefficient :
       {&coefficients.rate, &coefficients.mean_weight, &coefficients.square_weight,
        &coefficients.eps, &coefficients.decay}) {
    if (coefficient->tensor) {
      tensors |= std::int64_t{1} << call.n_attrs;
      inputs[call.n_inputs++] = coefficient->tensor;
    }
    call.add_attr(Attr::of(coefficient->tensor ? 0 : coefficient->scalar.to_double()));
  }
  call.add_attr(tensors);
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) require_defined("adam_step", *inputs[i]);
  if (in_place) outputs = {param, mean, square};
  dispatch(call, outputs.data());
}

}  // namespace

std::array<Tensor, 3> adam_step(const AdamOperands& operands,
                                const AdamCoefficients& coefficients) {
  std::array<Tensor, 3> outputs;
  dispatch_step(operands, coefficients, outputs, false);
  return outputs;
}

void adam_step_(const AdamOperands& operands, const AdamCoefficients& coefficients) {
  std::array<Tensor, 3> outputs;
  dispatch_step(operands, coefficients, outputs, true);
}

}  // namespace brrr
