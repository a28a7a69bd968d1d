// Random draws. ops/jit/philox.inl defines the numbers.
#include <algorithm>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

// `width`: elements of a block, of the type `drawn`, which the output's dtype rounds.
void draw(Draw loop, i64 width, DType drawn, std::uint32_t threshold, const Call& call,
          const Tensor& given) {
  const Tensor out = given.is_contiguous() ? given : make_tensor(given.dtype(), given.shape(), cpu);
  const i64* state = call.input(0).data<i64>();
  const DrawKey key{static_cast<std::uint64_t>(state[0]), static_cast<std::uint64_t>(state[1]),
                    static_cast<std::uint32_t>(call.attrs[0].i() + state[2]), threshold};
  const Convert convert = loops->convert[static_cast<int>(drawn)][static_cast<int>(out.dtype())];
  const i64 n = out.numel();
  const i64 size = static_cast<i64>(size_of(out.dtype()));
  char* data = static_cast<char*>(out.data());
  parallel_for((n + width - 1) / width, kTile * 2 / width, [&](i64 begin, i64 end) {
    alignas(64) char memory[kTileBytes];
    while (begin < end) {
      // Whole blocks of the type drawn go straight to the output.
      const bool straight = drawn == out.dtype() && (begin + 1) * width <= n;
      const i64 blocks =
          straight ? std::min(end, n / width) - begin : std::min(end - begin, kTile / width);
      void* to = straight ? data + begin * width * size : memory;
      loop(to, key, begin, blocks);
      if (!straight) {
        const i64 first = begin * width;
        convert(data + first * size, memory, std::min(blocks * width, n - first));
      }
      begin += blocks;
    }
  });
  if (TensorImpl::of(out) != TensorImpl::of(given)) copy_tensor(given, out);
}

void draw(const Draw* loops_by_type, const Call& call, const Tensor& out) {
  const bool wide = out.dtype() == DType::f64;
  draw(loops_by_type[static_cast<int>(out.dtype())], wide ? 2 : 4, wide ? DType::f64 : DType::f32,
       0, call, out);
}

}  // namespace

void uniform(const Call& call, Tensor* outputs) { draw(loops->uniform, call, outputs[0]); }
void normal(const Call& call, Tensor* outputs) { draw(loops->normal, call, outputs[0]); }
void bernoulli(const Call& call, Tensor* outputs) {
  draw(loops->bernoulli, 8, DType::boolean, static_cast<std::uint32_t>(call.attrs[1].i()), call,
       outputs[0]);
}

}  // namespace brrr::on_cpu
