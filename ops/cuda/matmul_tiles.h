// Products by Hopper's tensor cores with an epilogue of the caller's (matmul_tiles.cu): what the
// kernel takes, how it covers a product with tiles, and its launch.
//
//   if (supports(product, dtype, a.data(), b.data())) {
//     const TileConfig config = choose_tiles(product, dtype, multiprocessors);
//     const PlainEpilogue plain = plain_epilogue(product, dtype, d.data());
//     const TileLaunch tiles =
//         plan_tiles(product, dtype, a.data(), b.data(), config, plain.epilogue, device);
//     launch(tiles, &plain.arguments, stream);
//   }
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/ops/cuda/programmatic_launch.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::on_cuda {

// The constants of the kernel's text, which explains them.
struct TileConfig {
  int tile_m = 128, tile_n = 128;
  int consumers = 2;
  bool ping_pong = false;
  int cluster_m = 1, cluster_n = 1;
  int splits = 1;
  int blocks = 1;  // of a multiprocessor
  int stages = 0;  // 0: as many as fit in shared memory
  friend bool operator==(const TileConfig&, const TileConfig&) = default;
};
std::string to_string(const TileConfig& config);  // "128x128 ping-pong, cluster 2x1"

// Which dimension of an operand has adjacent elements.
enum class Major : std::uint8_t { k, mn };
struct TileMajors {
  Major a = Major::k, b = Major::k;
};

// Whether the kernel computes this product on a device of compute capability 9.0: 16-bit types with
// elements adjacent along either dimension; f32, which goes through TF32, with elements adjacent
// along k; other strides and addresses in multiples of 16 bytes; two dimensions of batches at most.
// The result may have any layout.
bool supports(const MatrixProduct& product, DType dtype, const void* a, const void* b);

// The candidates of choose_tiles(), which chooses by a model of time and measures nothing: the
// choice depends on shape and type alone.
std::span<const TileConfig> tile_choices();
TileConfig choose_tiles(const MatrixProduct& product, DType dtype, int multiprocessors);

// A tensor of D's shape that the copy engine moves between memory and the epilogue.
struct StagedTensor {
  void* data = nullptr;
  MatrixStrides strides;
};
bool can_stage(const MatrixProduct& product, DType dtype, const StagedTensor& tensor);

// The epilogue of a product: the text of struct Epilogue (matmul_tiles.cu) and its staged tensors,
// of one type. The struct itself is an argument of launch().
struct TileEpilogue {
  std::string text;
  DType staged = f32;
  std::vector<StagedTensor> inputs, outputs;
};

// Stores the sums in D.
struct PlainEpilogue {
  TileEpilogue epilogue;
  struct Arguments {
    void* d;
    std::int64_t row_stride, col_stride;
    std::int64_t outer_stride, inner_stride;  // between matrices of the two batch dimensions
    std::int32_t inner_batches;
  } arguments;
};
PlainEpilogue plain_epilogue(const MatrixProduct& product, DType result, void* d);

// The number of slices in flight that fit in shared memory; the kernel needs two.
int stages_of(const TileConfig& config, const TileEpilogue& epilogue);

std::string matmul_tiles_text(const TileConfig& config, DType dtype, TileMajors majors,
                              const TileEpilogue& epilogue);

// As the kernel's TileProblem.
struct TileProblem {
  std::int32_t m, n, k;
  std::int32_t tiles_m, tiles_n;
  std::int32_t batches, inner_batches;
  std::int32_t inner_a, outer_a, inner_b, outer_b;
  std::int32_t band;
};

struct TileLaunch {
  CUfunction kernel = nullptr;
  Grid grid;
  unsigned threads = 0, shared_bytes = 0;
  CUtensorMap a, b;
  CUtensorMap staged[4] = {};  // inputs, then outputs
  TileProblem problem;
};
// Compiles the kernel at its first use. The maps hold the addresses of a, b and staged tensors.
TileLaunch plan_tiles(const MatrixProduct& product, DType dtype, const void* a, const void* b,
                      const TileConfig& config, const TileEpilogue& epilogue, Device device);
// `arguments`: the struct Epilogue of the text.
void launch(const TileLaunch& tiles, const void* arguments, const cu::CudaStream& stream);

}  // namespace brrr::on_cuda
