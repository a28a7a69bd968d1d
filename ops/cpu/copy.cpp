// Copies: between layouts, between types, transposes, and joining along a dimension.
#include <algorithm>
#include <cstring>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/tensor_impl.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

using U8 [[gnu::may_alias]] = std::uint8_t;
using U16 [[gnu::may_alias]] = std::uint16_t;
using U32 [[gnu::may_alias]] = std::uint32_t;
using U64 [[gnu::may_alias]] = std::uint64_t;

void copy_linear(const Space& space) {
  const View &to = space.views[0], &from = space.views[1];
  if (to.data == from.data) return;
  const i64 size = to.size();
  parallel_for(space.numel, 8 * kGrain / size, [&](i64 begin, i64 end) {
    std::memcpy(to.data + begin * size, from.data + begin * size,
                static_cast<std::size_t>((end - begin) * size));
  });
}

// One block of a transpose: rows of `to` are columns of `from`. A block reads a stretch of each of
// many rows and writes long stretches of few: writing is what waits longer. It goes through a
// buffer in the first cache, so that lines are read and written whole, whatever the strides; powers
// of two would fight for one cache set.
constexpr i64 kBlockColumns = 128;
template <class U>
constexpr i64 kBlockRows = 128 / sizeof(U);

template <class U>
void transpose_block(U* to, i64 to_stride, const U* from, i64 from_stride, i64 rows, i64 columns) {
  constexpr i64 kPadded = kBlockRows<U> + 4;
  U block[kBlockColumns * kPadded];
  if (rows == kBlockRows<U>) {
    for (i64 c = 0; c < columns; ++c) std::memcpy(block + c * kPadded, from + c * from_stride, 128);
  } else {
    for (i64 c = 0; c < columns; ++c) {
      for (i64 r = 0; r < rows; ++r) block[c * kPadded + r] = from[c * from_stride + r];
    }
  }
  i64 r = 0;
  for (; r + 4 <= rows; r += 4) {
    U* out = to + r * to_stride;
    for (i64 c = 0; c < columns; ++c) {
      const U* in = block + c * kPadded + r;
      out[c] = in[0];
      out[to_stride + c] = in[1];
      out[2 * to_stride + c] = in[2];
      out[3 * to_stride + c] = in[3];
    }
  }
  for (; r < rows; ++r) {
    for (i64 c = 0; c < columns; ++c) to[r * to_stride + c] = block[c * kPadded + r];
  }
}

// `from` has neighbours along dimension `across`, `to` along the innermost: both move a block at a
// time.
template <class U>
void transpose(const Space& space, int across) {
  const View &to = space.views[0], &from = space.views[1];
  const int last = space.rank - 1;
  const i64 rows = space.dims[across], columns = space.dims[last];
  const i64 row_blocks = (rows - 1) / kBlockRows<U> + 1,
            column_blocks = (columns - 1) / kBlockColumns + 1;
  const i64 planes = space.numel / (rows * columns);
  parallel_for(planes * row_blocks * column_blocks, 8, [&](i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
      const i64 c = t % column_blocks * kBlockColumns,
                r = t / column_blocks % row_blocks * kBlockRows<U>;
      i64 plane = t / column_blocks / row_blocks;
      i64 to_offset = r * to.strides[across] + c, from_offset = r + c * from.strides[last];
      for (int d = last - 1; d >= 0; --d) {
        if (d == across) continue;
        const i64 at = plane % space.dims[d];
        plane /= space.dims[d];
        to_offset += at * to.strides[d];
        from_offset += at * from.strides[d];
      }
      transpose_block(reinterpret_cast<U*>(to.data) + to_offset, to.strides[across],
                      reinterpret_cast<const U*>(from.data) + from_offset, from.strides[last],
                      std::min(rows - r, kBlockRows<U>), std::min(columns - c, kBlockColumns));
    }
  });
}

// The dimension along which the source is contiguous while the target is along the last; -1 if it
// is no transpose.
int transposed_dim(const Space& space) {
  const View &to = space.views[0], &from = space.views[1];
  const int last = space.rank - 1;
  if (to.strides[last] != 1 || from.strides[last] < 4 || space.inner() < 4) return -1;
  for (int d = 0; d < last; ++d) {
    if (from.strides[d] == 1 && space.dims[d] >= 4) return d;
  }
  return -1;
}

void copy_tiles(const Space& space) {
  const View &to = space.views[0], &from = space.views[1];
  const bool converts = to.dtype != from.dtype;
  const Convert convert = loops->convert[static_cast<int>(from.dtype)][static_cast<int>(to.dtype)];
  const Tiling tiling(space, kTile);
  const bool to_direct = direct(space, tiling, to), from_direct = direct(space, tiling, from);
  const i64 grain = kGrain / tiling.length;
  parallel_for(tiling.tiles, grain < 1 ? 1 : grain, [&](i64 begin, i64 end) {
    alignas(64) char first[kTileBytes], second[kTileBytes];
    for (i64 t = begin; t < end; ++t) {
      const Tile tile(space, tiling, t);
      char* target = tile.start(space, to);
      const void* content = tile.start(space, from);
      if (!from_direct) {
        void* gathered = to_direct && !converts ? target : first;
        gather(gathered, space, from, tile);
        content = gathered;
      }
      if (converts) {
        void* converted = to_direct ? target : second;
        convert(converted, content, tile.count);
        content = converted;
      }
      if (!to_direct) {
        scatter(space, to, tile, content);
      } else if (content != target) {
        std::memcpy(target, content, static_cast<std::size_t>(tile.count * to.size()));
      }
    }
  });
}

}  // namespace

void copy_space(Space& space) {
  if (space.numel == 0) return;
  space.simplify();
  const View &to = space.views[0], &from = space.views[1];
  if (to.dtype == from.dtype) {
    if (space.linear(to) && space.linear(from)) return copy_linear(space);
    if (const int across = transposed_dim(space); across >= 0) {
      switch (to.size()) {
        case 1: return transpose<U8>(space, across);
        case 2: return transpose<U16>(space, across);
        case 4: return transpose<U32>(space, across);
        default: return transpose<U64>(space, across);
      }
    }
  }
  copy_tiles(space);
}

void straighten(const Space& space, View& view, Tensor& memory) {
  if (space.numel < kGrain || view.strides[space.rank - 1] < 4) return;
  bool across = false;
  Dims shape, strides;
  for (int d = 0; d < space.rank; ++d) {
    across |= view.strides[d] == 1 && space.dims[d] >= 4;
    shape.push_back(view.strides[d] == 0 ? 1 : space.dims[d]);
    strides.push_back(view.strides[d]);
  }
  if (!across) return;
  memory = make_tensor(view.dtype, shape, cpu);
  Space copied(shape);
  copied.add(memory);
  copied.add(view.data, view.dtype, shape, strides);
  copy_space(copied);
  view.data = static_cast<char*>(memory.data());
  for (int d = 0; d < space.rank; ++d) {
    view.strides[d] = shape[d] == 1 ? 0 : memory.strides()[static_cast<std::size_t>(d)];
  }
}

void copy_tensor(const Tensor& to, const Tensor& from) {
  Space space(to.shape());
  space.add(to);
  space.add(from);
  copy_space(space);
}

Tensor contiguous_as(const Tensor& tensor, DType dtype) {
  if (tensor.is_contiguous() && tensor.dtype() == dtype) return tensor;
  Tensor result = make_tensor(dtype, tensor.shape(), tensor.device());
  copy_tensor(result, tensor);
  return result;
}

void copy(const Call& call, Tensor* outputs) { copy_tensor(outputs[0], call.input(0)); }
void cast(const Call& call, Tensor* outputs) { copy_tensor(outputs[0], call.input(0)); }

void cat(const Call& call, Tensor* outputs) {
  const Tensor& out = outputs[0];
  const int dim = static_cast<int>(call.attrs[0].i());
  const i64 stride = out.strides()[static_cast<std::size_t>(dim)];
  i64 start = 0;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    const Tensor& part = call.input(static_cast<int>(i));
    if (part.numel() > 0) {
      Space space(part.shape());
      char* place =
          static_cast<char*>(out.data()) + start * stride * static_cast<i64>(size_of(out.dtype()));
      space.add(place, out.dtype(), part.shape(), out.strides());
      space.add(part);
      copy_space(space);
    }
    start += part.size(dim);
  }
}

}  // namespace brrr::on_cpu
