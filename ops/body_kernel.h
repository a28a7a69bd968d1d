// Bodies as kernels: what a node of a graph runs that is not one call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <brrr/ops/body_spec.h>
#include <brrr/tensor/strided_space.h>

namespace brrr {

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
