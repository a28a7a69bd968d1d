// Reductions on CUDA: finds or makes the kernel that suits the operand's layout, and joins the
// results of its parts. The order of combination depends on shapes, strides, the address modulo 16
// and the device only.
#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/cuda/kernel_table.h"
#include "brrr/ops/cuda/launch.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/schedule.h"
#include "brrr/ops/kernels.h"

namespace brrr::on_cuda {
namespace {

using std::int64_t;

struct Ready {
  CUfunction main, join;  // `join` where the schedule splits rows into parts
  int threads;
  std::size_t partial;  // bytes
};

KernelTable<Ready>& table() {
  static KernelTable<Ready>* instance = new KernelTable<Ready>;
  return *instance;
}

[[gnu::noinline]] const Ready* make(const KernelKey& key, const jit::Body& body,
                                    const jit::Schedule& schedule, Device device) {
  const std::string join = body.name + "_join";
  std::vector<const char*> entries = {body.name.c_str()};
  if (schedule.join_lanes > 0) entries.push_back(join.c_str());
  const auto kernels = jit::load_kernels(device, entries, jit::render_cuda(body, schedule));
  return table().insert(
      key, {kernels.front(), kernels.back(), schedule.threads, jit::partial_size(body)});
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
  const jit::ReductionSchedule schedule =
      jit::reduction_schedule(layout, jit::multiprocessors_of(device));

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
          static_cast<std::uint64_t>(schedule.join_lanes) << 48};
  const Ready* ready = table().find(key);
  if (!ready) [[unlikely]]
    ready = make(key, make_body(), schedule, device);

  const bool by_columns = schedule.walk == jit::Walk::columns;
  jit::Geometry kept, reduced;
  jit::fill(kept, layout.kept, by_columns ? schedule.width : 1);
  jit::fill(reduced, layout.reduced, by_columns ? 1 : schedule.width);
  Storage* scratch = nullptr;
  void* partials = nullptr;
  if (schedule.parts > 1) {
    scratch = new_storage(
        device, static_cast<std::size_t>(output.numel() * schedule.parts) * ready->partial);
    partials = scratch->data;
  }
  // Freed on this stream, so used again only after the kernels below.
  const struct Drop {
    Storage* storage;
    ~Drop() {
      if (storage) storage->drop();
    }
  } drop{scratch};

  void* out = output.data();
  const void* in = input.data();
  int64_t part = schedule.part, elements = layout.reduced.count();
  void* arguments[] = {&out, &in, &partials, &kept, &reduced, &part, &elements};
  launch_programmatic(
      ready->main, {static_cast<unsigned>(schedule.blocks), static_cast<unsigned>(schedule.parts)},
      static_cast<unsigned>(ready->threads), stream, arguments);
  if (schedule.parts == 1) return;
  std::int32_t parts = static_cast<std::int32_t>(schedule.parts);
  void* join_arguments[] = {&out, &partials, &kept, &parts, &elements};
  const int64_t blocks = ceil_div(output.numel(), 256 / schedule.join_lanes);
  launch_programmatic(ready->join, {static_cast<unsigned>(blocks)}, 256, stream, join_arguments);
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
