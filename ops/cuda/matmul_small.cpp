#include "brrr/ops/cuda/matmul_small.h"

#include <fmt/format.h>

#include "brrr/ops/cuda/hand_written.h"

namespace brrr::text {
extern const char matmul_small_cu[];
}  // namespace brrr::text

namespace brrr::on_cuda {
namespace {

constexpr std::int64_t kTile = 16;

std::int64_t batches_of(const MatrixProduct& p) { return p.batch.empty() ? 1 : p.batch[0]; }

// A line is what is summed along; `line` and `step` are the strides between lines and along one.
OperandLayout layout_of(const void* data, std::int64_t line, std::int64_t step, std::int64_t batch,
                        std::int64_t lines, std::int64_t depth, std::int64_t size) {
  // Offsets in a matrix are computed in 32 bits.
  const auto near = [](std::int64_t stride, std::int64_t count) {
    return stride >= 0 && stride * count < std::int64_t{1} << 31;
  };
  if (!near(line, lines) || !near(step, depth)) return OperandLayout::strided;
  const auto whole = [&](std::int64_t elements, std::int64_t stride, std::int64_t extent) {
    const std::int64_t bytes = elements * size;
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0 &&
           stride % elements == 0 && batch % elements == 0 && extent % elements == 0;
  };
  if (step == 1 && whole(16 / size, line, depth)) return OperandLayout::k_contiguous;
  if (line == 1 && whole(2, step, lines)) return OperandLayout::mn_contiguous;
  return OperandLayout::strided;
}

// The arguments of an entry.
struct SmallProduct {
  const void* a;
  const void* b;
  void* d;
  const void* row;
  std::int64_t row_step, d_row, d_col, a_batch, b_batch, d_batch;
  SmallFactors factors;
};

constexpr std::string_view kFactors = R"(struct SmallFactors {
  i64 a_row, a_col, b_row, b_col;
  i32 m, n, k;
};
)";

// The entry of a call: stores the sum, a row added to it.
constexpr std::string_view kEntry = R"(
struct SmallProduct {
  const Bits* a;
  const Bits* b;
  Element* d;
  const Element* row;  // null: none
  i64 row_step, d_row, d_col, a_batch, b_batch, d_batch;
  SmallFactors factors;
};

extern "C" __global__ void __launch_bounds__(kThreads)
    matmul_small(const __grid_constant__ SmallProduct p) {
  __shared__ float parts[kWarps][kTile][kTile + 8];
  SmallTile tile{p.a + blockIdx.z * p.a_batch, p.b + blockIdx.z * p.b_batch,
                 int(blockIdx.y) * kTile, int(blockIdx.x) * kTile};
  const int row = tile.row0 + threadIdx.x / kTile, col = tile.col0 + threadIdx.x % kTile;
  wait_for_previous_kernel();
  tile.load(p.factors);
  float added = 0;
  if (p.row && col < p.factors.n) added = widen(p.row[col * p.row_step]);
  const float sum = tile.sum(p.factors, parts, [](const FragmentA&, const FragmentB&, int) {});
  if (row < p.factors.m && col < p.factors.n)
    p.d[blockIdx.z * p.d_batch + row * p.d_row + col * p.d_col] = narrow<Element>(sum + added);
}
)";

}  // namespace

SmallSchedule small_schedule(const SmallFactors& p, DType dtype, const void* a,
                             std::int64_t a_batch, const void* b, std::int64_t b_batch) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  // Half of what all warps take of the depth at once spares a shallow product registers and code.
  return {dtype, layout_of(a, p.a_row, p.a_col, a_batch, p.m, p.k, size),
          layout_of(b, p.b_col, p.b_row, b_batch, p.n, p.k, size), p.k * size <= 512 ? 1 : 2};
}

std::string matmul_small_text(const SmallSchedule& schedule) {
  const DType dtype = schedule.dtype;
  const std::string instruction =
      dtype == f32 ? "m16n8k8.row.col.f32.tf32.tf32.f32"
                   : fmt::format("m16n8k16.row.col.f32.{0}.{0}.f32", name_of(dtype));
  constexpr std::string_view kNames[] = {"k_contiguous", "mn_contiguous", "strided"};
  return typedef_of(dtype, "Element") + typedef_of_bits(dtype, "Bits") +
         fmt::format(
             "#define MULTIPLY \"{}\"\nenum OperandLayout {{ k_contiguous, mn_contiguous, strided "
             "}};\n"
             "constexpr bool kRounds = {};\nconstexpr int kAhead = {};\n"
             "constexpr OperandLayout kLayoutA = {}, kLayoutB = {};\n",
             instruction, dtype == f32, schedule.ahead, kNames[static_cast<int>(schedule.a)],
             kNames[static_cast<int>(schedule.b)]) +
         text::matmul_small_cu;
}

std::string_view small_factors_text() { return kFactors; }

std::string matmul_small_text_of_call(const SmallSchedule& schedule) {
  return std::string(kFactors).append(matmul_small_text(schedule)).append(kEntry);
}

Grid small_grid(const SmallFactors& p, std::int64_t batches) {
  return {ceil_div(p.n, kTile), ceil_div(p.m, kTile), batches};
}

// Measured on an H200 over some twenty shapes, each as x W^T + row, g W and g^T x, as nodes of a
// graph with operands in the cache, against the library's best algorithm. 64 x 128 x 128: 1.8
// to 2.0 us (TF32 3.1 to 3.8, bf16 2.2 to 2.5); 128 x 256 x 256: 2.2 to 2.8 (3.8 to 5.0, 2.4
// to 2.7); odd sizes, element by element: 2.2 to 5.4 (2.7 to 6.5). It falls behind where blocks
// wait for multiprocessors or sum for long: with 512 blocks of depth 512 in TF32, with 256 in bf16,
// where the library is better. At this rule's edge, bf16 256 x 256 x 256, it is from a tenth faster
// to a sixth slower as a node, and faster by far for the host: 2.4 to 3.1 us where the library
// takes 5 to 7.5.
bool is_small(const MatrixProduct& p, DType dtype, bool tf32) {
  if (!(is_half(dtype) || (dtype == f32 && tf32)) || p.batch.size() > 1) return false;
  constexpr std::int64_t kMostBlocks = 256, kMostDepth = 1024;
  if (p.k > kMostDepth || p.m > kTile * kMostBlocks || p.n > kTile * kMostBlocks) return false;
  const std::int64_t tiles = ceil_div(p.m, kTile) * ceil_div(p.n, kTile);
  if (tiles > kMostBlocks || batches_of(p) > kMostBlocks / tiles) return false;
  return tiles * batches_of(p) * p.k <= std::int64_t{1} << (dtype == f32 ? 17 : 16);
}

void multiply_small(const MatrixProduct& p, const Tensor& a, const Tensor& b, const Tensor* row,
                    Tensor& d, cu::CudaStream& stream) {
  const DType dtype = a.dtype();
  const KernelStrides s = kernel_strides(p, p.batch.empty() ? -1 : 0);
  const SmallFactors factors{s.a_row,
                             s.a_col,
                             s.b_row,
                             s.b_col,
                             static_cast<std::int32_t>(p.m),
                             static_cast<std::int32_t>(p.n),
                             static_cast<std::int32_t>(p.k)};
  const SmallSchedule schedule =
      small_schedule(factors, dtype, a.data(), s.a_batch, b.data(), s.b_batch);
  const CUfunction kernel =
      hand_written(stream, text::matmul_small_cu, schedule.key(), "matmul_small",
                   [&] { return matmul_small_text_of_call(schedule); });
  const SmallProduct one{a.data(),
                         b.data(),
                         d.data(),
                         row ? row->data() : nullptr,
                         row ? row->strides()[0] : 0,
                         s.d_row,
                         s.d_col,
                         s.a_batch,
                         s.b_batch,
                         s.d_batch,
                         factors};
  launch(kernel, small_grid(factors, batches_of(p)), kSmallThreads, stream, one);
}

}  // namespace brrr::on_cuda
