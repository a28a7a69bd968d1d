#include "brrr/ops/cuda/matmul_layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "brrr/tensor/fail.h"

namespace brrr::on_cuda {
namespace {

MatrixStrides strides_of(const Tensor& x) {
  const int rank = x.rank();
  MatrixStrides strides;
  strides.row = x.strides()[rank - 2];
  strides.col = x.strides()[rank - 1];
  return strides;
}

// True when stepping the outer dimension is `size` steps of the inner one.
bool merges(std::int64_t outer, std::int64_t inner, std::int64_t size) {
  return outer == inner * size;
}

// The batch dimensions, with a, b and d as operands.
StridedSpace batches_of(const Tensor& a, const Tensor& b, const Tensor& d) {
  const auto batch = [](std::span<const std::int64_t> dims) { return dims.first(dims.size() - 2); };
  StridedSpace space = space_of(batch(d.shape()));
  for (const Tensor* x : {&a, &b, &d}) add_operand(space, batch(x->shape()), batch(x->strides()));
  coalesce(space);
  return space;
}

// An aligned stride for a dimension of size 1, whose stride is never used, so that it excludes no
// algorithm.
std::int64_t rounded(std::int64_t size) { return (size + 15) / 16 * 16; }

}  // namespace

MatrixProduct product_of(const Tensor& a, const Tensor& b, const Tensor& d) {
  MatrixProduct p;
  p.m = a.shape()[a.rank() - 2];
  p.k = a.shape()[a.rank() - 1];
  p.n = b.shape()[b.rank() - 1];
  p.a = strides_of(a);
  p.b = strides_of(b);
  p.d = strides_of(d);
  StridedSpace batches = batches_of(a, b, d);
  if (batches.rank == 1 && batches.size[0] == 1) return p;
  for (int last = batches.rank - 1; last >= 0; --last, --batches.rank) {
    const std::int64_t size = batches.size[last], of_a = batches.stride[0][last],
                       of_b = batches.stride[1][last], of_d = batches.stride[2][last];
    const bool rows_of_a = of_b == 0 && p.a.col == 1 && p.m > 0 &&
                           (p.m == 1 || (merges(of_a, p.a.row, p.m) && merges(of_d, p.d.row, p.m)));
    // Rows with stride 0 would have to be copied; as a batch with stride 0 they need not.
    if (!rows_of_a || of_a == 0) break;
    if (p.m == 1) {
      p.a.row = of_a;
      p.d.row = of_d;
    }
    p.m *= size;
  }
  for (int i = 0; i < batches.rank; ++i) {
    p.batch.push_back(batches.size[i]);
    p.a.batch.push_back(batches.stride[0][i]);
    p.b.batch.push_back(batches.stride[1][i]);
    p.d.batch.push_back(batches.stride[2][i]);
  }
  return p;
}

StridedSpace batches_outside(const MatrixProduct& p, int inner) {
  StridedSpace space;
  space.operands = 3;
  for (int i = 0; i < p.batch.size(); ++i) {
    if (i == inner) continue;
    for (int k = 0; k < 3; ++k)
      space.stride[k][space.rank] = (k == 0 ? p.a : k == 1 ? p.b : p.d).batch[i];
    space.add_dim(p.batch[i]);
  }
  coalesce(space);
  return space;
}

void transpose(MatrixProduct& p) {
  std::swap(p.a, p.b);
  std::swap(p.m, p.n);
  for (MatrixStrides* strides : {&p.a, &p.b, &p.d}) std::swap(strides->row, strides->col);
}

std::optional<LibraryOperand> as_library_operand(std::int64_t rows, std::int64_t cols,
                                                 std::int64_t row_stride, std::int64_t col_stride) {
  std::int64_t as_is = 0, as_transposed = 0;
  if ((cols == 1 || col_stride == 1) && (rows == 1 || row_stride >= cols)) {
    as_is = rows == 1 ? rounded(cols) : row_stride;
  }
  if ((rows == 1 || row_stride == 1) && (cols == 1 || col_stride >= rows)) {
    as_transposed = cols == 1 ? rounded(rows) : col_stride;
  }
  if (as_is <= 0 && as_transposed <= 0) return {};
  // Both, when a dimension is 1: the longer leading dimension leaves adjacent elements adjacent.
  if (as_is >= as_transposed) return LibraryOperand{false, as_is};
  return LibraryOperand{true, as_transposed};
}

std::int64_t leading_of_result(std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                               std::int64_t col_stride) {
  if (cols > 1 && col_stride != 1) return 0;
  if (rows == 1) return rounded(cols);
  return row_stride >= cols ? row_stride : 0;
}

int widest(const Dims& batch) {
  return batch.empty()
             ? -1
             : static_cast<int>(std::max_element(batch.begin(), batch.end()) - batch.begin());
}

KernelStrides kernel_strides(const MatrixProduct& p, int batch_dim) {
  const auto batch = [batch_dim](const MatrixStrides& of) {
    return batch_dim < 0 ? 0 : of.batch[batch_dim];
  };
  return {p.a.row, p.a.col, p.b.row, p.b.col, p.d.row, p.d.col, batch(p.a), batch(p.b), batch(p.d)};
}

std::optional<LibraryProduct> as_library_product(const MatrixProduct& product) {
  LibraryProduct result;
  result.product = product;
  MatrixProduct& p = result.product;
  // Treats a single column of results as a row, whose elements are adjacent.
  result.exchanged =
      (p.n == 1 && p.m > 1 && p.d.row == 1) || leading_of_result(p.m, p.n, p.d.row, p.d.col) == 0;
  if (result.exchanged) transpose(p);
  const std::int64_t leading_d = leading_of_result(p.m, p.n, p.d.row, p.d.col);
  const auto x = as_library_operand(p.k, p.n, p.b.row, p.b.col),
             y = as_library_operand(p.m, p.k, p.a.row, p.a.col);
  if (leading_d == 0 || !x || !y) return {};

  result.inner = widest(p.batch);
  for (int i = 0; i < p.batch.size(); ++i) result.calls *= i == result.inner ? 1 : p.batch[i];
  MatmulKey& key = result.key;
  key.rows = p.n;
  key.cols = p.m;
  key.depth = p.k;
  key.leading_x = x->leading;
  key.leading_y = y->leading;
  key.leading_d = leading_d;
  key.transpose_x = x->transposed;
  key.transpose_y = y->transposed;
  if (result.inner >= 0) {
    const std::int64_t batches = p.batch[result.inner];
    if (batches > INT32_MAX) fail("[matmul] expected a batch below 2^31, got {}", batches);
    key.batches = static_cast<std::int32_t>(batches);
    key.batch_x = p.b.batch[result.inner];
    key.batch_y = p.a.batch[result.inner];
    key.batch_d = p.d.batch[result.inner];
  }
  return result;
}

namespace {

constexpr int kWords = sizeof(MatmulKey) / 8;
struct Factors {
  std::uint64_t of[kWords];
};
// Odd and without a pattern (splitmix64).
constexpr Factors kFactors = [] {
  Factors factors{};
  std::uint64_t state = 0;
  for (std::uint64_t& factor : factors.of) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    factor = (z ^ (z >> 31)) | 1u;
  }
  return factors;
}();

}  // namespace

std::uint64_t hash_of(const MatmulKey& key) {
  std::uint64_t words[kWords];
  std::memcpy(words, &key, sizeof words);
  // Products that do not wait for one another, then one round of mixing.
  std::uint64_t sum = 0;
  for (int i = 0; i < kWords; ++i) sum += words[i] * kFactors.of[i];
  sum ^= sum >> 32;
  return sum * 0x9e3779b97f4a7c15u >> 7;
}

}  // namespace brrr::on_cuda
