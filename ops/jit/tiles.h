// Products by Hopper's tensor cores with an epilogue of the caller's (ops/cuda/matmul_tiles.cu):
// what the kernel takes, the choice of tiles, how they cover the products of a launch, and the
// source. All follow from shapes, strides and types; addresses, tensor maps and launches are
// ops/cuda/matmul_tiles.h's.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <brrr/ops/jit/matrix_product.h>
#include <brrr/tensor/dtype.h>

namespace brrr::jit {

// The constants of the kernel's source, which explains them.
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

TileMajors majors_of(const MatrixProduct& product, DType dtype);
// wgmma reads TF32 along k only, in shared memory: the kernel loads other elements of A to
// registers.
bool has_a_in_registers(const MatrixProduct& product, DType dtype);

// The dimensions of a batch from the outside in, at most two.
struct BatchPair {
  std::int64_t outer = 1, inner = 1;
};
BatchPair batch_sizes_of(const MatrixProduct& product);
BatchPair batch_strides_of(const Dims& strides);  // 0 where there is no dimension

// Whether the kernel computes this product on a device of compute capability 9.0: 16-bit types with
// elements adjacent along either dimension; f32, which goes through TF32, with those of B adjacent
// along k; other strides in multiples of 16 bytes, and so the addresses of both factors
// (`aligned`); two dimensions of batches at most. The result may have any layout.
bool tiles_support(const MatrixProduct& product, DType dtype, bool aligned);

// Whether the copy engine moves a tensor of D's shape between memory and the epilogue: with
// elements adjacent along n, in f32 also along m. `aligned`: it begins at a multiple of 16 bytes.
bool can_stage(const MatrixProduct& product, DType dtype, const MatrixStrides& strides,
               bool aligned);
constexpr std::size_t kMostStagedInputs = 2, kMostStagedOutputs = 3;
// Whether elements of a staged tensor are adjacent along m.
inline bool is_staged_transposed(const MatrixStrides& strides) { return strides.col != 1; }

// Whether the kernel reduces the lines of A beside the product, as the gradient of a bias beside
// that of a weight.
bool can_reduce(const MatrixProduct& product, DType dtype);

// The epilogue of a product: the source of struct Epilogue (matmul_tiles.cu), and the strides of
// the tensors of one type that the copy engine moves for it.
struct TileEpilogue {
  std::string text;
  DType staged = f32;
  std::vector<MatrixStrides> inputs, outputs;
  bool reduces = false;  // also each line of A, see can_reduce()
};

// One product of a launch, and what becomes of its sums.
struct TiledProduct {
  MatrixProduct product;
  TileEpilogue epilogue;
};
// Whether one of them also reduces the lines of A.
bool any_reduces(std::span<const TiledProduct> products);

// --- The choice of tiles: by a model of time, so it depends on shapes and type alone

// The candidates.
std::span<const TileConfig> tile_choices();
// For the products of one launch. `reduces`: one of them also reduces the lines of A.
TileConfig choose_tiles(std::span<const MatrixProduct> products, DType dtype, int multiprocessors,
                        bool reduces = false);
// The same where that leaves shared memory for two stages of factors beside the epilogues' boxes,
// else tiles that do.
TileConfig choose_fitting_tiles(std::span<const TiledProduct> products, DType dtype,
                                int multiprocessors);
bool takes_reductions(const TileConfig& config);
bool takes_a_in_registers(const TileConfig& config);
// What the model says of products of one launch.
std::int64_t predicted_cycles(std::span<const MatrixProduct> products, DType dtype,
                              const TileConfig& config, int multiprocessors);

// What `flops` more for each result add, in ping-pong tiles: those of the last wave, and of others
// what takes longer than the products that run beside them.
std::int64_t epilogue_cycles(const MatrixProduct& product, DType dtype, std::int64_t flops,
                             int multiprocessors);

// --- How tiles cover the products of a launch

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

// Tensors that the epilogues of a launch stage, the most of any product.
struct StagedCounts {
  std::size_t inputs = 0, outputs = 0;
};
StagedCounts staged_counts_of(std::span<const TiledProduct> products);

// The number of slices in flight that fit in shared memory; the kernel needs two.
int stages_of(const TileConfig& config, std::span<const TiledProduct> products);

// Bytes of a row of the boxes in which the copy engine moves staged tensors.
int box_row_bytes(const TileConfig& config, DType staged);

// As the kernel's TileProblem.
struct TileProblem {
  std::int32_t m, n, k;
  std::int32_t tiles_m, tiles_n;
  std::int32_t batches, inner_batches;
  std::int32_t inner_a, outer_a, inner_b, outer_b;
  std::int32_t band;
};

// What is launched for products.
struct TileSchedule {
  TileConfig config;
  std::int64_t blocks = 1;
  int threads = 0, shared_bytes = 0;
  std::vector<TileProblem> problems;  // by product
  std::vector<TileRanges> ranges;     // of several products by product, else one
};
// Throws if shared memory does not hold two stages.
TileSchedule schedule_tiles(std::span<const TiledProduct> products, DType dtype,
                            const TileConfig& config, int multiprocessors);

// The kernel's source, with the entry `matmul_tiles`.
std::string matmul_tiles_source(const TileConfig& config, DType dtype,
                                std::span<const TiledProduct> products);

}  // namespace brrr::jit
