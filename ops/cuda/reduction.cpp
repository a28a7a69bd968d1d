// Reductions on CUDA: finds or makes the kernel that suits the operand's layout, and joins the
// results of its parts. The order of combination depends on shapes, strides, the address modulo 16
// and the device only.
#include "brrr/ops/cuda/body_launch.h"
#include "brrr/ops/cuda/kernel_table.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {
namespace {

using std::int64_t;

KernelTable<BodyKernels>& table() {
  static KernelTable<BodyKernels>* instance = new KernelTable<BodyKernels>;
  return *instance;
}

template <class MakeBody>
void reduce(const Call& call, Tensor& output, std::uint64_t mask, bool ordered,
            MakeBody&& make_body) {
  if (output.numel() == 0) return;
  const Tensor& input = call.input(0);
  const Device device = input.device();
  cu::CudaStream& stream = cu::current_stream(device);
  jit::ReductionLayout layout;
  layout.ordered = ordered;
  split_dims(layout.kept, layout.reduced, input, output, mask);
  layout.data[0] = input.data();
  layout.sizes[0] = static_cast<std::uint8_t>(size_of(input.dtype()));
  layout.sizes[1] = static_cast<std::uint8_t>(size_of(output.dtype()));
  const jit::ReductionSchedule schedule = jit::reduction_schedule(layout, jit::shape_of(device));

  KernelKey key{
      stream.on,
      static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(input.dtype()) << 16 |
          static_cast<std::uint64_t>(output.dtype()) << 20,
      static_cast<std::uint64_t>(schedule.walk) | static_cast<std::uint64_t>(schedule.rank) << 4 |
          static_cast<std::uint64_t>(schedule.reduced_rank) << 8 |
          static_cast<std::uint64_t>(schedule.wide) << 12 |
          static_cast<std::uint64_t>(schedule.width) << 16 |
          static_cast<std::uint64_t>(schedule.lanes) << 24 |
          static_cast<std::uint64_t>(schedule.unroll) << 36 |
          static_cast<std::uint64_t>(schedule.join_lanes) << 48 |
          static_cast<std::uint64_t>(schedule.cluster) << 58};
  const BodyKernels* kernels = table().find(key);
  if (!kernels) [[unlikely]]
    kernels = table().insert(key, load_body(device, make_body(), schedule));
  KernelArguments arguments;
  arguments.add_operand(TensorImpl::of(output)->data, true);
  arguments.add_operand(TensorImpl::of(input)->data, false);
  launch_reduction(*kernels, schedule, layout.kept, layout.reduced, arguments, stream);
}

}  // namespace

void reduction(const Call& call, Tensor* outputs) {
  Tensor& output = outputs[0];
  reduce(call, output, static_cast<std::uint64_t>(call.attrs[0].i()), false, [&] {
    return jit::reduction_body(op_info(call.op), call.input(0).dtype(), output.dtype());
  });
}

void arg_reduction(const Call& call, Tensor* outputs) {
  reduce(call, outputs[0], std::uint64_t{1} << call.attrs[0].i(), true,
         [&] { return jit::arg_reduction_body(op_info(call.op), call.input(0).dtype()); });
}

}  // namespace brrr::on_cuda
