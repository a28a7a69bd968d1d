// The arguments of the functions that render_cpu makes: a range of elements, or of rows if the body
// reduces, of strided operands. Ranges are independent, so a pool of threads can split them.
#pragma once

#include <cstdint>

#include <brrr/ops/jit/body.h>
#include <brrr/ops/jit/geometry.h>

namespace brrr::jit {

// The report of a check, of the lowest position. Kinds are those of ops/cuda/faults.inl.
struct CpuFault {
  enum Kind { index, integer, floating };
  std::int64_t position = -1;  // none
  int check = 0, kind = 0;
  std::int64_t value = 0, low = 0, high = 0;  // bits of i64 or f64
};

struct CpuArguments {
  void* const* outputs = nullptr;
  const void* const* inputs = nullptr;
  const std::uint64_t* scalars = nullptr;  // the bits of each in its type
  // Operands in `space`: outputs, inputs, coordinates. Of a body with reductions it has the
  // dimensions of the results, and `reduced` those of a row: inputs, coordinates, outputs in both.
  const StridedSpace* space = nullptr;
  const StridedSpace* reduced = nullptr;
  // In what order a row is combined, see CpuOrder.
  std::int64_t run = 0, piece = 0, block = 0;
  CpuFault* fault = nullptr;  // of a body with checks
  // For rows that are split: an accumulator of each reduction of each block.
  std::uint64_t* parts = nullptr;
};

using CpuFunction = void (*)(const CpuArguments&, std::int64_t begin, std::int64_t end);

// How eager combines the elements of a row, so that generated code has its bits: blocks of a row
// have separate accumulators, which are combined in order. A block's elements are folded run by
// run, and a run piece by piece. Halves are folded in pieces of at most 1024.
struct CpuOrder {
  bool by_columns = false;  // element by element, in adjacent rows at once
  std::int64_t run = INT64_MAX, piece = INT64_MAX, block = 1 << 17;

  bool operator==(const CpuOrder&) const = default;
};
// Of a reduction of operand `lead`, after sort_dims and coalesce of both spaces.
CpuOrder cpu_order(const StridedSpace& kept, const StridedSpace& reduced, int lead);

constexpr std::int64_t kTileElements = 512;  // kTile of cpu_tiles.inl

// How a function walks, as far as its source depends on it. The default serves every layout.
struct CpuWalk {
  bool by_columns = false;
  // Elements of every tile where their number is a constant of the source: those of a row, or of
  // so many adjacent rows, of which ranges are multiples. 0: any number.
  std::int64_t tile = 0;
  std::int64_t rest = 0;  // of adjacent rows: how many the last tile has, if not as many
  // Of such rows in a tile, or by columns of elements of each row, where several fit. 1: one.
  std::int64_t lines = 1;
  bool keeps = false;   // a tile has all elements of its rows: passes share its arrays
  bool linear = false;  // of such a tile: every operand has one stride in it
  // Such a tile is computed in chunks, which fit the first cache: of kTileElements, or by columns
  // of one element of each row. Only what is reduced or kept has arrays of all its elements.
  bool in_chunks = false;
  std::uint32_t direct = 0;         // bits: operands that are contiguous in every tile, or chunk
  std::int64_t run = 0, piece = 0;  // of a tile that is a row, as CpuOrder has them
  // There is one row, or by columns a tile of many elements. Ranges are of blocks, which leave
  // their accumulators in `parts`; the empty range combines them.
  bool splits = false;
};
CpuWalk cpu_walk(const Body& body, const StridedSpace& space, const StridedSpace& reduced,
                 const CpuOrder& order);

}  // namespace brrr::jit
