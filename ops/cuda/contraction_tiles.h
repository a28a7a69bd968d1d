// Contractions too large for the small kernel: the tile kernel of matmul_tiles.cu, whose epilogue
// is the body's values.
#pragma once

#include <brrr/ops/cuda/contraction.h>
#include <brrr/ops/cuda/matmul_tiles.h>

namespace brrr::on_cuda {

// Whether tiles compute the product, and their epilogue moves every other operand in blocks or
// reads it once a column: element by element it would take longer than a kernel of its own.
// `aligned`: both factors begin at multiples of 16 bytes.
bool tiles_support(const BodySpec& spec, const Contraction& contraction,
                   std::span<const Dims> strides, bool aligned);

// The epilogue of a body: what the copy engine moves, and the struct's text and contents.
struct BodyEpilogue {
  TileEpilogue tile;
  std::vector<std::uint64_t> arguments;
};
// `data`: addresses of inputs, then outputs; `strides` likewise.
BodyEpilogue body_epilogue(const BodySpec& spec, const Contraction& contraction,
                           std::span<const Dims> strides, std::span<void* const> data);

// A product of a launch. `data`: addresses of inputs, then outputs; `strides` likewise.
struct TilePart {
  const BodySpec* spec;
  Contraction contraction;
  std::vector<Dims> strides;
  std::vector<void*> data;
};
void run_tiles(std::span<const TilePart> parts, cu::CudaStream& stream);

}  // namespace brrr::on_cuda
