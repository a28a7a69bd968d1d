// Chooses among the elementwise kernels: flat, strided, tiled.
#include "brrr/ops/cuda/elementwise.h"

#include <algorithm>
#include <bit>

#include "brrr/ops/cuda/kernel_table.h"
#include "brrr/ops/jit/tuning.h"
#include "brrr/tensor/cuda_runtime.h"

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

KernelArguments arguments_of(const Elementwise& work) {
  KernelArguments arguments;
  for (int k = 0; k < work.n_operands; ++k)
    arguments.add_operand(work.operands[k]->data, k < work.n_outputs);
  for (int i = 0; i < work.n_scalars; ++i) arguments.add(&work.scalars[i]);
  return arguments;
}

Ready make(const Elementwise& work, const KernelKey& key, const jit::Schedule& schedule,
           Device device) {
  const Ready ready{load_body(device, work.make(work.of), schedule).main,
                    static_cast<unsigned>(schedule.threads),
                    std::int64_t{schedule.threads} * schedule.unroll * schedule.width};
  return work.what == Elementwise::kUnshared ? ready : *table().insert(key, ready);
}

std::uint8_t element_size(const TensorImpl& t) {
  return static_cast<std::uint8_t>(size_of(t.word.dtype()));
}

// --- Contiguous operands ------------------------------------------------------------------------

[[gnu::noinline]] Ready make_flat(const Elementwise& work, const KernelKey& key, Device device,
                                  int log_width, unsigned single) {
  std::uint8_t sizes[Elementwise::kMostOperands];
  for (int k = 0; k < work.n_operands; ++k) sizes[k] = element_size(*work.operands[k]);
  return make(work, key,
              jit::flat_schedule(sizes, work.n_outputs, work.n_operands, single, 1 << log_width,
                                 work.operands[0]->numel),
              device);
}

// The width of the widest vectors, at most 8 elements, to which every address is aligned. `single`:
// bits of operands of one element, which are not read in vectors.
int log_width_of(const Elementwise& work, unsigned single) {
  int log_width = 3;
  for (int k = 0; k < work.n_operands; ++k) {
    const TensorImpl& t = *work.operands[k];
    if (single >> k & 1) continue;
    log_width = std::min(log_width, std::countr_zero(reinterpret_cast<std::uintptr_t>(t.data) /
                                                     size_of(t.word.dtype())));
  }
  return log_width;
}

// Whether every operand is contiguous or one expanded element; sets the latter's bits in `single`.
[[gnu::noinline]] bool is_flat_with_expanded(const Elementwise& work, unsigned& single) {
  for (int k = 0; k < work.n_operands; ++k) {
    const TensorImpl& t = *work.operands[k];
    if (t.word.contiguous() && t.numel == work.operands[0]->numel) continue;
    const bool one = std::all_of(t.strides, t.strides + t.word.rank(),
                                 [](std::int64_t stride) { return stride == 0; });
    if (k < work.n_outputs || (t.numel > 1 && !one)) return false;
    single |= 1u << k;
  }
  return true;
}

// --- Any other layout ---------------------------------------------------------------------------

[[gnu::noinline]] void run_strided(const Elementwise& work, Device device, cu::CudaStream& stream) {
  jit::PointwiseLayout layout;
  const TensorImpl& out = *work.operands[0];
  add_dims(layout.space, {out.dims, static_cast<std::size_t>(out.word.rank())});
  layout.outputs = work.n_outputs;
  for (int k = 0; k < work.n_operands; ++k) {
    const TensorImpl& t = *work.operands[k];
    const auto rank = static_cast<std::size_t>(t.word.rank());
    layout.data[k] = t.data;
    layout.sizes[k] = element_size(t);
    add_operand(layout.space, {t.dims, rank}, {t.strides, rank});
  }
  const jit::Schedule schedule = jit::pointwise_schedule(layout);

  constexpr int kOther = 24;  // bits of the key
  static_assert(kOther + 2 * Elementwise::kMostOperands <= 64, "a key of 64 bits");
  KernelKey key{stream.on, work.what, 1};  // flat kernels have an even `how`
  int at = 1;
  const auto pack = [&key, &at](std::uint64_t value, int bits) {
    key.how |= value << at;
    at += bits;
  };
  pack(schedule.walk == jit::Walk::tiled, 1);
  pack(static_cast<std::uint64_t>(schedule.rank), 4);
  pack(static_cast<std::uint64_t>(schedule.width), 5);
  pack(static_cast<std::uint64_t>(schedule.tile), 8);
  pack(schedule.broadcast, Elementwise::kMostOperands);
  pack(schedule.transposed, Elementwise::kMostOperands);
  pack(schedule.wide, 1);
  pack(static_cast<std::uint64_t>(schedule.unroll), 4);
  const Ready* found = table().find(key);
  const Ready ready = found ? *found : make(work, key, schedule, device);
  KernelArguments arguments = arguments_of(work);
  launch_strided(ready.function, schedule, layout.space, arguments, stream);
}

}  // namespace

void run_elementwise(const Elementwise& work) {
  const std::int64_t count = work.operands[0]->numel;
  if (count == 0) return;
  const Device device = work.operands[0]->word.device();
  cu::CudaStream& stream = cu::current_stream(device);
  bool flat = true;
  unsigned single = 0;  // bits by operand: one element for all of the outputs'
  std::uintptr_t addresses = 0;
  for (int k = 0; k < work.n_operands; ++k) {
    const TensorImpl& t = *work.operands[k];
    if (t.numel == 1 && count > 1) {
      single |= 1u << k;
      continue;
    }
    flat &= t.word.contiguous() & (t.numel == count);
    addresses |= reinterpret_cast<std::uintptr_t>(t.data);
  }
  if (!flat && !is_flat_with_expanded(work, single)) [[unlikely]]
    return run_strided(work, device, stream);

  const int log_width = addresses & 15u ? log_width_of(work, single) : 4;
  const bool large = count >= jit::tuning().pointwise_large;
  const KernelKey key{
      stream.on, work.what,
      (std::uint64_t{single} << 4 | static_cast<std::uint64_t>(log_width << 1 | large)) << 1};
  const Ready* found = table().find(key);
  const Ready ready = found ? *found : make_flat(work, key, device, log_width, single);
  KernelArguments arguments = arguments_of(work);
  arguments.add(&count);
  launch_programmatic(ready.function, {ceil_div(count, ready.per_block)}, ready.threads, stream,
                      arguments.list);
}

}  // namespace brrr::on_cuda
