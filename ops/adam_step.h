// One step of Adam in one pass over memory. optim::adam keeps the state and calls it.
#pragma once

#include <array>

#include <brrr/ops/pointwise.h>

namespace brrr {

// Numbers, or 0-d floating tensors. The weights are 1 - beta.
struct AdamCoefficients {
  Operand rate, mean_weight, square_weight, eps;
  Operand decay = 0;  // decoupled; the number 0 leaves its term out
};

// A parameter, the averages of its gradient and of the gradient's square, and 0-d averages of ones,
// which correct for the averages' start at 0. The averages have one type, f64 where `param` is f64.
struct AdamOperands {
  const Tensor &param, &mean, &square, &gradient, &mean_of_ones, &square_of_ones;
};

//   mean += mean_weight * (gradient - mean)
//   square += square_weight * (gradient * gradient - square)
//   param -= rate * (mean / ((sqrt(square / square_of_ones) + eps) * mean_of_ones) + decay * param)
// The results are rounded once, from the type of `mean` or f32. There is no gradient of it.
std::array<Tensor, 3> adam_step(const AdamOperands& operands, const AdamCoefficients& coefficients);
// The same, written over param, mean and square.
void adam_step_(const AdamOperands& operands, const AdamCoefficients& coefficients);

// How a call of the row carries them: after six operands come the coefficients that are tensors.
namespace adam_step_call {
inline constexpr int kOperands = 6, kCoefficients = 5, kDecay = 4;
inline bool is_tensor(const Call& call, int coefficient) {
  return call.attrs[kCoefficients].i() >> coefficient & 1;
}
inline bool decays(const Call& call) {
  return is_tensor(call, kDecay) || call.attrs[kDecay].d() != 0;
}
}  // namespace adam_step_call

}  // namespace brrr
