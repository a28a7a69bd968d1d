// Bodies of jit_bodies.h on CUDA: their schedules, their texts, and launches of them.
#pragma once

#include <cstring>

#include "tests/harness/jit_bodies.h"
#include <brrr/ops/cuda/programmatic_launch.h>
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
                             const std::vector<Tensor>& outputs, int multiprocessors) {
  const std::vector<Dims> strides = operand_strides(c, inputs, outputs);
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
  };
  Scheduled result;
  if (c.body.reduces()) {
    ReductionLayout layout;
    layout.inputs = static_cast<int>(reads.size());
    layout.passes = static_cast<int>(pieces::passes_of(c.body).size());
    add_dims(layout.kept, c.dims, ~c.reduced, strides);
    add_dims(layout.reduced, c.dims, c.reduced, strides);
    describe(layout);
    result.schedule = reduction_schedule(layout, multiprocessors);
    result.space = layout.kept;
    result.reduced = layout.reduced;
  } else {
    PointwiseLayout layout;
    layout.outputs = static_cast<int>(outputs.size());
    add_dims(layout.space, c.dims, ~0u, strides);
    describe(layout);
    static_cast<Schedule&>(result.schedule) = pointwise_schedule(layout);
    result.space = layout.space;
    result.schedule.blocks = blocks_of(result.schedule, layout.space);
  }
  return result;
}

inline CompileOptions options_of(const Body& body) {
  CompileOptions options;
  options.random = draws(body);
  return options;
}

// The largest geometry of a kernel, with the strides of all operands.
inline std::vector<Tensor> run_on_cuda(const Case& c, Device device) {
  std::vector<Tensor> inputs, outputs = outputs_of(c, device);
  for (const Tensor& t : c.inputs) inputs.push_back(to(t, device));
  const Scheduled s = schedule_of(c, inputs, outputs, multiprocessors_of(device));
  const bool reduces = c.body.reduces(), by_columns = s.schedule.walk == Walk::columns;
  const std::string join = c.body.name + "_join";
  std::vector<const char*> entries = {c.body.name.c_str()};
  if (s.schedule.join_lanes > 0) entries.push_back(join.c_str());
  const auto kernels =
      load_kernels(device, entries, render_cuda(c.body, s.schedule), options_of(c.body));

  std::vector<void*> pointers;
  for (const Tensor& t : outputs) pointers.push_back(t.data());
  for (const Tensor& t : inputs) pointers.push_back(t.data());
  std::vector<std::uint64_t> scalars = c.scalars;
  std::vector<cu::FaultSink> sinks;
  for (const std::string& name : c.body.checks)
    sinks.push_back(cu::fault_sink(device, name.c_str()));
  Geometry space, reduced;
  fill(space, s.space, !reduces || by_columns ? s.schedule.width : 1);
  if (reduces) fill(reduced, s.reduced, by_columns ? 1 : s.schedule.width);
  std::int64_t results = reduces ? s.space.count() : 0, part = s.schedule.part,
               elements = reduces ? s.reduced.count() : 0;
  const Tensor scratch = make_tensor(
      f64,
      Dims{static_cast<std::int64_t>(partial_size(c.body)) / 4 * results * s.schedule.parts + 1},
      device);
  void* partials = scratch.data();

  std::vector<void*> arguments, join_arguments;
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    arguments.push_back(&pointers[i]);
    if (i < outputs.size() || pieces::has_row_values(c.body))
      join_arguments.push_back(&pointers[i]);
  }
  const auto constant = [&](void* value) {
    arguments.push_back(value);
    join_arguments.push_back(value);
  };
  for (std::uint64_t& scalar : scalars) constant(&scalar);
  for (cu::FaultSink& sink : sinks) constant(&sink);
  std::int32_t parts = static_cast<std::int32_t>(s.schedule.parts);
  if (reduces) {
    for (void* each : std::initializer_list<void*>{&partials, &space, &reduced, &part, &elements})
      arguments.push_back(each);
    for (void* each : std::initializer_list<void*>{&partials, &space, &parts, &elements})
      join_arguments.push_back(each);
  } else {
    arguments.push_back(&space);
  }
  cu::CudaStream& stream = cu::current_stream(device);
  on_cuda::launch_programmatic(
      kernels[0],
      {static_cast<unsigned>(s.schedule.blocks), static_cast<unsigned>(s.schedule.parts)},
      static_cast<unsigned>(s.schedule.threads), stream, arguments.data());
  if (s.schedule.join_lanes > 0) {
    const std::int64_t each = 256 / s.schedule.join_lanes;
    on_cuda::launch_programmatic(kernels[1], {static_cast<unsigned>((results + each - 1) / each)},
                                 256, stream, join_arguments.data());
  }
  return outputs;
}

}  // namespace brrr::testing
