// Custom ops. They are added to the table of built-in ops, so they are dispatched, checked,
// observed and compiled like these; autograd, traces and fusion treat their calls alike.
//
//   const Op cube = register_op({.name = "cube",
//                                .expression = "a * a * a",
//                                .gradient = [](auto& r) {
//                                  r.set(0, r.g() * (3 * square(r.operand(0))));
//                                },
//                                .needs = "a"});
//   Tensor y = call_op(cube, {x});
//
// `call_op` with operands alone calls any op of one output and no attributes.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <brrr/dispatch/cost.h>
#include <brrr/dispatch/dtype_rule.h>
#include <brrr/dispatch/gradient.h>
#include <brrr/ops/operand.h>

namespace brrr {

// One scalar expression over operands a, b, c, in the language of dispatch/ops.def. Both devices
// compile it at the first call with a type; f16 and bf16 compute in f32. Bare numbers become
// constants of the type computed in.
struct PointwiseOp {
  std::string name = {};
  int arity = 1;
  std::string expression = {};
  core::DTypeRule rule = core::DTypeRule::float_like;
  core::DTypeSet types = core::dtype_sets::floats;
  double low = -2, high = 2;  // where the tests of a gradient may draw operands from

  // Computes the gradient of each operand that needs one, by public ops; that of a broadcast
  // operand is summed to its shape. Without a rule the op runs, and a backward that reaches it
  // throws.
  std::function<void(core::Gradient& gradient)> gradient = {};
  // The values that `gradient` reads, which are saved: operands by letter, the result as y: "a b
  // y".
  std::string needs = {};
};
core::Op register_op(const PointwiseOp& op);

// Broadcasts and promotes as built-in ops do; numbers may stand for tensors.
Tensor call_op(core::Op op, std::span<const core::Operand> operands);
inline Tensor call_op(core::Op op, std::initializer_list<core::Operand> operands) {
  return call_op(op, std::span(operands.begin(), operands.size()));
}

namespace core {

// The launch configuration of a CUDA kernel: blocks, threads, and dynamic shared memory.
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {256, 1, 1};
  unsigned shared_bytes = 0;
};

// CUDA C++ compiled at the first call. Its arguments are the inputs' pointers (contiguous), then
// the outputs' pointers, then the attributes, each eight bytes (`long long`, or `double` where its
// name says so). The source may use the names of ops/jit/prelude.inl.
struct CudaKernel {
  std::string entry = {};
  std::string source = {};
  std::function<LaunchConfig(const core::Call& call, const Tensor* outputs)> launch = {};
};

}  // namespace core

// An op of any shape. `infer` returns the outputs' shapes and throws if the inputs are invalid;
// kernels may rely on it. On a device without a kernel a call throws an error that names the op.
struct StructuredOp {
  std::string name = {};
  int inputs = 1;
  int outputs = 1;
  std::string attributes = {};  // their names, separated by spaces: integers, or "scale:double"
  std::function<void(const core::Call& call, core::OutputSpec* outputs)> infer = {};
  std::function<void(const core::Call& call, Tensor* outputs)> cpu = {};
  std::function<void(const core::Call& call, Tensor* outputs)> cuda = {};
  core::CudaKernel cuda_kernel = {};  // used where `cuda` is empty
  // A promise that kernels write to their outputs only, and that equal calls give equal results.
  // Without it calls are neither removed, merged nor run again, and keep their order with one
  // another and with calls that touch their operands or tensors from outside of the compiled
  // function: kernels may read and write these, and memory of the host.
  bool pure = false;
  // A narrower promise: beside their outputs, kernels write to one state that is no tensor's memory
  // (a file, a list, a communicator), which this names. Calls are neither removed, merged nor run
  // again, and those of one channel, of any ops, keep their order.
  std::string channel = {};
  // Arithmetic and bytes of a call. Required: without it, every count of a step's FLOPs and every
  // prediction would be wrong. `cost_of_moving` is that of an op that computes nothing.
  std::function<core::Cost(const core::Call& call, std::span<const Tensor> outputs)> cost = {};

  // As PointwiseOp's; inputs are a, b, c and so on, outputs y, or y0, y1, y2 and y3.
  std::function<void(core::Gradient& gradient)> gradient = {};
  std::string needs = {};
};
core::Op register_op(const StructuredOp& op);

// Numbers are converted to the attributes' kinds: an integer is accepted for a double, but a double
// is refused for an integer.
std::vector<Tensor> call_op(core::Op op, std::span<const Tensor> inputs,
                            std::span<const core::Scalar> attributes);
inline std::vector<Tensor> call_op(core::Op op, std::initializer_list<Tensor> inputs,
                                   std::initializer_list<core::Scalar> attributes) {
  return call_op(op, std::span(inputs.begin(), inputs.size()),
                 std::span(attributes.begin(), attributes.size()));
}

}  // namespace brrr
