// Training steps of long chains of small calls, whose values have many readers and are summed over
// rows and over columns: unrolled solvers of differential equations, recurrent cells, inner
// gradient steps, graphs of pointwise calls and norms. Each updates leaves that are not packed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <brrr/nn/optim/transformation.h>

#include "tests/harness/compile_check.h"

namespace brrr::test {

struct ChainProgram {
  std::string name;
  std::vector<Dims> parameters, arguments;
  std::function<Tensor(const Tensors& parameters, const Tensors& arguments)> loss;
  bool by_backward = false;  // gradients by backward(), in leaves; else by grad()
};

// One of each kind, of sizes that users have: the neural ODE of 2-32-2 on 40 points by RK4 in 8
// steps, an LSTM of 3 steps, a GRU of 32, and so on.
std::vector<ChainProgram> named_chain_programs();
// Kind, sizes and number of steps are drawn.
ChainProgram draw_chain_program(std::uint64_t seed);

// Trains a program by Adam with a cosine schedule, and a clipped norm in every second program.
class Training {
 public:
  explicit Training(const ChainProgram& program, Device device = cpu, DType dtype = f32);

  // A step: the loss, then the gradients unless leaves have them.
  Tensors operator()(const Tensors& arguments);
  Tensors arguments(int call) const;
  const Tensors& parameters() const { return parameters_; }
  // The gradients of the step with these results.
  Tensors gradients(const Tensors& results) const;

 private:
  ChainProgram program_;
  Device device_;
  DType dtype_;
  Tensors parameters_;
  optim::Transformation optimizer_;
  optim::State state_;
};

// "" if three steps of training have eager's bits.
std::string chain_difference(const ChainProgram& program, Mode mode, Remat remat = Remat::none());
// "" if losses and gradients of fused training on a device are as near to those in f64 on the CPU
// as eager training's are, but for a few roundings.
std::string chain_error(const ChainProgram& program, Device device);

}  // namespace brrr::test
