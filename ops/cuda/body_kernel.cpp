// Runs bodies on CUDA: chooses a schedule by the operands' layouts, and launches like eager
// kernels.
#include "brrr/ops/body_kernel.h"

#include <algorithm>

#include "brrr/ops/cuda/contraction.h"
#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/cuda_faults.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::on_cuda {
namespace {

// What a schedule of a body's operands depends on but for their addresses.
template <class Layout>
void describe(const BodySpec& spec, Layout& layout) {
  const jit::Body& body = spec.body;
  const std::size_t read = body.reads(), written = body.outputs.size();
  const std::size_t first_output = body.reduces() ? read : 0,
                    first_input = body.reduces() ? 0 : written,
                    first_coordinate = first_input + body.inputs.size();
  for (std::size_t o = 0; o < written; ++o)
    layout.sizes[first_output + o] = static_cast<std::uint8_t>(size_of(body.outputs[o].dtype));
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    // Operands that are read at computed indices are not loaded in vectors.
    layout.sizes[first_input + i] = jit::pieces::is_address(body, i)
                                        ? std::uint8_t{0}
                                        : static_cast<std::uint8_t>(size_of(body.inputs[i].dtype));
  }
  for (std::size_t i = 0; i < body.indices.size(); ++i) layout.sizes[first_coordinate + i] = 0;
  for (const jit::Body::TensorOperand& input : body.inputs) {
    for (const jit::Body::Bound& bound : input.bounds) {
      layout.bound.bounds[first_coordinate + static_cast<std::size_t>(bound.index)] |=
          static_cast<std::int64_t>(spec.scalars[static_cast<std::size_t>(bound.low)] |
                                    spec.scalars[static_cast<std::size_t>(bound.high)]);
    }
  }
}

jit::ReductionLayout reduction_layout(const BodySpec& spec, StridedSpace kept,
                                      StridedSpace reduced) {
  jit::ReductionLayout layout;
  layout.kept = kept;
  layout.reduced = reduced;
  layout.inputs = static_cast<int>(spec.body.reads());
  layout.passes = static_cast<int>(jit::pieces::passes_of(spec.body).size());
  layout.partial = static_cast<std::int64_t>(jit::partial_size(spec.body));
  layout.reduces_columns = spec.body.reduces_columns();
  describe(spec, layout);
  return layout;
}

class CudaBodyKernel final : public BodyKernel {
 public:
  explicit CudaBodyKernel(const BodyOperands& of)
      : spec_(of.spec), prefetchable_(of.prefetchable) {}

  void run(const Tensor* const* inputs, const Tensor* outputs) override {
    const jit::LoadedKernelsScope loaded(&loaded_);
    const BodyLayout layout{
        *spec_, {inputs, spec_->body.inputs.size()}, {outputs, spec_->body.outputs.size()}};
    if (spec_->body.contraction() >= 0) {
      run_contraction(*spec_, inputs, outputs, prefetchable_);
    } else if (spec_->body.reduces()) {
      run_reduction(layout);
    } else if (!spec_->coordinates.empty() || !spec_->placed.empty()) {
      run_strided(layout);
    } else {
      run_pointwise(layout);
    }
  }

  // If the body takes two kernels, the larger of their numbers.
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
  // Operands without coordinates: an eager call's kernels serve them.
  void run_pointwise(const BodyLayout& of) const {
    Elementwise work;
    for (const Tensor& output : of.outputs) work.add_output(output);
    for (const Tensor* input : of.inputs) work.add_input(*input);
    for (const std::uint64_t bits : spec_->scalars) work.add_scalar(bits);
    work.of = &spec_->body;
    work.make = [](const void* body) { return *static_cast<const jit::Body*>(body); };
    run_elementwise(work);
  }

  // The addresses of operands, in the order of the layout.
  void put_addresses(const BodyLayout& of, const void** data) const {
    for (int o = 0; o < static_cast<int>(of.outputs.size()); ++o)
      data[of.first_output() + o] = of.outputs[static_cast<std::size_t>(o)].data();
    for (int i = 0; i < static_cast<int>(of.inputs.size()); ++i)
      data[of.first_input() + i] = of.input(i);
  }

  // Outputs, inputs, numbers. `data` is read at the launch.
  KernelArguments arguments_of(const BodyLayout& of, const void* const* data) const {
    KernelArguments arguments;
    for (std::size_t o = 0; o < of.outputs.size(); ++o)
      arguments.add_operand(data[static_cast<std::size_t>(of.first_output()) + o], true);
    for (std::size_t i = 0; i < of.inputs.size(); ++i)
      arguments.add_operand(data[static_cast<std::size_t>(of.first_input()) + i], false);
    for (const std::uint64_t& bits : spec_->scalars) arguments.add(&bits);
    return arguments;
  }
  // Appends the fault sink if the body checks. The result must live until the launch.
  std::vector<cu::FaultSink> sinks_of(Device device, KernelArguments& arguments) const {
    std::vector<cu::FaultSink> sinks;
    for (const char* name : spec_->body.checks) sinks.push_back(cu::fault_sink(device, name));
    for (const cu::FaultSink& sink : sinks) arguments.add(&sink);
    return sinks;
  }

  // Whether vectors of `width` elements along the innermost dimension of a space are whole blocks
  // of every draw, or a part of one, wherever they begin there and in the other dimensions.
  bool draws_whole_blocks(const BodyLayout& of, int width, const StridedSpace& along,
                          const StridedSpace& others) const {
    const jit::Body& body = spec_->body;
    return std::ranges::all_of(jit::pieces::draws_of_elements(body), [&](int draw) {
      const jit::BodyValue& value = body.value(draw);
      const int block = jit::draws_of_block(value.dtype), run = std::min(width, block);
      const auto at = [&](int operand) {
        return body.value(value.operands[static_cast<std::size_t>(operand)]).number;
      };
      const int coordinate = of.first_coordinate() + at(1);
      bool whole = run > 1 && along.inner_stride(coordinate) == 1;
      for (int d = 0; d + 1 < along.rank; ++d) whole &= along.stride[coordinate][d] % run == 0;
      for (int d = 0; d < others.rank; ++d) whole &= others.stride[coordinate][d] % run == 0;
      const auto first = static_cast<std::int64_t>(spec_->scalars[static_cast<std::size_t>(at(2))]);
      return whole && first % run == 0;
    });
  }

  void run_strided(const BodyLayout& of) const {
    const Device device = of.outputs[0].device();
    jit::PointwiseLayout layout;
    layout.outputs = static_cast<int>(of.outputs.size());
    layout.space = of.space(~0u);
    describe(*spec_, layout);
    put_addresses(of, layout.data);
    jit::Schedule schedule = jit::pointwise_schedule(layout);
    schedule.whole_blocks = draws_whole_blocks(of, schedule.width, layout.space, {});
    KernelArguments arguments = arguments_of(of, layout.data);
    const std::vector<cu::FaultSink> sinks = sinks_of(device, arguments);
    launch_strided(load_body(device, spec_->body, schedule).main, schedule, layout.space, arguments,
                   cu::current_stream(device));
  }

  void run_reduction(const BodyLayout& of) const {
    const Device device = of.outputs[0].device();
    const jit::Body& body = spec_->body;
    jit::ReductionLayout layout =
        reduction_layout(*spec_, of.space(~spec_->reduced), of.space(spec_->reduced));
    put_addresses(of, layout.data);
    jit::ReductionSchedule schedule = jit::reduction_schedule(layout, jit::shape_of(device));
    schedule.whole_blocks =
        schedule.walk == jit::Walk::rows
            ? draws_whole_blocks(of, schedule.width, layout.reduced, layout.kept)
            : draws_whole_blocks(of, schedule.width, layout.kept, layout.reduced);
    KernelArguments arguments = arguments_of(of, layout.data);
    const std::vector<cu::FaultSink> sinks = sinks_of(device, arguments);
    launch_reduction(load_body(device, body, schedule), schedule, layout.kept, layout.reduced,
                     arguments, cu::current_stream(device));
  }

  std::shared_ptr<const BodySpec> spec_;
  std::vector<bool> prefetchable_;
  jit::LoadedKernels loaded_;  // by the last run
};

}  // namespace

// Vectors are widest, and need the most shared memory, where all operands are aligned.
bool has_schedule(Device device, const BodySpec& spec, std::span<const Dims> strides) {
  if (!spec.body.reduces() || spec.body.contraction() >= 0) return true;
  jit::ReductionLayout layout = reduction_layout(spec, space_of(spec, strides, ~spec.reduced),
                                                 space_of(spec, strides, spec.reduced));
  return !jit::misfit_of(spec.body, jit::reduction_schedule(layout, jit::shape_of(device)));
}

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies) {
  std::vector<std::unique_ptr<BodyKernel>> kernels;
  for (const BodyOperands& each : bodies) kernels.push_back(std::make_unique<CudaBodyKernel>(each));
  return kernels;
}

}  // namespace brrr::on_cuda
