#include "brrr/ops/cuda/matmul_tiles.h"

#include "brrr/ops/cuda/programmatic_launch.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::on_cuda {
namespace {

using namespace jit;

CUtensorMapDataType map_type_of(DType dtype) {
  if (dtype == f32) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return dtype == f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

// Two dimensions and the batches, copied in boxes. Strides in elements; a batch stride of 0 is for
// an operand that all matrices of the batch share.
struct Box {
  std::int64_t inner, rows, row_stride;  // the inner dimension has adjacent elements
  BatchPair batches, strides;
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
CUtensorMap operand_map(const FactorLines& x, const BatchPair& batches, DType dtype,
                        const void* data, Major major, int tile, int peers) {
  const bool along_k = major == Major::k;
  const int slice = static_cast<int>(slice_of(dtype));
  const BatchPair strides = batch_strides_of(*x.batch_strides);
  const bool to_registers = dtype == f32 && !along_k;
  const int column_lines = to_registers ? 16 : 64;  // as OperandTile::kColumnLines
  // Loads as TF32 round to nearest, where wgmma itself would cut bits off.
  return map_of({along_k ? x.depth : x.lines, along_k ? x.lines : x.depth,
                 along_k ? x.line_stride : x.depth_stride, batches, strides,
                 along_k ? slice : column_lines, (along_k ? tile : slice) / peers},
                dtype == f32 && along_k ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : map_type_of(dtype),
                static_cast<std::int64_t>(size_of(dtype)), data,
                to_registers ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B);
}

// Boxes of the 16 rows of a warp.
CUtensorMap staged_map(const MatrixProduct& p, const TileConfig& c, DType dtype,
                       const MatrixStrides& strides, const void* data) {
  const int row_bytes = box_row_bytes(c, dtype);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (is_staged_transposed(strides))
    return map_of({p.m, p.n, strides.col, batch_sizes_of(p), batch_strides_of(strides.batch), 16,
                   row_bytes / static_cast<int>(size)},
                  map_type_of(dtype), size, data, CU_TENSOR_MAP_SWIZZLE_64B);
  return map_of({p.n, p.m, strides.row, batch_sizes_of(p), batch_strides_of(strides.batch),
                 row_bytes / static_cast<int>(size), 16},
                map_type_of(dtype), size, data,
                row_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                  : CU_TENSOR_MAP_SWIZZLE_32B);
}

TileLaunch::Maps maps_of(const TiledProduct& x, const TileOperands& operands, DType dtype,
                         const TileConfig& c) {
  const MatrixProduct& p = x.product;
  const BatchPair batches = batch_sizes_of(p);
  const TileMajors majors = majors_of(p, dtype);
  TileLaunch::Maps maps;
  maps.a = operand_map(lines_of_a(p), batches, dtype, operands.a, majors.a, c.tile_m, c.cluster_n);
  maps.b = operand_map(lines_of_b(p), batches, dtype, operands.b, majors.b, c.tile_n, c.cluster_m);
  std::size_t next = 0;
  for (const auto* tensors : {&x.epilogue.inputs, &x.epilogue.outputs}) {
    for (const MatrixStrides& strides : *tensors) {
      maps.staged[next] = staged_map(p, c, x.epilogue.staged, strides, operands.staged[next]);
      ++next;
    }
  }
  return maps;
}

}  // namespace

TileLaunch plan_tiles(std::span<const TiledProduct> products,
                      std::span<const TileOperands> operands, DType dtype, const TileConfig& c,
                      Device device) {
  TileLaunch tiles;
  tiles.schedule = schedule_tiles(products, dtype, c, multiprocessors_of(device));
  tiles.kernel = load_kernel(device, "matmul_tiles", matmul_tiles_source(c, dtype, products),
                             {.architecture_specific = true});
  if (tiles.kernel)  // else its text was only collected
    BRRR_CUDA(cuFuncSetAttribute, tiles.kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              tiles.schedule.shared_bytes);
  for (std::size_t i = 0; i < products.size(); ++i)
    tiles.maps.push_back(maps_of(products[i], operands[i], dtype, c));
  return tiles;
}

void launch(const TileLaunch& tiles, std::span<const void* const> arguments,
            const cu::CudaStream& stream) {
  const TileSchedule& schedule = tiles.schedule;
  std::vector<void*> all;
  for (std::size_t i = 0; i < tiles.maps.size(); ++i) {
    const TileLaunch::Maps& maps = tiles.maps[i];
    const void* const each[] = {&maps.a, &maps.b, maps.staged, &schedule.problems[i], arguments[i]};
    for (const void* argument : each) all.push_back(const_cast<void*>(argument));
  }
  all.push_back(const_cast<TileRanges*>(schedule.ranges.data()));
  launch_programmatic(tiles.kernel, {schedule.blocks}, static_cast<unsigned>(schedule.threads),
                      stream, all.data(), static_cast<unsigned>(schedule.shared_bytes));
}

}  // namespace brrr::on_cuda
