// Bodies on CUDA: scheduled by the layouts of their operands and launched as eager kernels are.
#include "brrr/ops/body_kernel.h"

#include <algorithm>

#include "brrr/ops/cuda/contraction.h"
#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::on_cuda {
namespace {

class CudaBodyKernel final : public BodyKernel {
 public:
  explicit CudaBodyKernel(std::shared_ptr<const BodySpec> spec) : spec_(std::move(spec)) {}

  void run(const Tensor* const* inputs, const Tensor* outputs) override {
    const jit::LoadedKernelsScope loaded(&loaded_);
    if (spec_->body.contraction() >= 0) {
      run_contraction(*spec_, inputs, outputs);
    } else if (spec_->body.reduces()) {
      run_reduction(inputs, outputs);
    } else {
      run_pointwise(inputs, outputs);
    }
  }

  // Of a kernel in parts the larger numbers.
  KernelFacts facts() const override {
    KernelFacts facts{.source = loaded_.source};
    if (!loaded_.functions.empty()) cu::make_current(cu::device_state(loaded_.device.index));
    for (const CUfunction function : loaded_.functions) {
      int registers = 0, local_bytes = 0;
      BRRR_CUDA(cuFuncGetAttribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
      BRRR_CUDA(cuFuncGetAttribute, &local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
      facts.registers = std::max(facts.registers, registers);
      facts.local_bytes = std::max(facts.local_bytes, local_bytes);
    }
    return facts;
  }

 private:
  void run_pointwise(const Tensor* const* inputs, const Tensor* outputs) const {
    Elementwise work;
    for (std::size_t k = 0; k < spec_->body.outputs.size(); ++k) work.add_output(outputs[k]);
    for (std::size_t k = 0; k < spec_->body.inputs.size(); ++k) work.add_input(*inputs[k]);
    for (const std::uint64_t bits : spec_->scalars) work.add_scalar(bits);
    work.of = &spec_->body;
    work.make = [](const void* of) { return *static_cast<const jit::Body*>(of); };
    run_elementwise(work);
  }

  void run_reduction(const Tensor* const* inputs, const Tensor* outputs) const {
    const jit::Body& body = spec_->body;
    const int n_inputs = static_cast<int>(body.inputs.size()),
              n_outputs = static_cast<int>(body.outputs.size());
    jit::ReductionLayout layout;
    layout.inputs = n_inputs;
    layout.passes = static_cast<int>(jit::pieces::passes_of(body).size());
    const Tensor* operands[StridedSpace::kMaxOperands];
    for (int k = 0; k < n_inputs + n_outputs; ++k) {
      operands[k] = k < n_inputs ? inputs[k] : &outputs[k - n_inputs];
      layout.data[k] = operands[k]->data();
      layout.sizes[k] = static_cast<std::uint8_t>(size_of(operands[k]->dtype()));
    }
    const std::span all(operands, static_cast<std::size_t>(n_inputs + n_outputs));
    layout.kept = space_of(*spec_, ~spec_->reduced, all);
    layout.reduced = space_of(*spec_, spec_->reduced, all);
    const Device device = outputs[0].device();
    const jit::ReductionSchedule schedule =
        jit::reduction_schedule(layout, jit::multiprocessors_of(device));
    KernelArguments arguments;
    for (int k = 0; k < n_outputs; ++k) arguments.add_operand(layout.data[n_inputs + k], true);
    for (int k = 0; k < n_inputs; ++k) arguments.add_operand(layout.data[k], false);
    for (const std::uint64_t& bits : spec_->scalars) arguments.add(&bits);
    launch_reduction(load_body(device, body, schedule), schedule, layout.kept, layout.reduced,
                     arguments, cu::current_stream(device));
  }

  std::shared_ptr<const BodySpec> spec_;
  jit::LoadedKernels loaded_;  // by the last run
};

}  // namespace

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies) {
  std::vector<std::unique_ptr<BodyKernel>> kernels;
  for (const BodyOperands& each : bodies)
    kernels.push_back(std::make_unique<CudaBodyKernel>(each.spec));
  return kernels;
}

}  // namespace brrr::on_cuda
