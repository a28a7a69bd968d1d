#include "brrr/ops/cuda/body_launch.h"

#include <optional>
#include <string>

#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::on_cuda {

using std::int64_t;

BodyKernels load_body(Device device, const jit::Body& body, const jit::Schedule& schedule) {
  const std::string join = body.name + "_join";
  std::vector<const char*> entries = {body.name.c_str()};
  if (schedule.join_lanes > 0 || schedule.reduces_columns) entries.push_back(join.c_str());
  const auto kernels = jit::load_kernels(device, entries, jit::render_cuda(body, schedule),
                                         {.random = jit::draws(body), .fast = body.fast});
  BodyKernels result{kernels.front(), kernels.back()};
  if (body.reduces()) {
    result.partial =
        schedule.reduces_columns ? jit::column_partial_size(body) : jit::partial_size(body);
    result.join_reads_operands = jit::pieces::has_row_values(body);
  }
  return result;
}

void launch_strided(CUfunction kernel, const jit::Schedule& schedule, const StridedSpace& space,
                    KernelArguments& arguments, const cu::CudaStream& stream) {
  jit::Geometry geometry;
  jit::fill(geometry, space, schedule.width);
  arguments.add(&geometry);
  launch_programmatic(kernel, {jit::blocks_of(schedule, space)},
                      static_cast<unsigned>(schedule.threads), stream, arguments.list);
}

void launch_reduction(const BodyKernels& kernels, const jit::ReductionSchedule& schedule,
                      const StridedSpace& kept, const StridedSpace& reduced,
                      KernelArguments& arguments, const cu::CudaStream& stream) {
  const bool by_columns = schedule.walk == jit::Walk::columns;
  jit::Geometry results, elements;
  jit::fill(results, kept, by_columns ? schedule.width : 1);
  jit::fill(elements, reduced, by_columns ? 1 : schedule.width);
  const int64_t n_results = kept.count(), n_elements = reduced.count();
  // Freed on this stream, so used again only after the kernels below.
  std::optional<cu::Scratch> scratch;
  void* partials = nullptr;
  const bool joins_rows = schedule.join_lanes > 0, joins_columns = schedule.reduces_columns;
  if (joins_rows || joins_columns) {
    const int64_t all = joins_rows ? n_results * schedule.parts : n_elements * schedule.blocks;
    scratch.emplace(stream.device, static_cast<std::size_t>(all) * kernels.partial);
    partials = scratch->data();
  }
  const auto parts = static_cast<std::int32_t>(joins_rows ? schedule.parts : schedule.blocks);
  KernelArguments join;
  if (joins_rows || joins_columns) {
    const bool reads_operands = joins_rows && kernels.join_reads_operands;
    const int operands = reads_operands ? arguments.operands : arguments.outputs;
    for (int i = 0; i < operands; ++i) join.add(arguments.list[i]);
    for (int i = arguments.operands; i < arguments.n; ++i) join.add(arguments.list[i]);
    join.add(&partials);
    join.add(joins_rows ? &results : &elements);
    join.add(&parts);
    join.add(&n_elements);
    if (joins_columns) join.add(&n_results);
  }
  arguments.add(&partials);
  arguments.add(&results);
  arguments.add(&elements);
  arguments.add(&schedule.part);
  arguments.add(&n_elements);
  launch_programmatic(kernels.main, {schedule.blocks, schedule.parts},
                      static_cast<unsigned>(schedule.threads), stream, arguments.list);
  if (!joins_rows && !joins_columns) return;
  const int64_t blocks = joins_rows ? ceil_div(n_results, 256 / schedule.join_lanes)
                                    : ceil_div(n_elements, jit::kJoinedColumns);
  launch_programmatic(kernels.join, {blocks}, 256, stream, join.list);
}

}  // namespace brrr::on_cuda
