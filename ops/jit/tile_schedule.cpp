// What the tile kernel takes, and how its tiles, stages and boxes cover the products of a launch.
#include <algorithm>
#include <utility>

#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/tiles.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::jit {
namespace {

// Strides that the tensor copy engine takes. That of a dimension of one element is never used.
bool takes_stride(std::int64_t stride, std::int64_t extent, std::int64_t size) {
  if (extent == 1) return true;
  return stride > 0 && stride * size % 16 == 0 && stride < (std::int64_t{1} << 40) / size;
}

bool takes_layout(const FactorLines& x, Major major, std::int64_t size) {
  const bool along_k = major == Major::k;
  const std::int64_t inner = along_k ? x.depth_stride : x.line_stride,
                     outer = along_k ? x.line_stride : x.depth_stride;
  return ((along_k ? x.depth : x.lines) == 1 || inner == 1) &&
         takes_stride(outer, along_k ? x.lines : x.depth, size);
}

bool takes_operand(const FactorLines& x, const Dims& batch, DType dtype, bool is_a) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  for (int i = 0; i < batch.size(); ++i) {
    const std::int64_t stride = (*x.batch_strides)[i];
    if (stride != 0 && !takes_stride(stride, batch[i], size)) return false;
  }
  return takes_layout(x, Major::k, size) ||
         ((is_half(dtype) || is_a) && takes_layout(x, Major::mn, size));
}

Major major_of(const FactorLines& x, DType dtype) {
  return takes_layout(x, Major::k, static_cast<std::int64_t>(size_of(dtype))) ? Major::k
                                                                              : Major::mn;
}

int stage_bytes(const TileConfig& c) {
  return (c.tile_m + c.tile_n) * static_cast<int>(kSliceBytes);
}
// Two boxes of 2 KB for each warp and tensor.
int staging_bytes(const TileConfig& c, const StagedCounts& staged) {
  return static_cast<int>(staged.inputs + staged.outputs) * c.consumers * 4 * 4096;
}
int threads_of(const TileConfig& c) {
  const bool moves_registers = c.consumers == 2 && c.blocks == 1;  // as the kernel decides it
  return 128 * c.consumers + (moves_registers ? 128 : 32);
}

}  // namespace

TileMajors majors_of(const MatrixProduct& p, DType dtype) {
  return {major_of(lines_of_a(p), dtype), major_of(lines_of_b(p), dtype)};
}

bool has_a_in_registers(const MatrixProduct& p, DType dtype) {
  return dtype == f32 && majors_of(p, dtype).a == Major::mn;
}

BatchPair batch_sizes_of(const MatrixProduct& p) {
  const int rank = p.batch.size();
  return {rank > 1 ? p.batch[0] : 1, rank > 0 ? p.batch[rank - 1] : 1};
}
BatchPair batch_strides_of(const Dims& strides) {
  const int rank = strides.size();
  return {rank > 1 ? strides[0] : 0, rank > 0 ? strides[rank - 1] : 0};
}

bool tiles_support(const MatrixProduct& p, DType dtype, bool aligned) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!aligned || (!is_half(dtype) && dtype != f32)) return false;
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.m > kMost || p.n > kMost || p.k > kMost) return false;
  const BatchPair batches = batch_sizes_of(p);
  if (p.batch.size() > 2 || batches.inner < 1 || batches.outer < 1) return false;
  // Indices of tiles are 32 bits wide, for any tile.
  const std::int64_t tiles = ceil_div(p.m, 64) * ceil_div(p.n, 64);
  if (tiles > kMost || batches.inner > kMost / tiles ||
      batches.outer > kMost / tiles / batches.inner)
    return false;
  return takes_operand(lines_of_a(p), p.batch, dtype, true) &&
         takes_operand(lines_of_b(p), p.batch, dtype, false);
}

bool can_reduce(const MatrixProduct& p, DType dtype) {
  return (is_half(dtype) || dtype == f32) && p.batch.empty() &&
         major_of(lines_of_a(p), dtype) == Major::mn;
}

bool can_stage(const MatrixProduct& p, DType dtype, const MatrixStrides& s, bool aligned) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if ((!is_half(dtype) && dtype != f32) || !aligned) return false;
  for (int i = 0; i < p.batch.size(); ++i)
    if (!takes_stride(s.batch[i], p.batch[i], size)) return false;
  // Stores are cut off at the far edge in units of 16 bytes only.
  const auto takes_rows = [size](std::int64_t inner, std::int64_t stride, std::int64_t rows) {
    return inner * size % 16 == 0 && takes_stride(stride, rows, size);
  };
  if (s.col == 1) return takes_rows(p.n, s.row, p.m);
  return dtype == f32 && s.row == 1 && takes_rows(p.m, s.col, p.n);
}

bool any_reduces(std::span<const TiledProduct> products) {
  return std::ranges::any_of(products, [](const TiledProduct& x) { return x.epilogue.reduces; });
}

StagedCounts staged_counts_of(std::span<const TiledProduct> products) {
  StagedCounts most;
  for (const TiledProduct& x : products) {
    most.inputs = std::max(most.inputs, x.epilogue.inputs.size());
    most.outputs = std::max(most.outputs, x.epilogue.outputs.size());
  }
  return most;
}

// Of the shared memory of a multiprocessor (228 KB in compute capability 9.0, the only one with
// wgmma) each block also takes 1 KB for the system, up to 1 KB to align its stages, and some bytes
// for barriers.
int stages_of(const TileConfig& c, std::span<const TiledProduct> products) {
  if (c.stages > 0) return c.stages;
  constexpr int kSharedBytes = 228 * 1024, kBarriers = 512, kMostStages = 8;
  const int available =
      kSharedBytes / c.blocks - 2048 - kBarriers - staging_bytes(c, staged_counts_of(products));
  return std::min(kMostStages, available / stage_bytes(c));
}

// As the kernel's kBoxRowBytes.
int box_row_bytes(const TileConfig& c, DType staged) {
  const int bytes = c.tile_n / c.splits * static_cast<int>(size_of(staged));
  return bytes % 128 == 0 ? 128 : bytes % 64 == 0 ? 64 : 32;
}

namespace {

std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }

// `is_single_wave`: all tiles of the launch run at once.
TileProblem problem_of(const MatrixProduct& p, const TileConfig& c, bool is_single_wave) {
  const BatchPair batches = batch_sizes_of(p);
  const BatchPair of_a = batch_strides_of(p.a.batch), of_b = batch_strides_of(p.b.batch);
  TileProblem q;
  q.m = narrow(p.m);
  q.n = narrow(p.n);
  q.k = narrow(p.k);
  q.tiles_m = narrow(ceil_div(p.m, c.tile_m * c.cluster_m));
  q.tiles_n = narrow(ceil_div(p.n, c.tile_n * c.cluster_n));
  q.batches = narrow(batches.inner * batches.outer);
  q.inner_batches = narrow(batches.inner);
  q.inner_a = of_a.inner != 0;
  q.outer_a = of_a.outer != 0;
  q.inner_b = of_b.inner != 0;
  q.outer_b = of_b.outer != 0;
  // Neighbours walk about a thousand rows before they go on to the next columns, so that both
  // operands' lines are met again in the L2. In a single wave they walk along the longer side.
  q.band =
      is_single_wave && q.tiles_m < q.tiles_n ? 1 : std::max(1, 1024 / (c.tile_m * c.cluster_m));
  return q;
}

}  // namespace

TileSchedule schedule_tiles(std::span<const TiledProduct> products, DType dtype,
                            const TileConfig& c, int multiprocessors) {
  const int stages = stages_of(c, products);
  if (stages < 2)
    fail("[{}] expected shared memory for two stages beside the epilogue's, got tiles {}",
         op_or("matmul"), to_string(c));
  TileSchedule schedule;
  schedule.config = c;
  schedule.threads = threads_of(c);
  schedule.shared_bytes =
      stages * stage_bytes(c) + staging_bytes(c, staged_counts_of(products)) + 1024;
  std::vector<MatrixProduct> shapes;
  std::int64_t all = 0;
  for (const TiledProduct& x : products) {
    shapes.push_back(x.product);
    all += tiles_of(x.product, c);
  }
  const std::int64_t in_cluster = c.cluster_m * c.cluster_n * c.splits;
  const std::int64_t at_once =
      c.splits > 1
          ? all
          : std::max<std::int64_t>(1, std::int64_t{multiprocessors} * c.blocks / in_cluster);
  std::int64_t clusters = std::min(all, at_once);
  schedule.ranges.emplace_back();
  if (products.size() > 1) {
    TileShares shares = share_tiles(shapes, dtype, c, multiprocessors);
    clusters = shares.clusters;
    schedule.ranges = std::move(shares.ranges);
  }
  for (const MatrixProduct& p : shapes)
    schedule.problems.push_back(problem_of(p, c, all <= at_once));
  schedule.blocks = clusters * in_cluster;
  return schedule;
}

}  // namespace brrr::jit
