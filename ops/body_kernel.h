// Bodies as kernels: what a node of a graph runs that is not one call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <brrr/ops/jit/body.h>
#include <brrr/tensor/strided_space.h>

namespace brrr {

// A body over a space. All operands are tensors of the space's rank, but for placed inputs: an
// input has stride 0 along dimensions in which it does not vary, and a result of rows has size 1
// along those reduced.
struct BodySpec {
  // An input whose tensor is any that has its elements: the element of the space's origin is
  // `shift` elements from the tensor's first, and may be outside of it (Body::Bound).
  struct Placed {
    int input = 0;
    Dims strides;
    std::int64_t shift = 0;
  };
  jit::Body body;
  Dims dims;
  std::vector<Placed> placed;
  std::vector<Dims> coordinates;  // the strides of each, see Body::indices
  // Of what is reduced first, the strides that it has eagerly: they decide in what order the CPU
  // combines elements. Empty: those of the first input per element.
  Dims order;
  std::uint32_t reduced = 0;  // bits: dimensions that reductions combine
  std::int64_t unread = 0;    // bytes of inputs that are gathered from, and not read
  std::vector<std::uint64_t> scalars;
  // In all, of its contraction, functions such as exp, and random numbers.
  std::int64_t flops = 0, product_flops = 0, functions = 0, draws = 0;
  // A body that runs beside this one in the same launch; its operands follow. Products on CUDA have
  // it.
  std::shared_ptr<const BodySpec> beside;
};

bool is_placed(const BodySpec& spec, int input);

// Operands in the order that kernels have them: outputs, inputs, coordinates of a body without
// reductions, else inputs, coordinates, outputs.
struct BodyLayout {
  const BodySpec& spec;
  std::span<const Tensor* const> inputs;
  std::span<const Tensor> outputs;

  int count() const {
    return static_cast<int>(inputs.size() + outputs.size() + spec.coordinates.size());
  }
  int first_output() const {
    return spec.body.reduces() ? count() - static_cast<int>(outputs.size()) : 0;
  }
  int first_input() const { return spec.body.reduces() ? 0 : static_cast<int>(outputs.size()); }
  int first_coordinate() const { return first_input() + static_cast<int>(inputs.size()); }
  // The dimensions that have their bit in `mask`, with the strides of all operands.
  StridedSpace space(std::uint32_t mask) const;
  // The address of the element at the space's origin.
  const void* input(int number) const;
};

// Whether there is a kernel for the body, operands of these strides (inputs first), that is better
// than the kernels of its calls. Of bodies without a contraction there always is. `aligned`: the
// factors of a contraction begin at multiples of 16 bytes.
bool is_generated(Device device, const BodySpec& spec, std::span<const Dims> strides, bool aligned);
// Whether that is so of a contraction alone.
bool is_better_alone(Device device, const BodySpec& spec, std::span<const Dims> strides,
                     bool aligned);

// The share of the device that the blocks of a generated contraction take.
double share_of_device(Device device, const BodySpec& spec, std::span<const Dims> strides);

// A body and the strides of its operands, inputs first.
struct BodyStrides {
  const BodySpec& spec;
  std::span<const Dims> strides;
};
// Whether two generated contractions that do not depend on each other are faster in one launch.
bool are_better_together(Device device, const BodyStrides& one, const BodyStrides& other);

// Facts about a compiled kernel.
struct KernelFacts {
  std::string source = {};  // its own text, without the preludes; "": not compiled yet, or not kept
  int registers = -1;       // of a thread on CUDA; -1: unknown
  int local_bytes = -1;     // of a thread: its stack and what spills; -1: unknown
};

class BodyKernel {
 public:
  virtual ~BodyKernel() = default;
  // Operands in the layouts that the kernel was made for.
  virtual void run(const Tensor* const* inputs, const Tensor* outputs) = 0;
  virtual KernelFacts facts() const { return {}; }
};

// A kernel for each body. The layouts are those of the operands; their memory need not be there
// yet. On the CPU those that are new are compiled together, or interpreted where they cannot be; on
// CUDA each is compiled when it first runs.
struct BodyOperands {
  std::shared_ptr<const BodySpec> spec;
  std::vector<Tensor> inputs, outputs;
  // Of each input, whether its elements are final before the kernel ahead of this one ends: a CUDA
  // kernel may load them before it waits for that one. Empty: none.
  std::vector<bool> prefetchable = {};
};
std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(Device device,
                                                           std::span<const BodyOperands> bodies);

namespace on_cpu {
std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies);
}

namespace on_cuda {
bool are_better_together(Device device, const BodyStrides& one, const BodyStrides& other);
double share_of_device(Device device, const BodySpec& spec, std::span<const Dims> strides);
bool is_generated(Device device, const BodySpec& spec, std::span<const Dims> strides, bool aligned);
bool is_better_alone(Device device, const BodySpec& spec, std::span<const Dims> strides,
                     bool aligned);
std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies);
}  // namespace on_cuda

}  // namespace brrr
