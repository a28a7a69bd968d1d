// Tensors of any layout, broadcast to one shape, for kernels whose loops are contiguous: a space is
// cut into tiles of adjacent elements in the order of the output. An operand that is not contiguous
// within a tile is gathered into a buffer that stays in the first cache.
#pragma once

#include <cstdint>
#include <span>

#include <brrr/tensor/strided_space.h>
#include <brrr/tensor/tensor_impl.h>
#include <brrr/tensor/thread_pool.h>

namespace brrr::on_cpu {

using i64 = std::int64_t;

inline constexpr int kMaxInputs = 8;
inline constexpr i64 kTile = 1024;
inline constexpr i64 kTileBytes = kTile * 8;
// Work below this many elements is not worth waking a second thread,
inline constexpr i64 kGrain = 32768;
// nor below this many sharing it with one that is awake.
inline constexpr i64 kSharedGrain = 4096;
// Both, of parts that are `work` elements each.
constexpr Grain shared_grain(i64 work) {
  return {kSharedGrain / work > 1 ? kSharedGrain / work : 1, kGrain / work > 1 ? kGrain / work : 1};
}

// A space whose operands have memory: first the output, then the inputs.
struct TensorSpace : StridedSpace {
  char* data[kMaxInputs + 1];
  DType dtype[kMaxInputs + 1];

  explicit TensorSpace(std::span<const i64> shape) { add_dims(*this, shape); }
  void add(void* memory, DType type, std::span<const i64> shape, std::span<const i64> strides) {
    data[operands] = static_cast<char*>(memory);
    dtype[operands] = type;
    add_operand(*this, shape, strides);
  }
  void add(const Tensor& tensor) {
    add(tensor.data(), tensor.dtype(), tensor.shape(), tensor.strides());
  }
  i64 element_size(int operand) const { return static_cast<i64>(size_of(dtype[operand])); }
};

// How a space is cut: long rows into several tiles each, short rows several to a tile.
struct Tiling {
  i64 length;        // most elements in a tile
  i64 tiles_in_row;  // long rows: 1 or more; short rows: 0
  i64 tiles;
  i64 numel;

  Tiling(const TensorSpace& space, i64 length);
  bool long_rows() const { return tiles_in_row > 0; }
};

struct Tile {
  Coordinates place;  // of its first element
  i64 count;

  Tile(const TensorSpace& space, const Tiling& tiling, i64 number);
  char* start(const TensorSpace& space, int operand) const {
    return space.data[operand] + place.offset(space, operand) * space.element_size(operand);
  }
};

// Whether the tiles of an operand are contiguous in its own memory.
bool direct(const TensorSpace& space, const Tiling& tiling, int operand);

// Between a tile of an operand and contiguous memory; types stay as they are.
void gather(void* to, const TensorSpace& space, int operand, const Tile& tile);
void scatter(const TensorSpace& space, int operand, const Tile& tile, const void* from);
// n contiguous elements, as another type.
void convert(DType to_type, void* to, DType from_type, const void* from, i64 n);

// n elements of `size` bytes that are `stride` elements apart.
void gather_strided(void* to, const void* from, i64 size, i64 n, i64 stride);

// Writes operand 1 to operand 0, converting where types differ: the body of every copy.
void copy_space(TensorSpace& space);
// Replaces a large operand that is transposed relative to the output by a copy in the output's
// order, which `memory` owns: reading elements of many cache lines costs far more than a copy in
// blocks.
void straighten(TensorSpace& space, int operand, Tensor& memory);
// A copy between tensors; `from` broadcasts to `to`.
void copy_tensor(const Tensor& to, const Tensor& from);
// `tensor` itself when it is contiguous and of that type, else a fresh copy that is.
Tensor contiguous_as(const Tensor& tensor, DType dtype);

// Calls f with `out`, or with a contiguous tensor of that type that is then copied to it.
template <class F>
void write_contiguous(const Tensor& out, DType dtype, F f) {
  if (out.is_contiguous() && out.dtype() == dtype) return f(out);
  const Tensor result = make_tensor(dtype, out.shape(), cpu);
  f(result);
  copy_tensor(out, result);
}

// An element of any type as bits, for what only moves elements. A class, since templates drop the
// attribute of other types.
template <class Bits>
struct [[gnu::may_alias]] Word {
  Bits bits;
};
// Calls f with a null pointer to words of `size` bytes.
template <class F>
void visit_word(i64 size, F f) {
  switch (size) {
    case 1: return f(static_cast<Word<std::uint8_t>*>(nullptr));
    case 2: return f(static_cast<Word<std::uint16_t>*>(nullptr));
    case 4: return f(static_cast<Word<std::uint32_t>*>(nullptr));
    default: return f(static_cast<Word<std::uint64_t>*>(nullptr));
  }
}

// A number as one element of a type: `value` is a double's bits when `floating`, else an integer.
struct Element {
  alignas(8) unsigned char bytes[8];
};
Element element_of(DType dtype, i64 value, bool floating);
// n copies of an element of that many bytes.
void fill_elements(void* to, const Element& element, i64 size, i64 n);

}  // namespace brrr::on_cpu
