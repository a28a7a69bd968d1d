// The source of one pass over a tile of elements on the CPU. render_cpu.cpp renders the walk around
// it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <brrr/ops/jit/render.h>

namespace brrr::jit {

// The place of a tile: its space, its first element in that space, and the additional offset of
// each operand.
struct Walked {
  std::string space, place, base;
  bool by_columns = false;
  bool linear = false;       // each operand has one stride in the tile, `base` is all of its offset
  std::uint32_t direct = 0;  // bits: operands that are contiguous in the tile
  std::string step = {};     // from each operand's offset to that of the next tile, or line
  // The tile has `lines` lines of kWidth elements: each is a row, or by columns has an element of
  // kWidth rows. Else it is a row, or has an element of each of its rows.
  bool has_lines = false;
  // The tile is computed in chunks of kTile elements, which fit the first cache. `base` is that of
  // the chunk which begins at element `at`.
  bool in_chunks = false;
  std::string offset(std::size_t operand) const {
    if (!base.empty()) return fmt::format("{}[{}]", base, operand);
    return is_direct(operand) ? "first" : "0";
  }
  bool is_direct(std::size_t operand) const { return direct >> operand & 1; }
};

// Values that earlier passes over the same tile have left in arrays, and the arrays.
using KeptValues = std::map<int, std::string>;

struct TileSource {
  std::string constants;               // once a call of the function
  std::string buffers;                 // arrays, which live as long as the function
  std::string spread;                  // from rows[] to arrays, in tiles of lines
  std::string statements;              // from operands in memory to arrays, of a chunk
  std::string writes;                  // from arrays to outputs in memory
  std::map<int, std::string> reduced;  // the array of what each reduction reduces
  KeptValues kept;                     // what later passes need not compute again
};
TileSource tile_source(const Body& body, const pieces::RowPass& pass, std::size_t number,
                       const Walked& walked, const KeptValues& known = {});

// The type of a tile's array: a bool is a byte there, of which the compiler has vectors.
inline std::string_view array_name(DType dtype) {
  return dtype == boolean ? "u8" : pieces::register_name(dtype);
}

}  // namespace brrr::jit
