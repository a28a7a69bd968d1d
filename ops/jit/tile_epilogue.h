// Contractions in tiles (tiles.h): a body's values as the epilogue of its product. The copy engine
// moves what it can, columns are read once for all rows, and the rest goes element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <brrr/ops/jit/contraction.h>
#include <brrr/ops/jit/tiles.h>

namespace brrr::jit {

// Whether tiles compute the product, and their epilogue moves every other operand in blocks or
// reads it once a column: element by element it would take longer than a kernel of its own.
// `aligned`: both factors begin at multiples of 16 bytes.
bool tiles_support(const BodyStrides& body, const Contraction& contraction, bool aligned);

// The epilogue of a body: what the copy engine moves, and the struct's source and contents.
struct BodyEpilogue {
  struct Address {
    std::size_t word;
    int operand;
  };
  TileEpilogue tile;
  std::vector<int> staged;  // the operands of tile.inputs, then of tile.outputs
  // The struct, without the addresses of operands: `addresses` says which words they are.
  std::vector<std::uint64_t> words;
  std::vector<Address> addresses;
};
// `aligned`: of inputs, then outputs, as bits, whether each begins at a multiple of 16 bytes.
BodyEpilogue body_epilogue(const BodyStrides& body, const Contraction& contraction,
                           std::uint32_t aligned);

}  // namespace brrr::jit
