#include "brrr/ops/jit/small_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/sources.h"

namespace brrr::jit {
namespace {

constexpr std::int64_t kTile = 16;

// The largest number that every stride of the batch is a multiple of.
std::int64_t common_stride(const Dims& strides) {
  std::int64_t common = 0;
  for (const std::int64_t stride : strides) common = std::gcd(common, stride);
  return common;
}

// `run`: the adjacent elements that a lane takes of a line.
OperandLayout layout_of(const FactorLines& x, std::int64_t size, int alignment, std::int64_t run) {
  // Offsets in a matrix are computed in 32 bits.
  const auto near = [](std::int64_t stride, std::int64_t count) {
    return stride >= 0 && stride * count < std::int64_t{1} << 31;
  };
  if (!near(x.line_stride, x.lines) || !near(x.depth_stride, x.depth))
    return OperandLayout::strided;
  const std::int64_t batch_stride = common_stride(*x.batch_strides);
  const auto whole = [&](std::int64_t elements, std::int64_t stride) {
    return alignment % (elements * size) == 0 && stride % elements == 0 &&
           batch_stride % elements == 0;
  };
  if (x.depth_stride == 1 && x.depth % run == 0 && whole(std::min(run, 16 / size), x.line_stride))
    return OperandLayout::k_contiguous;
  if (x.line_stride == 1 && x.lines % 2 == 0 && size > 1 && whole(2, x.depth_stride))
    return OperandLayout::mn_contiguous;
  return OperandLayout::strided;
}

constexpr std::string_view kFactors = R"(struct SmallFactors {
  i64 a_row, a_col, b_row, b_col;
  i32 m, n, k;
};
template <int N>
struct ComputedStrides {
  i64 of[2 * N];  // of each input of a computed factor, from one line to the next and along it
};
enum OperandLayout { k_contiguous, mn_contiguous, strided, one_per_line };
)";

// The entry of a call: stores the sum, a row added to it.
constexpr std::string_view kEntry = R"(
struct SmallProduct {
  const Element* a;
  const Element* b;
  Element* d;
  const Element* row;  // null: none
  i64 row_step, d_row, d_col, a_batch, b_batch, d_batch;
  SmallFactors factors;
};

extern "C" __global__ void __launch_bounds__(kThreads)
    matmul_small(const __grid_constant__ SmallProduct p) {
  __shared__ float parts[kWarps][kTile][kTile + 8];
  SmallTile<FactorA, FactorB> tile{
      {{p.a + blockIdx.z * p.a_batch, p.factors.a_row, p.factors.a_col}},
      {{p.b + blockIdx.z * p.b_batch, p.factors.b_col, p.factors.b_row}},
      int(blockIdx.y) * kTile,
      int(blockIdx.x) * kTile};
  const int row = tile.row0 + threadIdx.x / kTile, col = tile.col0 + threadIdx.x % kTile;
  wait_for_previous_kernel();
  tile.load(p.factors);
  float added = 0;
  if (p.row && col < p.factors.n) added = widen(p.row[col * p.row_step]);
  const float sum = tile.sum(p.factors, parts, [](const FactorA::Operand&, const FactorB::Operand&, int) {});
  if (row < p.factors.m && col < p.factors.n)
    p.d[blockIdx.z * p.d_batch + row * p.d_row + col * p.d_col] = narrow<Element>(sum + added);
}
)";

}  // namespace

// A block computes 16 x 16 results and reads its factors from the cache, so a small product takes
// the latency of a few loads. It falls behind the library where blocks wait for multiprocessors
// (more than two of them each) or sum for long. The host launches it in less time than the library
// takes for a call.
bool is_small(const MatrixProduct& p, DType dtype, bool tf32) {
  if (!(is_half(dtype) || (dtype == f32 && tf32))) return false;
  constexpr std::int64_t kMostBlocks = 256, kMostDepth = 1024;
  if (p.k > kMostDepth || p.m > kTile * kMostBlocks || p.n > kTile * kMostBlocks) return false;
  const std::int64_t tiles = ceil_div(p.m, kTile) * ceil_div(p.n, kTile);
  if (tiles > kMostBlocks || p.batches() > kMostBlocks / tiles) return false;
  return tiles * p.batches() * p.k <= std::int64_t{1} << (dtype == f32 ? 17 : 16);
}

SmallFactors small_factors(const MatrixProduct& p) {
  return {p.a.row,
          p.a.col,
          p.b.row,
          p.b.col,
          static_cast<std::int32_t>(p.m),
          static_cast<std::int32_t>(p.n),
          static_cast<std::int32_t>(p.k)};
}

SmallSchedule small_schedule(const MatrixProduct& p, DType dtype, FactorAlignment alignment) {
  const auto size = static_cast<std::int64_t>(size_of(dtype)), run = 16 / size;
  // Half of what all warps take of the depth at once spares a shallow product registers and code.
  return {dtype, layout_of(lines_of_a(p), size, alignment.a, run),
          layout_of(lines_of_b(p), size, alignment.b, run), p.k * size <= 512 ? 1 : 2};
}

std::vector<OperandLayout> layouts_of(std::span<const FactorLines> inputs,
                                      std::span<const DType> types, std::span<const int> alignments,
                                      DType dtype) {
  std::vector<OperandLayout> layouts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const FactorLines& x = inputs[i];
    OperandLayout layout = layout_of(x, static_cast<std::int64_t>(size_of(types[i])), alignments[i],
                                     16 / static_cast<std::int64_t>(size_of(dtype)));
    if (i > 0 && x.depth_stride == 0) {
      layout = OperandLayout::one_per_line;
    } else if (i > 0 && layout == OperandLayout::mn_contiguous && layouts[0] != layout) {
      layout = OperandLayout::strided;
    }
    layouts.push_back(layout);
  }
  return layouts;
}

SmallGrid small_grid(const MatrixProduct& p) {
  return {ceil_div(p.n, kTile), ceil_div(p.m, kTile), p.batches()};
}

std::string_view name_of(OperandLayout layout) {
  constexpr std::string_view kNames[] = {"k_contiguous", "mn_contiguous", "strided",
                                         "one_per_line"};
  return kNames[static_cast<int>(layout)];
}

std::string matmul_small_source(DType dtype, int ahead) {
  const std::string instruction =
      dtype == f32 ? "m16n8k8.row.col.f32.tf32.tf32.f32"
                   : fmt::format("m16n8k16.row.col.f32.{0}.{0}.f32", name_of(dtype));
  return pieces::typedef_of(dtype, "Element") +
         fmt::format(
             "#define MULTIPLY \"{}\"\nconstexpr bool kRounds = {};\nconstexpr int kAhead = {};\n",
             instruction, dtype == f32, ahead) +
         sources::matmul_small_cu;
}

std::string_view small_factors_source() { return kFactors; }

std::string matmul_small_source_of_call(const SmallSchedule& schedule) {
  std::string text(kFactors);
  text += matmul_small_source(schedule.dtype, schedule.ahead);
  text += fmt::format("typedef StoredFactor<{}> FactorA;\ntypedef StoredFactor<{}> FactorB;\n",
                      name_of(schedule.a), name_of(schedule.b));
  return text.append(kEntry);
}

}  // namespace brrr::jit
