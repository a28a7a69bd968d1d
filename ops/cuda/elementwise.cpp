// Owns the choice among the elementwise kernels: flat, strided, tiled.
#include "brrr/ops/cuda/elementwise.h"

#include <bit>

#include "brrr/ops/cuda/kernel_table.h"
#include "brrr/ops/cuda/programmatic_launch.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/schedule.h"
#include "brrr/ops/jit/tuning.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {
namespace {

struct Ready {
  CUfunction function;
  unsigned threads;
  std::int64_t per_block;  // elements of a flat kernel
};

KernelTable<Ready>& table() {
  static KernelTable<Ready>* instance = new KernelTable<Ready>;
  return *instance;
}

constexpr int kMostOperands = Elementwise::kMostOutputs + Elementwise::kMostInputs;
// The last argument of a kernel, after outputs, inputs and scalars, is for the caller to fill.
struct Arguments {
  void* list[kMostOperands + Elementwise::kMostScalars + 1];
  int n = 0;

  explicit Arguments(const Elementwise& work) {
    for (int i = 0; i < work.n_outputs; ++i) list[n++] = const_cast<void**>(&work.outputs[i]->data);
    for (int i = 0; i < work.n_inputs; ++i) list[n++] = const_cast<void**>(&work.inputs[i]->data);
    for (int i = 0; i < work.n_scalars; ++i)
      list[n++] = const_cast<std::uint64_t*>(&work.scalars[i]);
  }
};

void launch(const Ready& ready, std::int64_t blocks, cu::CudaStream& stream, void** arguments) {
  launch_programmatic(ready.function, {static_cast<unsigned>(blocks)}, ready.threads, stream,
                      arguments);
}

const Ready* insert(const KernelKey& key, const Elementwise& work, const jit::Schedule& schedule,
                    Device device, std::int64_t per_block) {
  const jit::Body body = work.make(work.of);
  const CUfunction function =
      jit::load_kernel(device, body.name.c_str(), jit::render_cuda(body, schedule));
  return table().insert(key, {function, static_cast<unsigned>(schedule.threads), per_block});
}

std::uint8_t element_size(const TensorImpl& t) {
  return static_cast<std::uint8_t>(size_of(t.word.dtype()));
}

[[gnu::noinline]] const Ready* make_flat(const Elementwise& work, const KernelKey& key,
                                         Device device, int log_width, unsigned single) {
  std::uint8_t sizes[kMostOperands];
  int n = 0;
  for (int i = 0; i < work.n_outputs; ++i) sizes[n++] = element_size(*work.outputs[i]);
  for (int i = 0; i < work.n_inputs; ++i) sizes[n++] = element_size(*work.inputs[i]);
  const jit::Schedule schedule = jit::flat_schedule(
      sizes, work.n_outputs, n, single << work.n_outputs, 1 << log_width, work.outputs[0]->numel);
  return insert(key, work, schedule, device,
                std::int64_t{schedule.threads} * schedule.unroll * schedule.width);
}

// --- Everything that is not contiguous ----------------------------------------------------------

jit::Schedule schedule_of(const Elementwise& work, jit::PointwiseLayout& layout) {
  const TensorImpl& out = *work.outputs[0];
  add_dims(layout.space, {out.dims, static_cast<std::size_t>(out.word.rank())});
  layout.outputs = work.n_outputs;
  const auto add = [&layout](const TensorImpl& t) {
    const auto rank = static_cast<std::size_t>(t.word.rank());
    layout.data[layout.space.operands] = t.data;
    layout.sizes[layout.space.operands] = element_size(t);
    add_operand(layout.space, {t.dims, rank}, {t.strides, rank});
  };
  for (int i = 0; i < work.n_outputs; ++i) add(*work.outputs[i]);
  for (int i = 0; i < work.n_inputs; ++i) add(*work.inputs[i]);
  return jit::pointwise_schedule(layout);
}

[[gnu::noinline]] void run_strided(const Elementwise& work, Device device, cu::CudaStream& stream) {
  jit::PointwiseLayout layout;
  const jit::Schedule schedule = schedule_of(work, layout);
  KernelKey key{stream.on, work.what, 1};  // flat kernels have an even `how`
  int at = 1;
  const auto pack = [&key, &at](std::uint64_t value, int bits) {
    key.how |= value << at;
    at += bits;
  };
  const bool tiled = schedule.walk == jit::Walk::tiled;
  pack(tiled, 1);
  pack(static_cast<std::uint64_t>(schedule.rank), 4);
  pack(static_cast<std::uint64_t>(schedule.width), 5);
  pack(static_cast<std::uint64_t>(schedule.tile), 8);
  pack(schedule.broadcast, kMostOperands);
  pack(schedule.transposed, kMostOperands);
  pack(schedule.wide, 1);
  pack(static_cast<std::uint64_t>(schedule.unroll), 4);
  const Ready* ready = table().find(key);
  if (!ready) [[unlikely]]
    ready = insert(key, work, schedule, device, 0);

  jit::Geometry geometry;
  jit::fill(geometry, layout.space, schedule.width);
  Arguments arguments(work);
  arguments.list[arguments.n] = &geometry;
  launch(*ready, jit::blocks_of(schedule, layout.space), stream, arguments.list);
}

}  // namespace

void run_elementwise(const Elementwise& work) {
  const std::int64_t count = work.outputs[0]->numel;
  if (count == 0) return;
  const Device device = work.outputs[0]->word.device();
  cu::CudaStream& stream = cu::current_stream(device);
  bool flat = true;
  unsigned single = 0;  // bits by input: one element for all of the outputs'
  std::uintptr_t addresses = 0;
  int log_width = 4;
  const auto add = [&](const TensorImpl& t) {
    flat &= t.word.contiguous() & (t.numel == count);
    addresses |= reinterpret_cast<std::uintptr_t>(t.data);
  };
  // Calls f with every operand that is read or written in vectors.
  const auto each = [&](auto f) {
    for (int i = 0; i < work.n_outputs; ++i) f(*work.outputs[i]);
    for (int i = 0; i < work.n_inputs; ++i) {
      if (!(single >> i & 1)) f(*work.inputs[i]);
    }
  };
  if (count > 1) {
    for (int i = 0; i < work.n_inputs; ++i)
      single |= static_cast<unsigned>(work.inputs[i]->numel == 1) << i;
  }
  each(add);
  if (!flat) [[unlikely]]
    return run_strided(work, device, stream);

  if (addresses & 15u) [[unlikely]] {
    each([&](const TensorImpl& t) {
      log_width = std::min(log_width, std::countr_zero(reinterpret_cast<std::uintptr_t>(t.data) /
                                                       size_of(t.word.dtype())));
    });
    log_width = std::min(log_width, 3);
  }
  const bool large = count >= jit::tuning().pointwise_large;
  const KernelKey key{
      stream.on, work.what,
      (std::uint64_t{single} << 4 | static_cast<std::uint64_t>(log_width << 1 | large)) << 1};
  const Ready* ready = table().find(key);
  if (!ready) [[unlikely]]
    ready = make_flat(work, key, device, log_width, single);
  Arguments arguments(work);
  arguments.list[arguments.n] = const_cast<std::int64_t*>(&count);
  launch(*ready, (count + ready->per_block - 1) / ready->per_block, stream, arguments.list);
}

}  // namespace brrr::on_cuda
