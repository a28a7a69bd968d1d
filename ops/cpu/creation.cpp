// Kernels that fill memory: constants, progressions, triangles.
#include <algorithm>
#include <cstring>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/unslice.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {

void empty(const Call&, Tensor*) {}

void full(const Call& call, Tensor* outputs) {
  const Tensor& out = outputs[0];
  const Element value = element_of(out.dtype(), call.attrs[0].bits, is_floating(call.dtype));
  const i64 size = static_cast<i64>(size_of(out.dtype()));
  if (out.is_contiguous()) {
    char* data = static_cast<char*>(out.data());
    parallel_for(out.numel(), 8 * kGrain / size, [&](i64 begin, i64 end) {
      fill_elements(data + begin * size, value, size, end - begin);
    });
    return;
  }
  TensorSpace space(out.shape());
  space.add(out);
  space.add(const_cast<unsigned char*>(value.bytes), out.dtype(), {}, {});
  copy_space(space);
}

void arange(const Call& call, Tensor* outputs) {
  const Tensor& out = outputs[0];
  const bool floating = is_floating(call.dtype);
  const Attr start = call.attrs[0], step = call.attrs[1];
  const Convert convert = loops->convert[static_cast<int>(floating ? DType::f64 : DType::i64)]
                                        [static_cast<int>(out.dtype())];
  const i64 size = static_cast<i64>(size_of(out.dtype()));
  char* data = static_cast<char*>(out.data());
  parallel_for(out.numel(), kGrain, [&](i64 begin, i64 end) {
    union {
      double d[kTile];
      i64 i[kTile];
    } values;
    for (i64 first = begin; first < end; first += kTile) {
      const i64 n = std::min(kTile, end - first);
      for (i64 j = 0; j < n; ++j) {
        if (floating) {
          values.d[j] = start.d() + static_cast<double>(first + j) * step.d();
        } else {
          values.i[j] = static_cast<i64>(static_cast<std::uint64_t>(start.i()) +
                                         static_cast<std::uint64_t>(first + j) *
                                             static_cast<std::uint64_t>(step.i()));
        }
      }
      convert(data + first * size, &values, n);
    }
  });
}

void unslice(const Call& call, Tensor* outputs) { unslice_by(full, copy, call, outputs[0]); }

void triangle(const Call& call, Tensor* outputs) {
  const Tensor& out = outputs[0];
  const i64 diagonal = call.attrs[0].i();
  const bool upper = call.attrs[1].i();
  const Tensor target = out.is_contiguous() ? out : make_tensor(out.dtype(), out.shape(), cpu);
  copy_tensor(target, call.input(0));
  if (out.numel() == 0) return;
  const i64 rows = out.size(-2), columns = out.size(-1),
            size = static_cast<i64>(size_of(out.dtype()));
  char* data = static_cast<char*>(target.data());
  parallel_for(out.numel() / columns, std::max<i64>(1, kGrain / columns), [&](i64 begin, i64 end) {
    for (i64 r = begin; r < end; ++r) {
      const i64 edge = std::clamp<i64>(r % rows + diagonal + (upper ? 0 : 1), 0, columns);
      const i64 first = upper ? 0 : edge, last = upper ? edge : columns;
      std::memset(data + (r * columns + first) * size, 0,
                  static_cast<std::size_t>((last - first) * size));
    }
  });
  if (TensorImpl::of(target) != TensorImpl::of(out)) copy_tensor(out, target);
}

}  // namespace brrr::on_cpu
