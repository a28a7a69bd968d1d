// Launches of products in tiles (ops/jit/tiles.h, matmul_tiles.cu): the tensor maps of their
// operands, and the kernel.
//
//   if (tiles_support(product, dtype, aligned)) {
//     const TileConfig config = choose_tiles(std::span(&product, 1), dtype, multiprocessors);
//     const TiledProduct tiled{product, epilogue};
//     const TileOperands operands{a.data(), b.data(), staged};
//     const TileLaunch tiles = plan_tiles(std::span(&tiled, 1), std::span(&operands, 1), dtype,
//                                         config, device);
//     const void* arguments[] = {&fields_of_epilogue};
//     launch(tiles, arguments, stream);
//   }
#pragma once

#include <cuda.h>

#include <span>
#include <vector>

#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/ops/jit/tiles.h>
#include <brrr/tensor/cuda_stream.h>
#include <brrr/tensor/device.h>

namespace brrr::on_cuda {

// The addresses of a product's factors, and of the tensors that its epilogue stages: inputs, then
// outputs.
struct TileOperands {
  const void *a = nullptr, *b = nullptr;
  std::vector<void*> staged;
};

struct TileLaunch {
  CUfunction kernel = nullptr;
  jit::TileSchedule schedule;
  struct Maps {
    CUtensorMap a, b;
    // Inputs, then outputs.
    CUtensorMap staged[jit::kMostStagedInputs + jit::kMostStagedOutputs] = {};
  };
  std::vector<Maps> maps;  // by product
};
// Compiles the kernel at its first use. The maps hold the operands' addresses.
TileLaunch plan_tiles(std::span<const jit::TiledProduct> products,
                      std::span<const TileOperands> operands, DType dtype,
                      const jit::TileConfig& config, Device device);
// `arguments`: of each product the struct Epilogue of its source.
void launch(const TileLaunch& tiles, std::span<const void* const> arguments,
            const cu::CudaStream& stream);

}  // namespace brrr::on_cuda
