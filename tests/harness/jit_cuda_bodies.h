// Bodies of jit_bodies.h on CUDA: their schedules, their texts, and launches of them.
#pragma once

#include "tests/harness/jit_bodies.h"
#include <brrr/ops/cuda/body_launch.h>
#include <brrr/ops/jit/compiler.h>
#include <brrr/tensor/cuda_faults.h>
#include <brrr/tensor/cuda_runtime.h>

namespace brrr::testing {

struct Scheduled {
  ReductionSchedule schedule;
  StridedSpace space, reduced;
};

// The schedule that operands in memory get; `aligned` as if every operand were.
inline Scheduled schedule_of(const Case& c, const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& outputs, DeviceShape device) {
  const StridedSpace all = space_of(c, inputs, outputs);
  std::vector<const Tensor*> reads, order;
  for (const Tensor& t : inputs) reads.push_back(&t);
  for (std::size_t i = 0; i < c.coordinates.size(); ++i) reads.push_back(nullptr);
  for (const Tensor& t : outputs) order.push_back(&t);
  order.insert(c.body.reduces() ? order.begin() : order.end(), reads.begin(), reads.end());
  const auto describe = [&](auto& layout) {
    for (std::size_t k = 0; k < order.size(); ++k) {
      layout.data[k] = order[k] ? order[k]->data() : nullptr;
      layout.sizes[k] =
          order[k] ? static_cast<std::uint8_t>(size_of(order[k]->dtype())) : std::uint8_t{0};
    }
    const std::size_t first = inputs.size() + (c.body.reduces() ? 0 : outputs.size());
    for (const Body::TensorOperand& input : c.body.inputs) {
      for (const Body::Bound& bound : input.bounds) {
        layout.bound.bounds[first + static_cast<std::size_t>(bound.index)] |=
            static_cast<std::int64_t>(c.scalars[static_cast<std::size_t>(bound.low)] |
                                      c.scalars[static_cast<std::size_t>(bound.high)]);
      }
    }
  };
  Scheduled result;
  if (c.body.reduces()) {
    ReductionLayout layout;
    layout.inputs = static_cast<int>(reads.size());
    layout.passes = static_cast<int>(pieces::passes_of(c.body).size());
    layout.kept = choose_dims(all, ~c.reduced);
    layout.reduced = choose_dims(all, c.reduced);
    describe(layout);
    result.schedule = reduction_schedule(layout, device);
    result.space = layout.kept;
    result.reduced = layout.reduced;
  } else {
    PointwiseLayout layout;
    layout.outputs = static_cast<int>(outputs.size());
    layout.space = all;
    describe(layout);
    static_cast<Schedule&>(result.schedule) = pointwise_schedule(layout);
    result.space = layout.space;
  }
  return result;
}

inline KernelOptions options_of(const Body& body) {
  KernelOptions options;
  options.random = draws(body);
  options.fast = body.fast;
  return options;
}

inline std::vector<Tensor> run_on_cuda(const Case& c, Device device) {
  std::vector<Tensor> inputs, outputs = outputs_of(c, device);
  for (const Tensor& t : c.inputs) inputs.push_back(to(t, device));
  const Scheduled s = schedule_of(c, inputs, outputs, shape_of(device));
  std::vector<cu::FaultSink> sinks;
  for (const char* name : c.body.checks) sinks.push_back(cu::fault_sink(device, name));

  on_cuda::KernelArguments arguments;
  for (const Tensor& t : outputs) arguments.add_operand(TensorImpl::of(t)->data, true);
  for (const Tensor& t : inputs) arguments.add_operand(TensorImpl::of(t)->data, false);
  for (const std::uint64_t& scalar : c.scalars) arguments.add(&scalar);
  for (const cu::FaultSink& sink : sinks) arguments.add(&sink);
  const on_cuda::BodyKernels kernels = on_cuda::load_body(device, c.body, s.schedule);
  const cu::CudaStream& stream = cu::current_stream(device);
  if (c.body.reduces()) {
    on_cuda::launch_reduction(kernels, s.schedule, s.space, s.reduced, arguments, stream);
  } else {
    on_cuda::launch_strided(kernels.main, s.schedule, s.space, arguments, stream);
  }
  return outputs;
}

}  // namespace brrr::testing
