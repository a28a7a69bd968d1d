#include "brrr/ops/cpu/tiles.h"

#include <algorithm>
#include <type_traits>

#include "brrr/ops/cpu/loops.h"

namespace brrr::on_cpu {

Tiling::Tiling(const TensorSpace& space, i64 most) : length(most), numel(space.count()) {
  const i64 inner = space.inner_size();
  if (space.rank == 1 || inner >= 256) {
    tiles_in_row = (inner - 1) / length + 1;
    tiles = numel / inner * tiles_in_row;
  } else {
    tiles_in_row = 0;
    length = kTile / inner * inner;
    tiles = (numel - 1) / length + 1;
  }
}

namespace {

// The number of a tile's first element.
i64 first_of(const TensorSpace& space, const Tiling& tiling, i64 number) {
  if (tiling.tiles_in_row <= 1)
    return number * (tiling.long_rows() ? space.inner_size() : tiling.length);
  const i64 row = number / tiling.tiles_in_row;
  return row * space.inner_size() + (number - row * tiling.tiles_in_row) * tiling.length;
}

}  // namespace

Tile::Tile(const TensorSpace& space, const Tiling& tiling, i64 number)
    : place(space, first_of(space, tiling, number)) {
  const i64 rest = tiling.long_rows() ? place.run(space) : tiling.numel - number * tiling.length;
  count = std::min(rest, tiling.length);
}

void convert(DType to_type, void* to, DType from_type, const void* from, i64 n) {
  loops->convert[static_cast<int>(from_type)][static_cast<int>(to_type)](to, from, n);
}

bool direct(const TensorSpace& space, const Tiling& tiling, int operand) {
  return tiling.long_rows() ? space.inner_stride(operand) == 1 : is_contiguous(space, operand);
}

namespace {

template <class W>
void run_in(W* to, const W* from, i64 n, i64 stride) {
  if (stride == 1) {
    for (i64 i = 0; i < n; ++i) to[i].bits = from[i].bits;
  } else if (stride == 0) {
    const auto value = from->bits;
    for (i64 i = 0; i < n; ++i) to[i].bits = value;
  } else {
    for (i64 i = 0; i < n; ++i) to[i].bits = from[i * stride].bits;
  }
}

}  // namespace

void gather(void* to, const TensorSpace& space, int operand, const Tile& tile) {
  visit_word(space.element_size(operand), [&](auto* word) {
    auto* const target = static_cast<decltype(word)>(to);
    const auto* const from = reinterpret_cast<decltype(word)>(space.data[operand]);
    const i64 stride = space.inner_stride(operand);
    each_run(space, operand, tile.place, tile.count,
             [&](i64 done, i64 n, i64 offset) { run_in(target + done, from + offset, n, stride); });
  });
}

void scatter(const TensorSpace& space, int operand, const Tile& tile, const void* from) {
  visit_word(space.element_size(operand), [&](auto* word) {
    auto* const to = reinterpret_cast<decltype(word)>(space.data[operand]);
    const auto* const source =
        static_cast<std::add_const_t<std::remove_pointer_t<decltype(word)>>*>(from);
    const i64 stride = space.inner_stride(operand);
    each_run(space, operand, tile.place, tile.count, [&](i64 done, i64 n, i64 offset) {
      for (i64 i = 0; i < n; ++i) to[offset + i * stride].bits = source[done + i].bits;
    });
  });
}

void gather_strided(void* to, const void* from, i64 size, i64 n, i64 stride) {
  visit_word(size, [&](auto* word) {
    using W = std::remove_pointer_t<decltype(word)>;
    run_in(static_cast<W*>(to), static_cast<const W*>(from), n, stride);
  });
}

Element element_of(DType dtype, i64 value, bool floating) {
  Element element{};
  const DType from = floating ? DType::f64 : DType::i64;
  convert(dtype, element.bytes, from, &value, 1);
  return element;
}

void fill_elements(void* to, const Element& element, i64 size, i64 n) {
  visit_word(size, [&](auto* word) {
    using W = std::remove_pointer_t<decltype(word)>;
    const auto value = reinterpret_cast<const W*>(element.bytes)->bits;
    for (i64 i = 0; i < n; ++i) static_cast<W*>(to)[i].bits = value;
  });
}

}  // namespace brrr::on_cpu
