// Random draws. ops/jit/philox.inl defines the numbers.
#include <algorithm>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

void draw(const Draw* loops_by_type, const Call& call, const Tensor& given) {
  const Tensor out = given.is_contiguous() ? given : make_tensor(given.dtype(), given.shape(), cpu);
  const Draw loop = loops_by_type[static_cast<int>(out.dtype())];
  const i64* state = call.input(0).data<i64>();
  const DrawKey key{static_cast<std::uint64_t>(state[0]), static_cast<std::uint64_t>(state[1]),
                    static_cast<std::uint32_t>(call.attrs[0].i() + state[2])};
  const DType drawn = out.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Convert convert = loops->convert[static_cast<int>(drawn)][static_cast<int>(out.dtype())];
  const i64 width = drawn == DType::f64 ? 2 : 4, n = out.numel();
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

}  // namespace

void uniform(const Call& call, Tensor* outputs) { draw(loops->uniform, call, outputs[0]); }
void normal(const Call& call, Tensor* outputs) { draw(loops->normal, call, outputs[0]); }

}  // namespace brrr::on_cpu
