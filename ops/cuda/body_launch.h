// Launches generated kernels for eager calls, fused bodies and tests: lays out the arguments that
// kernels of ops/jit take after their operands.
#pragma once

#include <cstdint>
#include <vector>

#include <brrr/ops/cuda/launch.h>
#include <brrr/ops/jit/body.h>
#include <brrr/ops/jit/schedule.h>

namespace brrr::on_cuda {

// The addresses of a kernel's arguments: pointers to outputs and inputs, then numbers and sinks.
struct KernelArguments {
  static constexpr std::size_t kMostOthers = 5;  // a reduction's
  void* list[jit::Body::kMostOperands + jit::Body::kMostNumbers + kMostOthers];
  int outputs = 0, operands = 0, n = 0;

  void add(const void* argument) { list[n++] = const_cast<void*>(argument); }
  // `pointer` is read at the launch.
  template <class Pointer>
  void add_operand(const Pointer& pointer, bool is_output) {
    add(&pointer);
    outputs += is_output;
    operands = n;
  }
};

// The kernels of a body for one schedule: if the first one splits rows, the second joins their
// parts; if it reduces columns, the second combines the results of its blocks.
struct BodyKernels {
  CUfunction main = nullptr, join = nullptr;
  std::size_t partial = 0;           // bytes of a partial result of a row, or of a column
  bool join_reads_operands = false;  // else the joining kernel has outputs only
};
// Compiles the kernels, or finds them by their source.
BodyKernels load_body(Device device, const jit::Body& body, const jit::Schedule& schedule);

// Any schedule without reductions but a flat one; `space` as pointwise_schedule has left it.
void launch_strided(CUfunction kernel, const jit::Schedule& schedule, const StridedSpace& space,
                    KernelArguments& arguments, const cu::CudaStream& stream);
// `kept` and `reduced` as reduction_schedule has left them.
void launch_reduction(const BodyKernels& kernels, const jit::ReductionSchedule& schedule,
                      const StridedSpace& kept, const StridedSpace& reduced,
                      KernelArguments& arguments, const cu::CudaStream& stream);

}  // namespace brrr::on_cuda
