// Launches attention.cu and attention_mask.cu.
#include "brrr/ops/attention.h"

#include <fmt/format.h>

#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/fail.h"

namespace brrr::sources {
extern const char attention_products_inl[];
extern const char attention_cu[];
extern const char attention_mask_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int kThreads = 128, kRows = 64;

// As attention.cu has them.
struct RowsOf {
  const void* data = nullptr;
  int64_t outer = 0, inner = 0, row = 0;
};
struct MaskOf {
  const void* data = nullptr;
  int64_t outer = 0, inner = 0, row = 0, column = 0;
  const void* tiles = nullptr;
  int64_t tiles_outer = 0, tiles_inner = 0, tiles_row = 0, tiles_column = 0;
};
struct Attention {
  RowsOf q, k, v, out;
  MaskOf mask;
  const void* log_sum;
  float scale;
  int32_t queries, keys, inner_batches;
};
struct AttentionGradient {
  Attention of;
  RowsOf dout, dq, dk, dv;
  void* delta;
  float dq_scale;
};
struct MaskTiles {
  const void* mask;
  void* tiles;
  int64_t outer, inner, row, column;
  int32_t rows, columns, inner_batches;
};

// The stride of dimension `d` of a space of four, into which a tensor is broadcast from the right.
int64_t stride_of(const Tensor& x, int d) {
  const int own = d - (4 - x.rank());
  return own < 0 || x.size(own) == 1 ? 0 : x.strides()[static_cast<std::size_t>(own)];
}
int64_t size_of_dim(const Tensor& x, int d) {
  const int own = d - (4 - x.rank());
  return own < 0 ? 1 : x.size(own);
}

bool is_aligned(const Tensor& x, int64_t stride) {
  return stride * static_cast<int64_t>(size_of(x.dtype())) % 16 == 0;
}

// Rows are read 16 bytes at a time.
RowsOf rows_of(const Tensor& x) {
  const RowsOf rows{x.data(), stride_of(x, 0), stride_of(x, 1), stride_of(x, 2)};
  if (reinterpret_cast<std::uintptr_t>(x.data()) % 16 != 0 || stride_of(x, 3) != 1 ||
      !is_aligned(x, rows.outer) || !is_aligned(x, rows.inner) || !is_aligned(x, rows.row))
    fail("[{}] expected rows of adjacent elements on multiples of 16 bytes, got {}",
         op_or("attention"), x.describe());
  return rows;
}

bool is_swizzled(DType dtype, int64_t width, int architecture) {
  return architecture == 90 && is_half(dtype) && width % 64 == 0;
}

// How a kernel of some rows is compiled.
struct Variant {
  DType dtype;
  int64_t width;
  bool masked, swizzled;

  Variant(const Tensor& query, bool mask)
      : dtype(query.dtype()),
        width(query.size(-1)),
        masked(mask),
        swizzled(is_swizzled(dtype, width, jit::architecture_of(query.device()))) {}
  int tile() const { return dtype == f32 ? 32 : 64; }
  unsigned shared_bytes() const {
    const int64_t unit = 16 / static_cast<int64_t>(size_of(dtype));
    const int64_t elements =
        4 * tile() * (swizzled ? width : width + unit) + (swizzled ? 2 * kRows * width : unit);
    const int64_t of_queries = 4 * tile() * static_cast<int64_t>(sizeof(float));
    return static_cast<unsigned>(elements * static_cast<int64_t>(size_of(dtype)) + of_queries +
                                 1024);
  }
  CUfunction kernel(const cu::CudaStream& stream, int which) const {
    constexpr const char* kEntries[] = {"attention", "attention_query_gradient",
                                        "attention_key_gradient"};
    const auto packed = static_cast<std::uint64_t>(width) << 16 |
                        static_cast<std::uint64_t>(dtype) << 8 | std::uint64_t{masked} << 2 |
                        static_cast<std::uint64_t>(which);
    return hand_written(stream, sources::attention_cu, packed, kEntries[which],
                        [this] { return text(); }, {.architecture_specific = swizzled});
  }
  std::string text() const {
    return typedef_of(dtype, "Element") +
           fmt::format("constexpr int kWidth = {}, kTile = {};\nconstexpr bool kMasked = {};\n",
                       width, tile(), masked) +
           sources::attention_products_inl + sources::attention_cu;
  }
  template <class Args>
  void launch(const cu::CudaStream& stream, int which, Grid grid, const Args& args) const {
    const CUfunction function = kernel(stream, which);
    const unsigned bytes = shared_bytes();
    if (function)
      BRRR_CUDA(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                static_cast<int>(bytes));
    void* pointers[] = {const_cast<Args*>(&args)};
    launch_programmatic(function, grid, kThreads, stream, pointers, bytes);
  }
};

MaskOf mask_of(const Tensor& mask, const Tensor& tiles) {
  return {mask.data(),         stride_of(mask, 0), stride_of(mask, 1),  stride_of(mask, 2),
          stride_of(mask, 3),  tiles.data(),       stride_of(tiles, 0), stride_of(tiles, 1),
          stride_of(tiles, 2), stride_of(tiles, 3)};
}

Attention attention_of(const Call& call, const Tensor& out, const Tensor& log_sum, int mask) {
  const Tensor &q = call.input(0), &k = call.input(1);
  Attention a{.q = rows_of(q),
              .k = rows_of(k),
              .v = rows_of(call.input(2)),
              .out = rows_of(out),
              .mask = {},
              .log_sum = log_sum.data(),
              .scale = static_cast<float>(call.attrs[0].d()),
              .queries = static_cast<int32_t>(q.size(-2)),
              .keys = static_cast<int32_t>(k.size(-2)),
              .inner_batches = static_cast<int32_t>(size_of_dim(q, 1))};
  if (static_cast<int>(call.n_inputs) > mask)
    a.mask = mask_of(call.input(mask), call.input(mask + 1));
  return a;
}

Grid grid_of(const Tensor& rows) {
  return {size_of_dim(rows, 0) * size_of_dim(rows, 1), ceil_div(rows.size(-2), kRows)};
}

}  // namespace

void fused_attention(const Call& call, Tensor* outputs) {
  const Tensor& query = call.input(0);
  if (query.numel() == 0) return;
  cu::CudaStream& stream = cu::current_stream(query.device());
  Attention a = attention_of(call, outputs[0], outputs[1], 3);
  if (call.attrs[1].i()) std::swap(a.out.inner, a.out.row);
  Variant(query, a.mask.data).launch(stream, 0, grid_of(query), a);
}

void fused_attention_gradient(const Call& call, Tensor* outputs) {
  const Tensor &query = call.input(0), &key = call.input(1);
  cu::CudaStream& stream = cu::current_stream(query.device());
  const AttentionGradient g{.of = attention_of(call, call.input(3), call.input(4), 6),
                            .dout = rows_of(call.input(5)),
                            .dq = rows_of(outputs[0]),
                            .dk = rows_of(outputs[1]),
                            .dv = rows_of(outputs[2]),
                            .delta = outputs[3].data(),
                            .dq_scale = static_cast<float>(call.attrs[1].d())};
  const Variant variant(query, g.of.mask.data);
  variant.launch(stream, 1, grid_of(query), g);
  variant.launch(stream, 2, grid_of(key), g);
}

void fused_attention_mask(const Call& call, Tensor* outputs) {
  const Tensor &mask = call.input(0), &tiles = outputs[0];
  if (mask.numel() == 0) return;
  cu::CudaStream& stream = cu::current_stream(mask.device());
  const MaskTiles m{mask.data(),
                    tiles.data(),
                    stride_of(mask, 0),
                    stride_of(mask, 1),
                    stride_of(mask, 2),
                    stride_of(mask, 3),
                    static_cast<int32_t>(mask.size(-2)),
                    static_cast<int32_t>(mask.size(-1)),
                    static_cast<int32_t>(size_of_dim(mask, 1))};
  const Grid grid{tiles.size(-1), tiles.size(-2), size_of_dim(mask, 0) * size_of_dim(mask, 1)};
  const CUfunction kernel =
      hand_written(stream, sources::attention_mask_cu, 0, "attention_mask_tiles",
                   [] { return std::string(sources::attention_mask_cu); });
  on_cuda::launch(kernel, grid, kThreads, stream, m);
}

}  // namespace brrr::on_cuda

namespace brrr {

bool supports_attention(DType dtype, std::int64_t width, Device device) {
  if (!device.is_cuda() || jit::architecture_of(device) < 80) return false;
  if (dtype == f32) return matmul_precision() == Precision::tf32 && width % 8 == 0 && width <= 64;
  if (!is_half(dtype) || width % 16 != 0) return false;
  return width <= 64 ||
         (width == 128 && on_cuda::is_swizzled(dtype, width, jit::architecture_of(device)));
}

}  // namespace brrr
