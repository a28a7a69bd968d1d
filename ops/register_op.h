// A user's own ops. They join the table that built-in ops are in, so they are dispatched, checked,
// observed and compiled like any other; a call of them looks the same to autograd, to a trace and
// to fusion.
//
//   const Op cube = register_op({.name = "cube",
//                                .expression = "a * a * a",
//                                .gradient = [](Gradient& r) {
//                                  r.give(0, r.g() * (3 * square(r.operand(0))));
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
  DTypeRule rule = DTypeRule::float_like;
  DTypeSet types = dtype_sets::floats;
  double low = -2, high = 2;  // where the tests of a gradient may draw operands from

  // Gives the gradient of each operand that it wants, over public ops; a broadcast operand's is
  // summed to its shape. Without one the op runs, and a backward that reaches it throws.
  std::function<void(Gradient& gradient)> gradient = {};
  // The values that it reads, kept until then: operands by letter, the result as y: "a b y".
  std::string needs = {};
};
Op register_op(const PointwiseOp& op);

// Broadcasts and promotes as built-in ops do; numbers may stand for tensors.
Tensor call_op(Op op, std::span<const Operand> operands);
inline Tensor call_op(Op op, std::initializer_list<Operand> operands) {
  return call_op(op, std::span(operands.begin(), operands.size()));
}

// How a kernel given as text is started: blocks and threads, and shared memory that it asks for
// beyond its own.
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {256, 1, 1};
  unsigned shared_bytes = 0;
};

// CUDA C++ compiled at the first call. Its arguments are the inputs' pointers (contiguous), then
// the outputs' pointers, then the attributes, each eight bytes (`long long`, or `double` where its
// name says so). The text may use the names of ops/jit/prelude.inl.
struct CudaKernel {
  std::string entry = {};
  std::string source = {};
  std::function<LaunchConfig(const Call& call, const Tensor* outputs)> launch = {};
};

// An op of any shape. `infer` gives the outputs' shapes and throws when the inputs are wrong;
// kernels may rely on it. A device without a kernel refuses the call by name.
struct StructuredOp {
  std::string name = {};
  int inputs = 1;
  int outputs = 1;
  std::string attributes = {};  // their names, separated by spaces: integers, or "scale:double"
  std::function<void(const Call& call, OutputSpec* outputs)> infer = {};
  std::function<void(const Call& call, Tensor* outputs)> cpu = {};
  std::function<void(const Call& call, Tensor* outputs)> cuda = {};
  CudaKernel cuda_kernel = {};  // used where `cuda` is empty
  // Promised: kernels write their outputs only, and equal calls give equal results. Without it no
  // pass drops or merges calls.
  bool pure = false;
  // Arithmetic and bytes of a call; without it, no arithmetic and the operands' bytes.
  std::function<Cost(const Call& call, std::span<const Tensor> outputs)> cost = {};

  // As PointwiseOp's; inputs are a, b, c and so on, outputs y, or y0, y1, y2 and y3.
  std::function<void(Gradient& gradient)> gradient = {};
  std::string needs = {};
};
Op register_op(const StructuredOp& op);

// Numbers become what the attributes' names say: an integer is taken for a double, a double for an
// integer is refused.
std::vector<Tensor> call_op(Op op, std::span<const Tensor> inputs,
                            std::span<const Scalar> attributes);
inline std::vector<Tensor> call_op(Op op, std::initializer_list<Tensor> inputs,
                                   std::initializer_list<Scalar> attributes) {
  return call_op(op, std::span(inputs.begin(), inputs.size()),
                 std::span(attributes.begin(), attributes.size()));
}

}  // namespace brrr
