// Copies: between layouts, between types, transposes, and joining along a dimension.
#include <algorithm>
#include <cstring>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

void copy_linear(const TensorSpace& space) {
  char *const to = space.data[0], *const from = space.data[1];
  if (to == from) return;
  const i64 size = space.element_size(0);
  parallel_for(space.count(), 8 * kGrain / size, [&](i64 begin, i64 end) {
    std::memcpy(to + begin * size, from + begin * size,
                static_cast<std::size_t>((end - begin) * size));
  });
}

// One block of a transpose: rows of `to` are columns of `from`. A block reads short runs of many
// rows and writes long runs of few, since writes stall longer. It goes through a buffer in the L1
// cache, so that cache lines are read and written whole, whatever the strides; the buffer's rows
// are padded, because rows of a power of two share a cache set.
constexpr i64 kBlockColumns = 128;
template <class W>
constexpr i64 kBlockRows = 128 / sizeof(W);

template <class W>
void transpose_block(W* to, i64 to_stride, const W* from, i64 from_stride, i64 rows, i64 columns) {
  constexpr i64 kPadded = kBlockRows<W> + 4;
  W block[kBlockColumns * kPadded];
  if (rows == kBlockRows<W>) {
    for (i64 c = 0; c < columns; ++c) std::memcpy(block + c * kPadded, from + c * from_stride, 128);
  } else {
    for (i64 c = 0; c < columns; ++c) {
      for (i64 r = 0; r < rows; ++r) block[c * kPadded + r].bits = from[c * from_stride + r].bits;
    }
  }
  i64 r = 0;
  for (; r + 4 <= rows; r += 4) {
    W* out = to + r * to_stride;
    for (i64 c = 0; c < columns; ++c) {
      const W* in = block + c * kPadded + r;
      out[c].bits = in[0].bits;
      out[to_stride + c].bits = in[1].bits;
      out[2 * to_stride + c].bits = in[2].bits;
      out[3 * to_stride + c].bits = in[3].bits;
    }
  }
  for (; r < rows; ++r) {
    for (i64 c = 0; c < columns; ++c) to[r * to_stride + c].bits = block[c * kPadded + r].bits;
  }
}

// The source has neighbours along the dimension before the innermost, the target along the
// innermost: both move a block at a time.
template <class W>
void transpose(const TensorSpace& space) {
  const int last = space.rank - 1;
  const i64 rows = space.size[last - 1], columns = space.size[last];
  const i64 to_row = space.stride[0][last - 1], from_column = space.stride[1][last];
  const i64 row_blocks = (rows - 1) / kBlockRows<W> + 1,
            column_blocks = (columns - 1) / kBlockColumns + 1;
  const i64 planes = space.count() / (rows * columns);
  parallel_for(planes * row_blocks * column_blocks, 8, [&](i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
      const i64 c = t % column_blocks * kBlockColumns,
                r = t / column_blocks % row_blocks * kBlockRows<W>;
      const i64 plane = t / column_blocks / row_blocks;
      const Coordinates place(space, (plane * rows + r) * columns + c);
      transpose_block(reinterpret_cast<W*>(space.data[0]) + place.offset(space, 0), to_row,
                      reinterpret_cast<const W*>(space.data[1]) + place.offset(space, 1),
                      from_column, std::min(rows - r, kBlockRows<W>),
                      std::min(columns - c, kBlockColumns));
    }
  });
}

// The dimension along which the source is contiguous while the target is along the last; -1 if it
// is no transpose.
int transposed_dim(const TensorSpace& space) {
  const int last = space.rank - 1;
  if (space.stride[0][last] != 1 || space.stride[1][last] < 4 || space.size[last] < 4) return -1;
  for (int d = 0; d < last; ++d) {
    if (space.stride[1][d] == 1 && space.size[d] >= 4) return d;
  }
  return -1;
}

void copy_tiles(const TensorSpace& space) {
  const DType to = space.dtype[0], from = space.dtype[1];
  const bool converts = to != from;
  const Convert convert = loops->convert[static_cast<int>(from)][static_cast<int>(to)];
  const Tiling tiling(space, kTile);
  const bool to_direct = direct(space, tiling, 0), from_direct = direct(space, tiling, 1);
  const i64 grain = kGrain / tiling.length;
  parallel_for(tiling.tiles, grain < 1 ? 1 : grain, [&](i64 begin, i64 end) {
    alignas(64) char first[kTileBytes], second[kTileBytes];
    for (i64 t = begin; t < end; ++t) {
      const Tile tile(space, tiling, t);
      char* target = tile.start(space, 0);
      const void* content = tile.start(space, 1);
      if (!from_direct) {
        void* gathered = to_direct && !converts ? target : first;
        gather(gathered, space, 1, tile);
        content = gathered;
      }
      if (converts) {
        void* converted = to_direct ? target : second;
        convert(converted, content, tile.count);
        content = converted;
      }
      if (!to_direct) {
        scatter(space, 0, tile, content);
      } else if (content != target) {
        std::memcpy(target, content, static_cast<std::size_t>(tile.count * space.element_size(0)));
      }
    }
  });
}

}  // namespace

void copy_space(TensorSpace& space) {
  if (space.count() == 0) return;
  sort_dims(space);
  coalesce(space);
  if (space.dtype[0] == space.dtype[1]) {
    if (is_contiguous(space, 0) && is_contiguous(space, 1)) return copy_linear(space);
    if (const int across = transposed_dim(space); across >= 0) {
      move_dim(space, across, space.rank - 2);
      return visit_word(space.element_size(0), [&](auto* word) {
        transpose<std::remove_pointer_t<decltype(word)>>(space);
      });
    }
  }
  copy_tiles(space);
}

void straighten(TensorSpace& space, int operand, Tensor& memory) {
  if (space.inner_stride(operand) < 4 || space.count() < kGrain) return;
  i64* const row = space.stride[operand];
  bool across = false;
  Dims shape, strides;
  for (int d = 0; d < space.rank; ++d) {
    across |= row[d] == 1 && space.size[d] >= 4;
    shape.push_back(row[d] == 0 ? 1 : space.size[d]);
    strides.push_back(row[d]);
  }
  if (!across) return;
  memory = make_tensor(space.dtype[operand], shape, cpu);
  TensorSpace copied(shape);
  copied.add(memory);
  copied.add(space.data[operand], space.dtype[operand], shape, strides);
  copy_space(copied);
  space.data[operand] = static_cast<char*>(memory.data());
  for (int d = 0; d < space.rank; ++d) row[d] = shape[d] == 1 ? 0 : memory.strides()[d];
}

void copy_tensor(const Tensor& to, const Tensor& from) {
  TensorSpace space(to.shape());
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
  const i64 stride = out.strides()[dim];
  i64 start = 0;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    const Tensor& part = call.input(static_cast<int>(i));
    if (part.numel() > 0) {
      TensorSpace space(part.shape());
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
