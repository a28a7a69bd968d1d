// Expresses products of tensors as cuBLASLt's strided-batched products, by arithmetic on shapes and
// strides.
//
// brrr is row-major and the library column-major, so it computes D^T = B^T A^T. Its first operand x
// is our B, its second operand y our A. A matrix with contiguous rows (in brrr's terms) is op N,
// one with contiguous columns op T.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include <brrr/ops/jit/matrix_product.h>
#include <brrr/tensor/dims.h>
#include <brrr/tensor/dtype.h>
#include <brrr/tensor/strided_space.h>

namespace brrr::on_cuda {

using jit::MatrixProduct, jit::MatrixStrides;

// The product of two tensors of at least two dimensions into `d`, which has the broadcast shape.
// If b is one matrix for a whole batch, the batch becomes rows of a.
MatrixProduct product_of(const Tensor& a, const Tensor& b, const Tensor& d);

// The same product as d^T = b^T a^T.
void transpose(MatrixProduct& product);

// A matrix of our rows x cols as an operand of the library, which reads it as the transpose.
struct LibraryOperand {
  bool transposed = false;
  std::int64_t leading = 0;
  friend bool operator==(const LibraryOperand&, const LibraryOperand&) = default;
};

// Nothing when neither stride is 1 or the rows overlap: then it takes a copy.
std::optional<LibraryOperand> as_library_operand(std::int64_t rows, std::int64_t cols,
                                                 std::int64_t row_stride, std::int64_t col_stride);
// The leading dimension of a result, which cannot be transposed; 0 when it cannot be written in
// place.
std::int64_t leading_of_result(std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                               std::int64_t col_stride);

// log2 of the alignment of an address, at most 16 bytes: no kernel asks for more, and a shape
// should not change its algorithm, and so its bits, for less.
inline std::uint8_t alignment_class(const void* address) {
  return static_cast<std::uint8_t>(__builtin_ctzll(
      static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(address)) | 16u));
}

// The same as a number of bytes, as schedules take it.
inline int alignment_of(const void* address) { return 1 << alignment_class(address); }

enum class Epilogue : std::uint16_t { none, bias };  // bias: a column added to each of d's

// Everything that the choice of an algorithm may depend on. Plain words, hashed and compared as
// bytes.
struct MatmulKey {
  std::int64_t rows = 0, cols = 0, depth = 0;  // of the library's problem: our n, m, k
  std::int64_t leading_x = 0, leading_y = 0, leading_d = 0;
  std::int64_t batch_x = 0, batch_y = 0, batch_d = 0;  // strides from one matrix to the next
  std::int32_t batches = 1;
  std::uint8_t transpose_x = 0, transpose_y = 0;
  DType dtype = DType::f32;
  std::uint8_t tf32 = 0;
  Epilogue epilogue = Epilogue::none;
  std::uint16_t device = 0;
  std::uint8_t measured = 0;
  std::uint8_t align_x = 4, align_y = 4, align_d = 4;

  friend bool operator==(const MatmulKey& a, const MatmulKey& b) {
    return __builtin_memcmp(&a, &b, sizeof a) == 0;
  }
};
static_assert(sizeof(MatmulKey) == 88 && std::has_unique_object_representations_v<MatmulKey>);

std::uint64_t hash_of(const MatmulKey& key);

// A product as calls of the library: shapes, layouts and batches are filled in the key, the rest is
// the caller's.
struct LibraryProduct {
  MatmulKey key;
  MatrixProduct product;
  int inner = -1;          // the dimension of product.batch in the key; the others are looped over
  bool exchanged = false;  // it became d^T = b^T a^T: product.a is our b
  std::int64_t calls = 1;
};
// Nothing when the library cannot take the layout of an operand or of the result.
std::optional<LibraryProduct> as_library_product(const MatrixProduct& product);

// The batch dimensions other than `inner`, with a, b and d as operands.
StridedSpace batches_outside(const MatrixProduct& p, int inner);
// Calls f(offset_a, offset_b, offset_d), in elements, for every index of those dimensions.
template <class F>
void each_outer(const MatrixProduct& p, int inner, F&& f) {
  const StridedSpace space = batches_outside(p, inner);
  for (std::int64_t i = 0, n = space.count(); i < n; ++i) {
    const Coordinates place(space, i);
    f(place.offset(space, 0), place.offset(space, 1), place.offset(space, 2));
  }
}

// The largest dimension of a batch; -1 when there is none.
int widest(const Dims& batch);

// Strides as our kernels take them, which walk one dimension of the batch; -1: none.
struct KernelStrides {
  std::int64_t a_row, a_col, b_row, b_col, d_row, d_col;
  std::int64_t a_batch, b_batch, d_batch;
};
KernelStrides kernel_strides(const MatrixProduct& product, int batch_dim);

}  // namespace brrr::on_cuda
