// The text of one pass over a tile of elements on the CPU, which the walks of render_cpu.cpp stand
// around.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <brrr/ops/jit/render.h>

namespace brrr::jit {

// Where a tile is: the space that it is a stretch of, its place there, and the offset that each
// operand has besides.
struct Walked {
  std::string space, place, base;
  bool by_columns = false;
  std::string offset(std::size_t operand) const {
    return base.empty() ? "0" : fmt::format("{}[{}]", base, operand);
  }
};

struct TileText {
  std::string buffers;                 // arrays, which live as long as the function
  std::string statements;              // from operands in memory to arrays
  std::string writes;                  // from arrays to outputs in memory
  std::map<int, std::string> reduced;  // the array of what each reduction reduces
};
TileText tile_text(const Body& body, const pieces::Pass& pass, std::size_t number,
                   const Walked& walked);

// The type of a tile's array: a bool is a byte there, of which the compiler has vectors.
std::string_view array_name(DType dtype);

}  // namespace brrr::jit
