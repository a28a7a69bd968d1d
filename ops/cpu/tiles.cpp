#include "brrr/ops/cpu/tiles.h"

#include <bit>
#include <cstdlib>
#include <cstring>

#include "brrr/ops/cpu/loops.h"

namespace brrr::on_cpu {

Space::Space(std::span<const i64> shape) : rank(static_cast<int>(shape.size())) {
  for (int d = 0; d < rank; ++d) {
    dims[d] = shape[static_cast<std::size_t>(d)];
    numel *= dims[d];
  }
}

void Space::add(void* data, DType dtype, std::span<const i64> shape, std::span<const i64> strides) {
  View& view = views[n_views++];
  view.data = static_cast<char*>(data);
  view.dtype = dtype;
  const int missing = rank - static_cast<int>(shape.size());
  for (int d = 0; d < rank; ++d) {
    const auto at = static_cast<std::size_t>(d - missing);
    view.strides[d] = d < missing || shape[at] == 1 ? 0 : strides[at];
  }
}

void Space::simplify() {
  const auto move = [&](int to, int from) {
    dims[to] = dims[from];
    for (int v = 0; v < n_views; ++v) views[v].strides[to] = views[v].strides[from];
  };
  int kept = 0;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] != 1) move(kept++, d);
  }
  rank = kept;
  // The order of elements is free, so take the output's: insertion sort by its strides, largest
  // first.
  for (int d = 1; d < rank; ++d) {
    for (int e = d; e > 0 && std::abs(views[0].strides[e - 1]) < std::abs(views[0].strides[e]);
         --e) {
      std::swap(dims[e - 1], dims[e]);
      for (int v = 0; v < n_views; ++v) std::swap(views[v].strides[e - 1], views[v].strides[e]);
    }
  }
  kept = 0;
  for (int d = 0; d < rank; ++d) {
    bool joins = kept > 0;
    for (int v = 0; v < n_views && joins; ++v) {
      joins = views[v].strides[kept - 1] == views[v].strides[d] * dims[d];
    }
    if (!joins) {
      move(kept++, d);
      continue;
    }
    const i64 size = dims[kept - 1] * dims[d];
    move(kept - 1, d);
    dims[kept - 1] = size;
  }
  rank = kept;
  if (rank == 0) {
    rank = 1;
    dims[0] = 1;
    for (int v = 0; v < n_views; ++v) views[v].strides[0] = 1;
  }
}

bool Space::linear(const View& view) const {
  i64 expected = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (view.strides[d] != expected) return false;
    expected *= dims[d];
  }
  return true;
}

Tiling::Tiling(const Space& space, i64 most) : length(most) {
  const i64 inner = space.inner();
  rows = space.numel / inner;
  if (space.rank == 1 || inner >= 256) {
    tiles_in_row = (inner - 1) / length + 1;
    rows_in_tile = 0;
    tiles = rows * tiles_in_row;
  } else {
    tiles_in_row = 0;
    rows_in_tile = kTile / inner;
    length = rows_in_tile * inner;
    tiles = (rows - 1) / rows_in_tile + 1;
  }
}

Tile::Tile(const Space& space, const Tiling& tiling, i64 number) {
  i64 row;
  if (tiling.long_rows()) {
    row = tiling.tiles_in_row == 1 ? number : number / tiling.tiles_in_row;
    column = (number - row * tiling.tiles_in_row) * tiling.length;
    rows = 1;
    const i64 rest = space.inner() - column;
    count = rest < tiling.length ? rest : tiling.length;
    first = row * space.inner() + column;
  } else {
    row = number * tiling.rows_in_tile;
    column = 0;
    const i64 rest = tiling.rows - row;
    rows = rest < tiling.rows_in_tile ? rest : tiling.rows_in_tile;
    count = rows * space.inner();
    first = row * space.inner();
  }
  for (int d = space.rank - 2; d > 0; --d) {
    const i64 above = row / space.dims[d];
    coords[d] = row - above * space.dims[d];
    row = above;
  }
  if (space.rank > 1) coords[0] = row;
}

bool direct(const Space& space, const Tiling& tiling, const View& view) {
  return tiling.long_rows() ? view.strides[space.rank - 1] == 1 : space.linear(view);
}

namespace {

template <class U>
void run_in(U* to, const U* from, i64 n, i64 stride) {
  if (stride == 1) {
    for (i64 i = 0; i < n; ++i) to[i] = from[i];
  } else if (stride == 0) {
    const U value = *from;
    for (i64 i = 0; i < n; ++i) to[i] = value;
  } else {
    for (i64 i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

template <class U>
void run_out(U* to, const U* from, i64 n, i64 stride) {
  for (i64 i = 0; i < n; ++i) to[i * stride] = from[i];
}

// Calls visit(row's start, place in the contiguous order) for each row of the tile.
template <class Visit>
void each_row(const Space& space, const View& view, const Tile& tile, Visit visit) {
  char* row = tile.start(space, view);
  if (tile.rows == 1) return visit(row, i64{0});
  const i64 size = view.size();
  i64 coords[kMaxDims];
  for (int d = 0; d + 1 < space.rank; ++d) coords[d] = tile.coords[d];
  for (i64 r = 0, place = 0; r < tile.rows; ++r, place += space.inner()) {
    visit(row, place);
    for (int d = space.rank - 2; d >= 0; --d) {
      row += view.strides[d] * size;
      if (++coords[d] < space.dims[d]) break;
      row -= view.strides[d] * space.dims[d] * size;
      coords[d] = 0;
    }
  }
}

template <class U>
void gather_as(void* to, const Space& space, const View& view, const Tile& tile) {
  const i64 n = tile.rows == 1 ? tile.count : space.inner();
  const i64 stride = view.strides[space.rank - 1];
  each_row(space, view, tile, [&](const char* row, i64 place) {
    run_in(static_cast<U*>(to) + place, reinterpret_cast<const U*>(row), n, stride);
  });
}

template <class U>
void scatter_as(const Space& space, const View& view, const Tile& tile, const void* from) {
  const i64 n = tile.rows == 1 ? tile.count : space.inner();
  const i64 stride = view.strides[space.rank - 1];
  each_row(space, view, tile, [&](char* row, i64 place) {
    run_out(reinterpret_cast<U*>(row), static_cast<const U*>(from) + place, n, stride);
  });
}

// Elements move as integers of their size; may_alias because the memory holds other types.
using U8 [[gnu::may_alias]] = std::uint8_t;
using U16 [[gnu::may_alias]] = std::uint16_t;
using U32 [[gnu::may_alias]] = std::uint32_t;
using U64 [[gnu::may_alias]] = std::uint64_t;

}  // namespace

void gather(void* to, const Space& space, const View& view, const Tile& tile) {
  switch (view.size()) {
    case 1: return gather_as<U8>(to, space, view, tile);
    case 2: return gather_as<U16>(to, space, view, tile);
    case 4: return gather_as<U32>(to, space, view, tile);
    default: return gather_as<U64>(to, space, view, tile);
  }
}

void scatter(const Space& space, const View& view, const Tile& tile, const void* from) {
  switch (view.size()) {
    case 1: return scatter_as<U8>(space, view, tile, from);
    case 2: return scatter_as<U16>(space, view, tile, from);
    case 4: return scatter_as<U32>(space, view, tile, from);
    default: return scatter_as<U64>(space, view, tile, from);
  }
}

void gather_strided(void* to, const void* from, i64 size, i64 n, i64 stride) {
  switch (size) {
    case 1: return run_in(static_cast<U8*>(to), static_cast<const U8*>(from), n, stride);
    case 2: return run_in(static_cast<U16*>(to), static_cast<const U16*>(from), n, stride);
    case 4: return run_in(static_cast<U32*>(to), static_cast<const U32*>(from), n, stride);
    default: return run_in(static_cast<U64*>(to), static_cast<const U64*>(from), n, stride);
  }
}

Element element_of(DType dtype, i64 value, bool floating) {
  Element element{};
  const DType from = floating ? DType::f64 : DType::i64;
  loops->convert[static_cast<int>(from)][static_cast<int>(dtype)](element.bytes, &value, 1);
  return element;
}

void fill_elements(void* to, const Element& element, i64 size, i64 n) {
  const auto fill = [&](auto* typed) {
    const auto value =
        *reinterpret_cast<const std::remove_pointer_t<decltype(typed)>*>(element.bytes);
    for (i64 i = 0; i < n; ++i) typed[i] = value;
  };
  switch (size) {
    case 1: std::memset(to, element.bytes[0], static_cast<std::size_t>(n)); return;
    case 2: return fill(static_cast<U16*>(to));
    case 4: return fill(static_cast<U32*>(to));
    default: return fill(static_cast<U64*>(to));
  }
}

}  // namespace brrr::on_cpu
