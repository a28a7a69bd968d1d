// Products by Hopper's tensor cores with an epilogue of the caller's (matmul_tiles.cu): what the
// kernel takes, how it covers products with tiles, and its launch.
//
//   if (supports(product, dtype, a.data(), b.data())) {
//     const TileConfig config = choose_tiles(std::span(&product, 1), dtype, multiprocessors);
//     const TiledProduct tiled{product, a.data(), b.data(), epilogue};
//     const TileLaunch tiles = plan_tiles(std::span(&tiled, 1), dtype, config, device);
//     const void* arguments[] = {&fields_of_epilogue};
//     launch(tiles, arguments, stream);
//   }
#pragma once

#include <cuda.h>

#include <array>
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

constexpr std::int64_t kSliceBytes = 128;  // of k, a swizzled row of shared memory
inline std::int64_t slice_of(DType dtype) {
  return kSliceBytes / static_cast<std::int64_t>(size_of(dtype));
}

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
// choice depends on shapes and type alone.
std::span<const TileConfig> tile_choices();
// For the products of one launch. `reduces`: one of them also reduces the lines of A.
TileConfig choose_tiles(std::span<const MatrixProduct> products, DType dtype, int multiprocessors,
                        bool reduces = false);
bool takes_reductions(const TileConfig& config);
// What the model says of products of one launch.
std::int64_t predicted_cycles(std::span<const MatrixProduct> products, DType dtype,
                              const TileConfig& config, int multiprocessors);

std::int64_t tiles_of(const MatrixProduct& product, const TileConfig& config);  // of clusters

// Which tiles of each product a cluster of a launch computes, and how long the busiest one takes.
constexpr int kMostClusters = 160;
typedef std::array<std::uint16_t, kMostClusters> TileRanges;  // the end of each cluster's range
struct TileShares {
  std::int64_t clusters = 0;
  std::vector<TileRanges> ranges;  // by product
  std::int64_t cycles = 0;
};
TileShares share_tiles(std::span<const MatrixProduct> products, DType dtype,
                       const TileConfig& config, int multiprocessors);

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
  bool reduces = false;  // also each line of A, see can_reduce()
};

// One product of a launch, and what becomes of its sums.
struct TiledProduct {
  MatrixProduct product;
  const void *a = nullptr, *b = nullptr;
  TileEpilogue epilogue;
};

// Whether the kernel reduces the lines of A beside the product, as the gradient of a bias beside
// that of a weight.
bool can_reduce(const MatrixProduct& product, DType dtype);

// Whether one of them also reduces the lines of A.
bool reduces(std::span<const TiledProduct> products);

// The number of slices in flight that fit in shared memory; the kernel needs two.
int stages_of(const TileConfig& config, std::span<const TiledProduct> products);

std::string matmul_tiles_text(const TileConfig& config, DType dtype,
                              std::span<const TiledProduct> products);

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
  struct Product {
    CUtensorMap a, b;
    CUtensorMap staged[4] = {};  // inputs, then outputs
    TileProblem problem;
  };
  std::vector<Product> products;
  std::vector<TileRanges> ranges;  // of several products
};
// Compiles the kernel at its first use. The maps hold the addresses of a, b and staged tensors.
TileLaunch plan_tiles(std::span<const TiledProduct> products, DType dtype, const TileConfig& config,
                      Device device);
// `arguments`: of each product the struct Epilogue of its text.
void launch(const TileLaunch& tiles, std::span<const void* const> arguments,
            const cu::CudaStream& stream);

}  // namespace brrr::on_cuda
