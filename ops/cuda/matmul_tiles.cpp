#include "brrr/ops/cuda/matmul_tiles.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/cuda/hand_written.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::text {
extern const char matmul_tiles_instructions_inl[];
extern const char matmul_tiles_geometry_inl[];
extern const char matmul_tiles_epilogue_inl[];
extern const char matmul_tiles_product_inl[];
extern const char matmul_tiles_cu[];
}  // namespace brrr::text

namespace brrr::on_cuda {
namespace {

constexpr int kMostStages = 8;

// An operand as lines (rows of a, columns of b) of `depth` elements. Strides in elements.
struct Lines {
  std::int64_t lines, depth;
  std::int64_t line_stride, depth_stride;
  const Dims* batch_strides;
};
Lines lines_of_a(const MatrixProduct& p) { return {p.m, p.k, p.a.row, p.a.col, &p.a.batch}; }
Lines lines_of_b(const MatrixProduct& p) { return {p.n, p.k, p.b.col, p.b.row, &p.b.batch}; }

// Strides that the tensor copy engine takes. That of a dimension of one element is never used.
bool takes_stride(std::int64_t stride, std::int64_t extent, std::int64_t size) {
  if (extent == 1) return true;
  return stride > 0 && stride * size % 16 == 0 && stride < (std::int64_t{1} << 40) / size;
}

bool takes_layout(const Lines& x, Major major, std::int64_t size) {
  const bool along_k = major == Major::k;
  const std::int64_t inner = along_k ? x.depth_stride : x.line_stride,
                     outer = along_k ? x.line_stride : x.depth_stride;
  return ((along_k ? x.depth : x.lines) == 1 || inner == 1) &&
         takes_stride(outer, along_k ? x.lines : x.depth, size);
}

bool takes_operand(const Lines& x, const Dims& batch, DType dtype, const void* data) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) return false;
  for (int i = 0; i < batch.size(); ++i) {
    const std::int64_t stride = (*x.batch_strides)[i];
    if (stride != 0 && !takes_stride(stride, batch[i], size)) return false;
  }
  return takes_layout(x, Major::k, size) || (size == 2 && takes_layout(x, Major::mn, size));
}

Major major_of(const Lines& x, DType dtype) {
  return takes_layout(x, Major::k, static_cast<std::int64_t>(size_of(dtype))) ? Major::k
                                                                              : Major::mn;
}

// From the outside in, at most two.
struct Batches {
  std::int64_t outer = 1, inner = 1;
};
Batches batches_of(const MatrixProduct& p) {
  const int rank = p.batch.size();
  return {rank > 1 ? p.batch[0] : 1, rank > 0 ? p.batch[rank - 1] : 1};
}
Batches batch_strides_of(const Dims& strides) {
  const int rank = strides.size();
  return {rank > 1 ? strides[0] : 0, rank > 0 ? strides[rank - 1] : 0};
}

CUtensorMapDataType map_type_of(DType dtype) {
  if (dtype == f32) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return dtype == f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

// Two dimensions and the batches, copied in boxes. Strides in elements; a batch stride of 0 is for
// an operand that all matrices of the batch share.
struct Box {
  std::int64_t inner, rows, row_stride;  // the inner dimension has adjacent elements
  Batches batches, strides;
  int box_inner, box_rows;
};
CUtensorMap map_of(const Box& x, CUtensorMapDataType type, std::int64_t size, const void* data,
                   CUtensorMapSwizzle swizzle) {
  // The stride of a dimension of one element is never used.
  const auto bytes = [size](std::int64_t stride, std::int64_t extent) -> cuuint64_t {
    return extent == 1 || stride == 0 ? 16 : static_cast<cuuint64_t>(stride * size);
  };
  const auto extent = [](std::int64_t count, std::int64_t stride) {
    return static_cast<cuuint64_t>(stride == 0 ? 1 : count);
  };
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(x.inner), static_cast<cuuint64_t>(x.rows),
                                extent(x.batches.inner, x.strides.inner),
                                extent(x.batches.outer, x.strides.outer)};
  const cuuint64_t between[] = {bytes(x.row_stride, x.rows),
                                bytes(x.strides.inner, x.batches.inner),
                                bytes(x.strides.outer, x.batches.outer)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(x.box_inner),
                            static_cast<cuuint32_t>(x.box_rows), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  CUtensorMap map;
  BRRR_CUDA(cuTensorMapEncodeTiled, &map, type, 4, const_cast<void*>(data), extents, between, box,
            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

// Boxes of a tile's lines by a slice of k, of which each of `peers` blocks loads a part.
CUtensorMap operand_map(const Lines& x, const Batches& batches, DType dtype, const void* data,
                        Major major, int tile, int peers) {
  const bool along_k = major == Major::k;
  const int slice = static_cast<int>(slice_of(dtype));
  const Batches strides = batch_strides_of(*x.batch_strides);
  // Loads as TF32 round to nearest, where wgmma itself would cut bits off.
  return map_of({along_k ? x.depth : x.lines, along_k ? x.lines : x.depth,
                 along_k ? x.line_stride : x.depth_stride, batches, strides, slice,
                 (along_k ? tile : slice) / peers},
                dtype == f32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : map_type_of(dtype),
                static_cast<std::int64_t>(size_of(dtype)), data, CU_TENSOR_MAP_SWIZZLE_128B);
}

// As the kernel's kBoxRowBytes.
int box_row_bytes(const TileConfig& c, DType staged) {
  const int bytes = c.tile_n / c.splits * static_cast<int>(size_of(staged));
  return bytes % 128 == 0 ? 128 : bytes % 64 == 0 ? 64 : 32;
}

// Boxes of the 16 rows of a warp.
CUtensorMap staged_map(const MatrixProduct& p, const TileConfig& c, DType dtype,
                       const StagedTensor& x) {
  const int row_bytes = box_row_bytes(c, dtype);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return map_of({p.n, p.m, x.strides.row, batches_of(p), batch_strides_of(x.strides.batch),
                 row_bytes / static_cast<int>(size), 16},
                map_type_of(dtype), size, x.data,
                row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                  : CU_TENSOR_MAP_SWIZZLE_32B);
}

// The asynchronous instruction for 64 x n results and 32 bytes of k, as a function of the text.
std::string instruction_text(int n, DType dtype, TileMajors majors) {
  const int registers = n / 2;
  std::string results, operands;
  for (int i = 0; i < registers; ++i) {
    results += fmt::format("{}%{}", i ? ", " : "", i);
    operands += fmt::format("{}\"+f\"(d[{}])", i ? ", " : "", i);
  }
  const std::string_view type = dtype == f32 ? "tf32" : name_of(dtype);
  const std::string transposes =
      dtype == f32 ? "" : fmt::format(", {:d}, {:d}", majors.a == Major::mn, majors.b == Major::mn);
  return fmt::format(
      "BRRR_FN void multiply_add(float (&d)[{0}], u64 a, u64 b, bool accumulate) {{\n"
      "  asm volatile(\"{{ .reg .pred accumulate; setp.ne.u32 accumulate, %{1}, 0; "
      "wgmma.mma_async.sync.aligned.m64n{2}k{3}.f32.{4}.{4} {{{5}}}, %{6}, %{7}, accumulate, 1, "
      "1{8}; }}\"\n      : {9}\n      : \"l\"(a), \"l\"(b), \"r\"(u32(accumulate)));\n}}\n",
      registers, registers + 2, n, dtype == f32 ? 8 : 16, type, results, registers, registers + 1,
      transposes, operands);
}

int stage_bytes(const TileConfig& c) {
  return (c.tile_m + c.tile_n) * static_cast<int>(kSliceBytes);
}
struct Staging {
  std::size_t inputs = 0, outputs = 0;  // the most of any product
};
Staging staging_of(std::span<const TiledProduct> products) {
  Staging most;
  for (const TiledProduct& x : products) {
    most.inputs = std::max(most.inputs, x.epilogue.inputs.size());
    most.outputs = std::max(most.outputs, x.epilogue.outputs.size());
  }
  return most;
}
// Two boxes of 2 KB for each warp and tensor.
int staging_bytes(const TileConfig& c, const Staging& staging) {
  return static_cast<int>(staging.inputs + staging.outputs) * c.consumers * 4 * 4096;
}
unsigned threads_of(const TileConfig& c) {
  const bool moves_registers = c.consumers == 2 && c.blocks == 1;  // as the kernel decides it
  return static_cast<unsigned>(128 * c.consumers + (moves_registers ? 128 : 32));
}

}  // namespace

bool reduces(std::span<const TiledProduct> products) {
  return std::ranges::any_of(products, [](const TiledProduct& x) { return x.epilogue.reduces; });
}

// Of the 228 KB of a multiprocessor each block also takes 1 KB for the system, up to 1 KB to align
// its stages, and some bytes for barriers.
int stages_of(const TileConfig& c, std::span<const TiledProduct> products) {
  if (c.stages > 0) return c.stages;
  constexpr int kBarriers = 512;
  const int available =
      228 * 1024 / c.blocks - 2048 - kBarriers - staging_bytes(c, staging_of(products));
  return std::min(kMostStages, available / stage_bytes(c));
}

std::string to_string(const TileConfig& c) {
  std::string text = fmt::format("{}x{}", c.tile_m, c.tile_n);
  if (c.ping_pong) text += " ping-pong";
  if (!c.ping_pong && c.consumers == 1) text += " one consumer";
  if (c.cluster_m * c.cluster_n > 1)
    text += fmt::format(", cluster {}x{}", c.cluster_m, c.cluster_n);
  if (c.splits > 1) text += fmt::format(", {} splits", c.splits);
  if (c.blocks > 1) text += fmt::format(", {} blocks", c.blocks);
  return text;
}

bool supports(const MatrixProduct& p, DType dtype, const void* a, const void* b) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!is_half(dtype) && dtype != f32) return false;
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.m > kMost || p.n > kMost || p.k > kMost) return false;
  const Batches batches = batches_of(p);
  if (p.batch.size() > 2 || batches.inner < 1 || batches.outer < 1) return false;
  // Indices of tiles are 32 bits wide, for any tile.
  const std::int64_t tiles = ceil_div(p.m, 64) * ceil_div(p.n, 64);
  if (tiles > kMost || batches.inner > kMost / tiles ||
      batches.outer > kMost / tiles / batches.inner)
    return false;
  return takes_operand(lines_of_a(p), p.batch, dtype, a) &&
         takes_operand(lines_of_b(p), p.batch, dtype, b);
}

bool can_reduce(const MatrixProduct& p, DType dtype) {
  return is_half(dtype) && p.batch.empty() && major_of(lines_of_a(p), dtype) == Major::mn;
}

bool can_stage(const MatrixProduct& p, DType dtype, const StagedTensor& x) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const MatrixStrides& s = x.strides;
  if (!is_half(dtype) && dtype != f32) return false;
  // Stores are cut off at the right edge in units of 16 bytes only.
  if (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0 || s.col != 1 || p.n * size % 16 != 0)
    return false;
  for (int i = 0; i < p.batch.size(); ++i)
    if (!takes_stride(s.batch[i], p.batch[i], size)) return false;
  return takes_stride(s.row, p.m, size);
}

namespace {

TileMajors majors_of(const MatrixProduct& p, DType dtype) {
  return {major_of(lines_of_a(p), dtype), major_of(lines_of_b(p), dtype)};
}

// The kernel over products of the namespaces product_0, product_1 ...
std::string entry_text(std::size_t products) {
  std::string parameters, arguments;
  for (std::size_t i = 0; i < products; ++i) {
    parameters += fmt::format(
        "const __grid_constant__ TensorMap a_{0}, const __grid_constant__ TensorMap b_{0}, const "
        "__grid_constant__ product_{0}::StagedMaps maps_{0}, const __grid_constant__ TileProblem "
        "p_{0}, const __grid_constant__ product_{0}::Epilogue epilogue_{0}, ",
        i);
    arguments += fmt::format(
        ", product_{0}::Product{{a_{0}, b_{0}, p_{0}, {{epilogue_{0}, maps_{0}, p_{0}}}}}", i);
  }
  return fmt::format(
      "extern \"C\" __global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, "
      "kBlocksPerMultiprocessor)\nmatmul_tiles({}const __grid_constant__ TileRanges ranges) {{\n"
      "  compute(ranges{});\n}}\n",
      parameters, arguments);
}

// Lines of A are reduced in vectors of 16 bytes, each by one of the blocks that load it: a power of
// two for each block.
std::int64_t reduced_vectors(const TiledProduct& x, DType dtype, const TileConfig& c) {
  if (!x.epilogue.reduces) return 0;
  const std::int64_t all = c.tile_m * static_cast<std::int64_t>(size_of(dtype)) / 16;
  std::int64_t share = 1;
  while (share * ceil_div(x.product.n, c.tile_n) < all) share *= 2;
  return share;
}

// What a product has in its namespace.
std::string product_text(const TiledProduct& x, DType dtype, const TileConfig& c) {
  const TileMajors majors = majors_of(x.product, dtype);
  return fmt::format(
             "constexpr bool kMnMajorA = {}, kMnMajorB = {};\n"
             "constexpr int kReducedVectors = {};\n",
             majors.a == Major::mn, majors.b == Major::mn, reduced_vectors(x, dtype, c)) +
         instruction_text(c.tile_n, dtype, majors) + x.epilogue.text +
         text::matmul_tiles_epilogue_inl + text::matmul_tiles_product_inl;
}

}  // namespace

std::string matmul_tiles_text(const TileConfig& c, DType dtype,
                              std::span<const TiledProduct> products) {
  const Staging staging = staging_of(products);
  std::string text =
      typedef_of(dtype, "Element") +
      fmt::format(
          "constexpr int kTileM = {}, kTileN = {}, kStages = {}, kConsumers = {};\n"
          "constexpr bool kPingPong = {};\n"
          "constexpr int kClusterM = {}, kClusterN = {}, kSplits = {};\n"
          "constexpr int kBlocksPerMultiprocessor = {};\n"
          "constexpr int kProducts = {}, kMostInputs = {}, kMostOutputs = {}, kMostClusters = {};\n"
          "constexpr bool kAnyReduces = {};\n",
          c.tile_m, c.tile_n, stages_of(c, products), c.consumers, c.ping_pong, c.cluster_m,
          c.cluster_n, c.splits, c.blocks, products.size(), staging.inputs, staging.outputs,
          kMostClusters, reduces(products)) +
      text::matmul_tiles_instructions_inl + text::matmul_tiles_geometry_inl;
  for (std::size_t i = 0; i < products.size(); ++i)
    text += fmt::format("namespace product_{0} {{\n{1}}}  // namespace product_{0}\n", i,
                        product_text(products[i], dtype, c));
  return text + text::matmul_tiles_cu + entry_text(products.size());
}

namespace {

std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }

// `is_single_wave`: all tiles of the launch run at once.
TileProblem problem_of(const MatrixProduct& p, const TileConfig& c, bool is_single_wave) {
  const Batches batches = batches_of(p);
  const Batches of_a = batch_strides_of(p.a.batch), of_b = batch_strides_of(p.b.batch);
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
  // operands' lines are met again in the L2. In a single wave they walk along the longer side: 512
  // x 2048 x 4096 in bf16 takes 15.4 us so, 18.0 across.
  q.band =
      is_single_wave && q.tiles_m < q.tiles_n ? 1 : std::max(1, 1024 / (c.tile_m * c.cluster_m));
  return q;
}

TileLaunch::Product plan_product(const TiledProduct& x, DType dtype, const TileConfig& c,
                                 bool is_single_wave) {
  const MatrixProduct& p = x.product;
  const Batches batches = batches_of(p);
  TileLaunch::Product plan;
  const TileMajors majors = majors_of(p, dtype);
  plan.a = operand_map(lines_of_a(p), batches, dtype, x.a, majors.a, c.tile_m, c.cluster_n);
  plan.b = operand_map(lines_of_b(p), batches, dtype, x.b, majors.b, c.tile_n, c.cluster_m);
  plan.problem = problem_of(p, c, is_single_wave);
  CUtensorMap* map = plan.staged;
  for (const auto* tensors : {&x.epilogue.inputs, &x.epilogue.outputs}) {
    for (const StagedTensor& tensor : *tensors)
      *map++ = staged_map(p, c, x.epilogue.staged, tensor);
  }
  return plan;
}

}  // namespace

TileLaunch plan_tiles(std::span<const TiledProduct> products, DType dtype, const TileConfig& c,
                      Device device) {
  const int stages = stages_of(c, products);
  if (stages < 2)
    fail(fmt::format(
        "[{}] expected shared memory for two stages beside the epilogue's, got tiles {}",
        op_or("matmul"), to_string(c)));
  TileLaunch tiles;
  tiles.kernel = jit::load_kernel(device, "matmul_tiles", matmul_tiles_text(c, dtype, products),
                                  {.architecture_specific = true});
  tiles.shared_bytes = static_cast<unsigned>(stages * stage_bytes(c) +
                                             staging_bytes(c, staging_of(products)) + 1024);
  if (tiles.kernel)  // else its text was only collected
    BRRR_CUDA(cuFuncSetAttribute, tiles.kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              static_cast<int>(tiles.shared_bytes));
  tiles.threads = threads_of(c);
  std::vector<MatrixProduct> shapes;
  std::int64_t all = 0;
  for (const TiledProduct& x : products) {
    shapes.push_back(x.product);
    all += tiles_of(x.product, c);
  }
  const int multiprocessors = jit::multiprocessors_of(device);
  const std::int64_t in_cluster = c.cluster_m * c.cluster_n * c.splits;
  const std::int64_t at_once =
      c.splits > 1
          ? all
          : std::max<std::int64_t>(1, std::int64_t{multiprocessors} * c.blocks / in_cluster);
  std::int64_t clusters = std::min(all, at_once);
  tiles.ranges.emplace_back();
  if (products.size() > 1) {
    TileShares shares = share_tiles(shapes, dtype, c, multiprocessors);
    clusters = shares.clusters;
    tiles.ranges = std::move(shares.ranges);
  }
  for (const TiledProduct& x : products)
    tiles.products.push_back(plan_product(x, dtype, c, all <= at_once));
  tiles.grid = {clusters * in_cluster};
  return tiles;
}

void launch(const TileLaunch& tiles, std::span<const void* const> arguments,
            const cu::CudaStream& stream) {
  std::vector<void*> all;
  for (std::size_t i = 0; i < tiles.products.size(); ++i) {
    const TileLaunch::Product& x = tiles.products[i];
    const void* const each[] = {&x.a, &x.b, x.staged, &x.problem, arguments[i]};
    for (const void* argument : each) all.push_back(const_cast<void*>(argument));
  }
  all.push_back(const_cast<TileRanges*>(tiles.ranges.data()));
  launch_programmatic(tiles.kernel, tiles.grid, tiles.threads, stream, all.data(),
                      tiles.shared_bytes);
}

}  // namespace brrr::on_cuda
