// Kernels that read or add at places named by an index: gather, index_select, scatter_add. Every
// index is checked before anything is written.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/out_of_range.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

// An index over [outer, n, inner], i64. A side that the index is expanded along is not stored: its
// stride is 0.
struct Index {
  Tensor stored;
  const i64* data = nullptr;
  i64 outer = 1, n = 1, inner = 1;
  i64 outer_stride = 0, n_stride = 0, inner_stride = 0;

  Index(const Tensor& given, int dim) {
    Dims shape(given.shape()), strides(given.strides());
    bool expanded[3] = {true, true, true};  // outer, dim, inner
    for (int d = 0; d < given.rank(); ++d) {
      (d < dim ? outer : d == dim ? n : inner) *= shape[d];
      expanded[d < dim ? 0 : d == dim ? 1 : 2] &= shape[d] == 1 || strides[d] == 0;
    }
    if (given.numel() == 0) return;
    for (int d = 0; d < given.rank(); ++d) {
      if (expanded[d < dim ? 0 : d == dim ? 1 : 2]) shape[d] = 1;
    }
    stored = contiguous_as(make_view(given, shape, strides), DType::i64);
    data = stored.data<i64>();
    inner_stride = expanded[2] ? 0 : 1;
    n_stride = expanded[1] ? 0 : expanded[2] ? 1 : inner;
    outer_stride = expanded[0] ? 0 : (expanded[1] ? 1 : n) * (expanded[2] ? 1 : inner);
  }

  i64 at(i64 o, i64 i, i64 j) const {
    return data[o * outer_stride + i * n_stride + j * inner_stride];
  }

  void check(const char* op, i64 size) const {
    if (!data) return;
    std::atomic<bool> bad{false};
    parallel_for(stored.numel(), kGrain, [&](i64 begin, i64 end) {
      std::uint64_t most = 0;  // a negative index is larger than any size
      for (i64 i = begin; i < end; ++i) most = std::max(most, static_cast<std::uint64_t>(data[i]));
      if (most >= static_cast<std::uint64_t>(size)) bad.store(true, std::memory_order_relaxed);
    });
    if (!bad.load()) return;
    for (i64 position = 0;; ++position) {
      const i64 value = at(position / (n * inner), position / inner % n, position % inner);
      if (value < 0 || value >= size) index_out_of_range(op, size, value, position);
    }
  }
};

// Offsets, in elements, of the tensor that is indexed: outer[o] + index * stride + inner[j].
struct Places {
  Tensor outer_memory, inner_memory;
  const i64 *outer, *inner;
  i64 stride;
  bool inner_contiguous;

  Places(const Tensor& tensor, int dim, const Dims& shape)
      : stride(tensor.rank() == 0 ? 0 : tensor.stride(dim)) {
    const StridedSpace of_outer = space_of_dims(shape, tensor.strides(), 0, dim),
                       of_inner = space_of_dims(shape, tensor.strides(), dim + 1, shape.size());
    outer_memory = offsets(of_outer);
    inner_memory = offsets(of_inner);
    outer = outer_memory.data<i64>();
    inner = inner_memory.data<i64>();
    inner_contiguous = is_contiguous(of_inner, 0);
  }

  static Tensor offsets(const StridedSpace& space) {
    const Tensor result = make_tensor(DType::i64, Dims{space.count()}, cpu);
    if (result.numel() == 0) return result;
    i64* to = result.data<i64>();
    each_run(space, 0, Coordinates(), result.numel(), [&](i64 done, i64 n, i64 offset) {
      for (i64 i = 0; i < n; ++i) to[done + i] = offset + i * space.inner_stride(0);
    });
    return result;
  }
};

template <class W>
void pick(W* to, const W* from, const Index& index, const Places& places) {
  const bool rows = index.inner_stride == 0 && places.inner_contiguous;
  const auto row_bytes = static_cast<std::size_t>(index.inner) * sizeof(W);
  parallel_for(index.outer * index.n, std::max<i64>(1, kGrain / index.inner),
               [&](i64 begin, i64 end) {
                 for (i64 r = begin; r < end; ++r) {
                   const i64 o = r / index.n, i = r - o * index.n;
                   const W* base = from + places.outer[o];
                   W* out = to + r * index.inner;
                   if (rows) {
                     const W* row = base + index.at(o, i, 0) * places.stride;
                     if (index.inner == 1) {
                       out->bits = row->bits;
                     } else {
                       std::memcpy(out, row, row_bytes);
                     }
                     continue;
                   }
                   for (i64 j = 0; j < index.inner; ++j)
                     out[j].bits = base[index.at(o, i, j) * places.stride + places.inner[j]].bits;
                 }
               });
}

void pick_into(const Tensor& out, const Tensor& from, const Index& index, const Places& places) {
  if (out.numel() == 0) return;
  visit_word(static_cast<i64>(size_of(out.dtype())), [&](auto* word) {
    using W = std::remove_pointer_t<decltype(word)>;
    pick(static_cast<W*>(out.data()), static_cast<const W*>(from.data()), index, places);
  });
}

template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

// Adds along the indexed dimension in order for every element; what is split among threads is the
// other two.
template <class T>
void add_at(T* to, const T* from, const Index& index, const Places& places) {
  const i64 width = std::min<i64>(index.inner, 512), tiles = (index.inner - 1) / width + 1;
  parallel_for(index.outer * tiles, std::max<i64>(1, kGrain / (index.n * width)),
               [&](i64 begin, i64 end) {
                 for (i64 t = begin; t < end; ++t) {
                   const i64 o = t / tiles, first = t % tiles * width,
                             last = std::min(first + width, index.inner);
                   T* base = to + places.outer[o];
                   for (i64 i = 0; i < index.n; ++i) {
                     const T* in = from + (o * index.n + i) * index.inner;
                     if (index.inner_stride == 0 && places.inner_contiguous) {
                       T* row = base + index.at(o, i, 0) * places.stride;
                       for (i64 j = first; j < last; ++j) row[j] = sum_of(row[j], in[j]);
                       continue;
                     }
                     for (i64 j = first; j < last; ++j) {
                       T& element = base[index.at(o, i, j) * places.stride + places.inner[j]];
                       element = sum_of(element, in[j]);
                     }
                   }
                 }
               });
}

// A tensor of no dimensions is indexed like one of a single element.
i64 size_along(const Tensor& tensor, int dim) { return tensor.rank() == 0 ? 1 : tensor.size(dim); }

}  // namespace

void gather(const Call& call, Tensor* outputs) {
  const int dim = static_cast<int>(call.attrs[0].i());
  const Tensor& x = call.input(0);
  const Index index(call.input(1), dim);
  index.check(op_info(call.op).name, size_along(x, dim));
  pick_into(outputs[0], x, index, Places(x, dim, Dims(call.input(1).shape())));
}

void index_select(const Call& call, Tensor* outputs) {
  const int dim = static_cast<int>(call.attrs[0].i());
  const Tensor& x = call.input(0);
  Index index(call.input(1), 0);
  index.check(op_info(call.op).name, size_along(x, dim));
  for (int d = 0; d < x.rank(); ++d) {
    if (d != dim) (d < dim ? index.outer : index.inner) *= x.size(d);
  }
  pick_into(outputs[0], x, index, Places(x, dim, Dims(x.shape())));
}

void scatter_add(const Call& call, Tensor* outputs) {
  const int dim = static_cast<int>(call.attrs[0].i());
  const Tensor &base = call.input(0), &source = call.input(2), &out = outputs[0];
  const Index index(call.input(1), dim);
  index.check(op_info(call.op).name, size_along(base, dim));
  const DType type = is_half(out.dtype()) ? DType::f32 : out.dtype();
  const bool straight = out.dtype() == type;
  const Tensor to = straight ? out : make_tensor(type, out.shape(), cpu);
  if (!to.same_view_as(base)) copy_tensor(to, base);
  if (call.input(1).numel() > 0) {
    const Tensor from =
        contiguous_as(make_view(source, call.input(1).shape(), source.strides()), type);
    const Places places(to, dim, Dims(call.input(1).shape()));
    visit_dtype(type, [&](auto t) {
      if constexpr (!std::is_class_v<decltype(t)>)
        add_at(to.data<decltype(t)>(), from.data<decltype(t)>(), index, places);
    });
  }
  if (!straight) copy_tensor(out, to);
}

}  // namespace brrr::on_cpu
