// Generated kernels of bodies: what the fused nodes of a graph run.
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

// The dimensions of a body's space that have their bit in `mask`, with the strides of all operands
// in the order of BodyLayout. `strides`: of inputs, then outputs, 0 where an operand has size 1.
StridedSpace space_of(const BodySpec& spec, std::span<const Dims> strides, std::uint32_t mask);
// The strides of a tensor, 0 where it has size 1.
Dims strides_of(const Tensor& tensor);

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
  StridedSpace space(std::uint32_t mask) const;
  // The address of the element at the space's origin.
  const void* input(int number) const;
};

// Whether a schedule can walk a body without contractions that has operands of these strides
// (inputs first), wherever they begin. On the CPU one always can.
bool has_schedule(Device device, const BodySpec& spec, std::span<const Dims> strides);

// Whether the kernel of a body computes functions such as exp several times for an element: once in
// each pass over a row of which the CPU does not keep the values.
bool repeats_functions(Device device, const BodySpec& spec, std::span<const Dims> strides);

// Whether a kernel should be generated for the body with operands of these strides (inputs first),
// in place of the kernels of its calls. Always true without a contraction. `aligned`: the factors
// of a contraction begin at multiples of 16 bytes.
bool is_generated(Device device, const BodySpec& spec, std::span<const Dims> strides, bool aligned);
// The same for a contraction that nothing fuses with.
bool is_better_alone(Device device, const BodySpec& spec, std::span<const Dims> strides,
                     bool aligned);

// The share of the device that the blocks of a generated contraction take.
double share_of_device(Device device, const BodySpec& spec, std::span<const Dims> strides);

// Whether generated tiles compute products on the device.
bool has_tiles(Device device);

// Whether two generated contractions that do not depend on each other are faster in one launch.
bool are_better_together(Device device, const BodyStrides& one, const BodyStrides& other);

// Facts about a compiled kernel.
struct KernelFacts {
  std::string source = {};  // without the preludes; "": not compiled yet, or not kept
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

// Makes a kernel for each body, for operands of the given layouts, whose memory may be allocated
// later. On the CPU new kernels are compiled together; on CUDA each is compiled at its first run.
struct BodyOperands {
  std::shared_ptr<const BodySpec> spec;
  std::vector<Tensor> inputs, outputs;
  // For each input, whether it is final before the previous kernel ends, so that a CUDA kernel may
  // load it before it waits for that kernel. Empty: none is.
  std::vector<bool> prefetchable = {};
};
std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(Device device,
                                                           std::span<const BodyOperands> bodies);

namespace on_cpu {
bool repeats_functions(const BodySpec& spec, std::span<const Dims> strides);
std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies);
}  // namespace on_cpu

namespace on_cuda {
bool has_tiles(Device device);
bool has_schedule(Device device, const BodySpec& spec, std::span<const Dims> strides);
bool are_better_together(Device device, const BodyStrides& one, const BodyStrides& other);
double share_of_device(Device device, const BodySpec& spec, std::span<const Dims> strides);
bool is_generated(Device device, const BodySpec& spec, std::span<const Dims> strides, bool aligned);
bool is_better_alone(Device device, const BodySpec& spec, std::span<const Dims> strides,
                     bool aligned);
std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies);
}  // namespace on_cuda

}  // namespace brrr
