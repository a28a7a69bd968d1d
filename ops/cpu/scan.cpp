// Running sums along a dimension: in f64 for floating types, in i64 for the others.
#include <algorithm>
#include <type_traits>

#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

constexpr i64 kColumns = 256;

// Contiguous lines, four at a time, for four independent chains of additions.
template <class T, class Sum>
void sums_of_lines(T* to, const T* from, i64 lines, i64 n) {
  parallel_for(lines, std::max<i64>(1, kGrain / n), [&](i64 begin, i64 end) {
    i64 line = begin;
    for (; line + 4 <= end; line += 4) {
      const T* in = from + line * n;
      T* out = to + line * n;
      Sum a{}, b{}, c{}, d{};
      for (i64 i = 0; i < n; ++i) {
        out[i] = static_cast<T>(a += static_cast<Sum>(in[i]));
        out[n + i] = static_cast<T>(b += static_cast<Sum>(in[n + i]));
        out[2 * n + i] = static_cast<T>(c += static_cast<Sum>(in[2 * n + i]));
        out[3 * n + i] = static_cast<T>(d += static_cast<Sum>(in[3 * n + i]));
      }
    }
    for (; line < end; ++line) {
      Sum sum{};
      for (i64 i = 0; i < n; ++i)
        to[line * n + i] = static_cast<T>(sum += static_cast<Sum>(from[line * n + i]));
    }
  });
}

// Lines along a strided dimension: a row of sums is updated row by row.
template <class T, class Sum>
void sums_down_rows(T* to, const T* from, i64 outer, i64 n, i64 inner) {
  const i64 width = std::min(inner, kColumns), tiles = (inner - 1) / width + 1;
  parallel_for(outer * tiles, std::max<i64>(1, kGrain / (n * width)), [&](i64 begin, i64 end) {
    Sum sums[kColumns];
    for (i64 t = begin; t < end; ++t) {
      const i64 first = t % tiles * width, start = t / tiles * n * inner + first;
      const i64 columns = std::min(width, inner - first);
      std::fill(sums, sums + columns, Sum(0));
      for (i64 i = 0; i < n; ++i) {
        const T* in = from + start + i * inner;
        T* out = to + start + i * inner;
        for (i64 c = 0; c < columns; ++c) {
          sums[c] += static_cast<Sum>(in[c]);
          out[c] = static_cast<T>(sums[c]);
        }
      }
    }
  });
}

}  // namespace

void cumsum(const Call& call, Tensor* outputs) {
  const Tensor& out = outputs[0];
  if (out.numel() == 0) return;
  const int dim = static_cast<int>(call.attrs[0].i());
  const DType type = is_half(out.dtype()) ? DType::f32 : out.dtype();
  const Tensor in = contiguous_as(call.input(0), type);
  const auto [outer, n, inner] = AroundDim(in.shape(), dim);
  write_contiguous(out, type, [&, outer = outer, n = n, inner = inner](const Tensor& to) {
    visit_dtype(type, [&](auto t) {
      using T = decltype(t);
      if constexpr (!std::is_class_v<T>) {
        using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
        if (inner == 1) {
          sums_of_lines<T, Sum>(to.data<T>(), in.data<T>(), outer, n);
        } else {
          sums_down_rows<T, Sum>(to.data<T>(), in.data<T>(), outer, n, inner);
        }
      }
    });
  });
}

}  // namespace brrr::on_cpu
