// Walks over tensors of any layout, broadcast to one shape, a tile at a time: what stands between a
// kernel's contiguous loops and the strides of its operands. A tile is a stretch of at most kTile
// elements in the order of the output; an operand that is not contiguous there is gathered into a
// buffer that stays in the first cache.
#pragma once

#include <cstdint>
#include <span>

#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>
#include <brrr/tensor/tensor.h>

namespace brrr::on_cpu {

using i64 = std::int64_t;

inline constexpr int kMaxOperands = 8;
inline constexpr i64 kTile = 1024;
inline constexpr i64 kTileBytes = kTile * 8;
// Work below this many elements is not worth a second thread.
inline constexpr i64 kGrain = 32768;

// A place in memory and how far apart, in elements, its neighbours are along each dimension of a
// Space.
struct View {
  char* data = nullptr;
  DType dtype = DType::f32;
  i64 strides[kMaxDims];

  i64 size() const { return static_cast<i64>(size_of(dtype)); }
};

// The output's shape, the output (view 0) and the operands, with as few dimensions as their strides
// allow.
struct Space {
  int rank = 0;
  int n_views = 0;
  i64 numel = 1;
  i64 dims[kMaxDims];
  View views[kMaxOperands + 1];

  explicit Space(std::span<const i64> shape);
  // Aligned at the right; sizes of 1 are broadcast. A view that is nobody's gets null for data.
  void add(void* data, DType dtype, std::span<const i64> shape, std::span<const i64> strides);
  void add(const Tensor& tensor) {
    add(tensor.data(), tensor.dtype(), tensor.shape(), tensor.strides());
  }
  // Drops dimensions of size 1, orders the rest by the output's strides, joins neighbours that are
  // contiguous in every view. Leaves at least one dimension.
  void simplify();
  // Whether a view is contiguous over all of the space.
  bool linear(const View& view) const;

  i64 inner() const { return dims[rank - 1]; }
};

// How a space is cut: long rows into tiles of their own, short rows several to a tile.
struct Tiling {
  i64 length;        // most elements in a tile
  i64 tiles_in_row;  // long rows: 1 or more; short rows: 0
  i64 rows_in_tile;  // short rows: 1 or more
  i64 rows;
  i64 tiles;

  Tiling(const Space& space, i64 length);
  bool long_rows() const { return tiles_in_row > 0; }
};

struct Tile {
  i64 coords[kMaxDims];  // of its first row
  i64 first;             // its place in the output's order
  i64 column;            // long rows only
  i64 rows;
  i64 count;

  Tile(const Space& space, const Tiling& tiling, i64 number);
  // Where a view's first element of this tile is.
  char* start(const Space& space, const View& view) const {
    i64 offset = column * view.strides[space.rank - 1];
    for (int d = 0; d + 1 < space.rank; ++d) offset += coords[d] * view.strides[d];
    return view.data + offset * view.size();
  }
};

// Whether a tile of this view can be used where it lies.
bool direct(const Space& space, const Tiling& tiling, const View& view);

// Between a tile of a view and contiguous memory; types stay as they are.
void gather(void* to, const Space& space, const View& view, const Tile& tile);
void scatter(const Space& space, const View& view, const Tile& tile, const void* from);
// n elements of `size` bytes that are `stride` elements apart.
void gather_strided(void* to, const void* from, i64 size, i64 n, i64 stride);

// Writes view 1 to view 0, converting where types differ: the body of every copy.
void copy_space(Space& space);
// Makes a large view that lies across the space, as a transpose does, contiguous in it: elements
// read far apart, one cache line each, cost far more than a copy made in squares. `memory` keeps
// the copy.
void straighten(const Space& space, View& view, Tensor& memory);
// A copy between tensors; `from` broadcasts to `to`.
void copy_tensor(const Tensor& to, const Tensor& from);
// `tensor` itself when it is contiguous and of that type, else a fresh copy that is.
Tensor contiguous_as(const Tensor& tensor, DType dtype);

// A number as one element of a type: `value` is a double's bits when `floating`, else an integer.
struct Element {
  alignas(8) unsigned char bytes[8];
};
Element element_of(DType dtype, i64 value, bool floating);
// n copies of an element of that many bytes.
void fill_elements(void* to, const Element& element, i64 size, i64 n);

}  // namespace brrr::on_cpu
