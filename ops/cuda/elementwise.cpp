// Owns the choice among the elementwise kernels: flat, strided, tiled.
#include "brrr/ops/cuda/elementwise.h"

#include <bit>
#include <cstring>

#include "brrr/ops/cuda/kernel_table.h"
#include "brrr/ops/cuda/programmatic.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/tuning.h"
#include "brrr/tensor/runtime.h"

namespace brrr::on_cuda {
namespace {

struct Ready {
  CUfunction function;
  unsigned threads;
  std::int64_t per_block;  // elements of a flat kernel, vectors of a strided one
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
  launch_in_turn(ready.function, {static_cast<unsigned>(blocks)}, ready.threads, stream, arguments);
}

// How many vectors a thread takes when there are enough elements to fill the device anyway.
int unroll_for(const jit::KernelSpec& spec) {
  std::size_t bytes = 0;
  for (const jit::Operand& input : spec.inputs) {
    if (input.access == jit::Access::vector) bytes += size_of(input.dtype);
  }
  for (const jit::Operand& output : spec.outputs) bytes = std::max(bytes, size_of(output.dtype));
  return std::clamp(jit::tuning().pointwise_bytes /
                        static_cast<int>(bytes * static_cast<std::size_t>(spec.width)),
                    1, 8);
}

const Ready* insert(const KernelKey& key, const jit::KernelSpec& spec, Device device,
                    std::int64_t per_block) {
  const std::string text = jit::render_cuda(spec);
  const CUfunction function = jit::load_kernel(device, spec.name.c_str(), text);
  return table().insert(key, {function, static_cast<unsigned>(spec.threads), per_block});
}

[[gnu::noinline]] const Ready* make_flat(const Elementwise& work, const KernelKey& key,
                                         Device device, int log_width, bool large,
                                         unsigned single) {
  jit::KernelSpec spec = work.make(work.of);
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (single >> i & 1) spec.inputs[i].access = jit::Access::broadcast;
  }
  spec.width = std::min(jit::widest_access(spec), 1 << log_width);
  spec.threads = jit::tuning().pointwise_threads;
  spec.unroll = large ? unroll_for(spec) : 1;
  return insert(key, spec, device, std::int64_t{spec.threads} * spec.unroll * spec.width);
}

// --- Everything that is not contiguous ----------------------------------------------------------

struct Layout {
  jit::Walk walk = jit::Walk::strided;
  int width = 1, tile = 0;
  unsigned broadcast = 0, transposed = 0;  // bits by operand: outputs, then inputs
  bool wide = false, large = false;
};

// A dimension along which operands that do not run along the last one do: the other side of a tile.
// -1: none.
int turned_dim(const jit::Space& space, int outputs, unsigned& transposed) {
  constexpr std::int64_t kLeast = 8;
  const int inner = space.rank - 1;
  int side = -1;
  if (space.stride[0][inner] != 1 || space.size[inner] < kLeast) return -1;
  for (int k = outputs; k < space.operands; ++k) {
    if (space.stride[k][inner] == 0 || space.stride[k][inner] == 1) continue;
    for (int d = 0; d < inner; ++d) {
      if (space.stride[k][d] != 1 || space.size[d] < kLeast || (side >= 0 && side != d)) continue;
      side = d;
      transposed |= 1u << k;
    }
  }
  return side;
}

Layout lay_out(const Elementwise& work, jit::Space& space) {
  const TensorImpl& out = *work.outputs[0];
  for (int d = 0; d < out.word.rank(); ++d) space.add_dim(out.dims[d]);
  const TensorImpl* operands[kMostOperands];
  int n = 0;
  for (int i = 0; i < work.n_outputs; ++i) operands[n++] = work.outputs[i];
  for (int i = 0; i < work.n_inputs; ++i) operands[n++] = work.inputs[i];
  for (int k = 0; k < n; ++k) {
    const TensorImpl& t = *operands[k];
    const auto rank = static_cast<std::size_t>(t.word.rank());
    jit::add_operand(space, {t.dims, rank}, {t.strides, rank});
  }
  jit::sort_dims(space);
  jit::coalesce(space);

  Layout layout;
  layout.large = out.numel >= jit::tuning().pointwise_large;
  layout.wide = !jit::is_narrow(space);
  std::size_t largest = 1;
  const void* data[kMostOperands];
  std::uint8_t sizes[kMostOperands];
  for (int k = 0; k < space.operands; ++k) {
    const TensorImpl& t = *operands[k];
    data[k] = t.data;
    sizes[k] = static_cast<std::uint8_t>(size_of(t.word.dtype()));
    largest = std::max<std::size_t>(largest, sizes[k]);
  }
  if (const int side = turned_dim(space, work.n_outputs, layout.transposed); side >= 0) {
    const int inner = space.rank - 1;
    space.move_last(side);
    space.swap_dims(inner - 1, inner);
    layout.walk = jit::Walk::tiled;
    const bool fits = largest <= 4 && std::popcount(layout.transposed) == 1;
    layout.tile = fits ? jit::tuning().tile : 32;
    return layout;
  }
  layout.transposed = 0;
  layout.width = jit::vector_width(space, data, sizes, static_cast<int>(16 / largest));
  if (layout.width > 1) {
    for (int k = work.n_outputs; k < space.operands; ++k) {
      if (space.stride[k][space.rank - 1] == 0) layout.broadcast |= 1u << k;
    }
  }
  return layout;
}

[[gnu::noinline]] const Ready* make_strided(const Elementwise& work, const KernelKey& key,
                                            Device device, const Layout& layout, int rank) {
  jit::KernelSpec spec = work.make(work.of);
  spec.walk = layout.walk;
  spec.rank = rank;
  spec.width = layout.width;
  spec.wide = layout.wide;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const unsigned bit = 1u << (static_cast<std::size_t>(work.n_outputs) + i);
    spec.inputs[i].access = layout.transposed & bit  ? jit::Access::transposed
                            : layout.broadcast & bit ? jit::Access::broadcast
                                                     : jit::Access::vector;
  }
  if (layout.walk == jit::Walk::tiled) {
    spec.tile = layout.tile;
    spec.threads = jit::tuning().tile_threads;
    return insert(key, spec, device, 1);
  }
  spec.threads = jit::tuning().pointwise_threads;
  spec.unroll = layout.large ? jit::tuning().strided_unroll : 1;
  return insert(key, spec, device, std::int64_t{spec.threads} * spec.unroll);
}

[[gnu::noinline]] void run_strided(const Elementwise& work, Device device, cu::CudaStream& stream) {
  jit::Space space;
  const Layout layout = lay_out(work, space);
  KernelKey key{stream.on, work.what, 1};  // flat kernels have an even `how`
  int at = 1;
  const auto pack = [&key, &at](std::uint64_t value, int bits) {
    key.how |= value << at;
    at += bits;
  };
  pack(layout.walk == jit::Walk::tiled, 1);
  pack(static_cast<std::uint64_t>(space.rank), 4);
  pack(static_cast<std::uint64_t>(layout.width), 5);
  pack(static_cast<std::uint64_t>(layout.tile), 8);
  pack(layout.broadcast, kMostOperands);
  pack(layout.transposed, kMostOperands);
  pack(layout.wide, 1);
  pack(layout.large, 1);
  const Ready* ready = table().find(key);
  if (!ready) [[unlikely]]
    ready = make_strided(work, key, device, layout, space.rank);

  jit::Geometry geometry;
  jit::fill(geometry, space, layout.width);
  std::int64_t blocks = (geometry.count + ready->per_block - 1) / ready->per_block;
  if (layout.walk == jit::Walk::tiled) {
    blocks = 1;
    for (int d = 0; d < space.rank; ++d) {
      blocks *=
          d < space.rank - 2 ? space.size[d] : (space.size[d] + layout.tile - 1) / layout.tile;
    }
  }
  Arguments arguments(work);
  arguments.list[arguments.n] = &geometry;
  launch(*ready, blocks, stream, arguments.list);
}

}  // namespace

std::uint64_t argument_of(Attr attr, bool is_double, DType type) {
  const auto bits = [](auto value) {
    std::uint64_t result = 0;
    std::memcpy(&result, &value, sizeof(value));
    return result;
  };
  switch (type) {
    case DType::f32:
      return bits(is_double ? static_cast<float>(attr.d()) : static_cast<float>(attr.i()));
    case DType::f64: return bits(is_double ? attr.d() : static_cast<double>(attr.i()));
    case DType::i32:
      return bits(
          static_cast<std::int32_t>(is_double ? static_cast<std::int64_t>(attr.d()) : attr.i()));
    case DType::i64: return bits(is_double ? static_cast<std::int64_t>(attr.d()) : attr.i());
    default: return is_double ? attr.d() != 0 : attr.i() != 0;
  }
}

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
    ready = make_flat(work, key, device, log_width, large, single);
  Arguments arguments(work);
  arguments.list[arguments.n] = const_cast<std::int64_t*>(&count);
  launch(*ready, (count + ready->per_block - 1) / ready->per_block, stream, arguments.list);
}

}  // namespace brrr::on_cuda
