// Matrix products. Floats go to BLAS, on one of its threads per call, over panels of the result
// whose boundaries depend only on the shapes: our threads run the panels, and bits do not depend on
// how many there are. f32 goes to kernels of our own (matmul_vectors.cpp) where the CPU has AVX2 or
// AVX-512, unless the product is so large that BLAS is as fast; these have the same bits however a
// product is cut, so panels may suit the number of threads. Products of f32 flush denormal
// numbers to 0: training produces them, and with them a step took twice as long on an Intel CPU.
// Views whose rows or columns are contiguous are read without a copy; 16-bit floats are multiplied
// as f32.

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/cpu/blas.h"
#include "brrr/ops/cpu/flush_denormals.h"
#include "brrr/ops/cpu/matmul_vectors.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

// The least cost of a panel, in multiplications, if a product is cut into small panels; and the
// number of panels below which it is.
constexpr i64 kPanelWork = i64{1} << 21;
constexpr i64 kFewPanels = 8;
// The least cost of a panel of our own kernels, worth a thread that is awake.
constexpr i64 kSharedWork = i64{1} << 18;

// Two dimensions of a tensor, as BLAS reads them: row-major, or its transpose.
struct Matrix {
  i64 leading = 1;
  bool transposed = false;
};

// Whether a matrix of these strides can be read without a copy.
bool readable(i64 rows, i64 columns, i64 row_stride, i64 column_stride, Matrix& matrix) {
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1)) {
    matrix = {std::max(row_stride, columns), false};
    if (rows == 1) matrix.leading = columns;
    return true;
  }
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1)) {
    matrix = {columns == 1 ? rows : column_stride, true};
    return true;
  }
  return false;
}

Matrix matrix_of(Tensor& tensor) {
  Matrix matrix;
  const i64 rows = tensor.size(-2), columns = tensor.size(-1);
  if (!readable(rows, columns, tensor.stride(-2), tensor.stride(-1), matrix)) {
    const Tensor copied = make_tensor(tensor.dtype(), tensor.shape(), cpu);
    copy_tensor(copied, tensor);
    tensor = copied;
    matrix = {columns, false};
  }
  return matrix;
}

void one_blas_thread() {
  static const bool once = [] {
    if (blas_is_openblas()) openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

// OpenBLAS chooses kernels by the CPU's model; older versions have none for newer CPUs of AMD.
bool blas_lacks_avx512() {
  if (!blas_is_openblas()) return false;
  const std::string_view config = openblas_get_config();
  return std::ranges::none_of(
      std::initializer_list<std::string_view>{" SkylakeX", " Cooperlake", " SapphireRapids"},
      [&](std::string_view name) { return config.find(name) != std::string_view::npos; });
}

// Whether a product is for our own kernels. Vectors are bound by memory, narrow results by packing
// the other factor. BLAS is as fast where it cuts large products to fit the caches, with kernels
// for the same instruction set.
bool is_for_vectors(i64 M, i64 N, i64 K) {
  constexpr i64 kNarrow = 8, kLargeAvx2 = i64{1} << 25, kLarge = i64{1} << 27;
  if (M == 1 || N < kNarrow || vector_isa() == VectorIsa::none) return false;
  static const i64 large = vector_isa() == VectorIsa::avx2 ? kLargeAvx2
                           : blas_lacks_avx512()           ? std::numeric_limits<i64>::max()
                                                           : kLarge;
  return M * N * K <= large;
}

i64 round_up(i64 n, i64 to) { return (n + to - 1) / to * to; }

// The panels of a product. Those of BLAS depend on its sizes only; BLAS packs a factor again for
// each panel, so panels are large if there are many of them; smaller panels serve to give work to a
// few threads.
struct Panels {
  i64 rows, columns;

  static Panels of_blas(i64 M, i64 N, i64 K) {
    Panels cut{share(M, N == 1 ? 4096 : 256), share(N, M == 1 ? 1024 : 512)};
    auto& [rows, columns] = cut;
    while (rows * columns * K > kPanelWork && cut.panels(M, N) < kFewPanels) {
      if (columns >= rows && columns > 64) {
        columns = round_up(columns / 2, 16);
      } else if (rows > 64) {
        rows = round_up(rows / 2, 16);
      } else {
        break;
      }
    }
    return cut;
  }

  // Each of `batches` products in panels for all threads, of whole columns if possible, since rows
  // of several panels have the same columns packed.
  static Panels of_vectors(i64 M, i64 N, i64 K, i64 batches) {
    const i64 tile = tile_columns(vector_isa());
    const i64 threads = num_threads(), wanted = threads == 1 ? 1 : 2 * threads;
    Panels cut{share(M, 256), share(N, 512)};
    auto& [rows, columns] = cut;
    while (batches * cut.panels(M, N) < wanted && rows * columns * K >= 2 * kSharedWork) {
      if (columns > tile) {
        columns = round_up(columns / 2, tile);
      } else if (rows > 16) {
        rows = round_up(rows / 2, 4);
      } else {
        break;
      }
    }
    return cut;
  }

  i64 panels(i64 M, i64 N) const { return ((M - 1) / rows + 1) * ((N - 1) / columns + 1); }
  // Equal parts of n, none longer than `most`.
  static i64 share(i64 n, i64 most) {
    const i64 parts = (n - 1) / most + 1;
    return parts == 1 ? n : round_up((n + parts - 1) / parts, 16);
  }
};

BlasTranspose flag(bool transposed) { return transposed ? kBlasTransposed : kBlasAsIs; }

// A panel of one product: rows [m0, m0 + m) and columns [n0, n0 + n) of c. BLAS takes no bias.
template <class T>
void panel(const T* a, const Matrix& am, const T* b, const Matrix& bm, T* c, i64 M, i64 N, i64 K,
           i64 m0, i64 m, i64 n0, i64 n, const T* bias) {
  a += m0 * (am.transposed ? 1 : am.leading);
  b += n0 * (bm.transposed ? bm.leading : 1);
  c += m0 * N + n0;
  if constexpr (std::is_same_v<T, float>) {
    if (is_for_vectors(M, N, K)) {
      const auto view = [](const float* data, const Matrix& of) {
        return of.transposed ? MatrixView{data, 1, of.leading} : MatrixView{data, of.leading, 1};
      };
      return multiply_vectors(vector_isa(), m, n, K, view(a, am), view(b, bm), c, N,
                              bias ? bias + n0 : nullptr);
    }
  }
  const int mi = static_cast<int>(m), ni = static_cast<int>(n), ki = static_cast<int>(K);
  const int lda = static_cast<int>(am.leading), ldb = static_cast<int>(bm.leading),
            ldc = static_cast<int>(N);
  const auto gemv = [](bool transposed, auto... rest) {
    if constexpr (std::is_same_v<T, float>) {
      cblas_sgemv(kBlasRowMajor, flag(transposed), rest...);
    } else {
      cblas_dgemv(kBlasRowMajor, flag(transposed), rest...);
    }
  };
  if (m == 1) {  // c = transpose(b) a
    const int step = am.transposed ? lda : 1;
    std::memset(c, 0, static_cast<std::size_t>(n) * sizeof(T));
    const int rows = bm.transposed ? ni : ki, columns = bm.transposed ? ki : ni;
    gemv(!bm.transposed, rows, columns, T(1), b, ldb, a, step, T(1), c, 1);
  } else if (N == 1) {
    const int step = bm.transposed ? 1 : ldb;
    std::memset(c, 0, static_cast<std::size_t>(m) * sizeof(T));
    const int rows = am.transposed ? ki : mi, columns = am.transposed ? mi : ki;
    gemv(am.transposed, rows, columns, T(1), a, lda, b, step, T(1), c, 1);
  } else if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(kBlasRowMajor, flag(am.transposed), flag(bm.transposed), mi, ni, ki, 1.f, a, lda, b,
                ldb, 0.f, c, ldc);
  } else {
    cblas_dgemm(kBlasRowMajor, flag(am.transposed), flag(bm.transposed), mi, ni, ki, 1., a, lda, b,
                ldb, 0., c, ldc);
  }
}

// The batch dimensions of a result, with both factors as operands.
StridedSpace batches_of(const Tensor& out, const Tensor& left, const Tensor& right) {
  const auto batch = [](std::span<const i64> dims) { return dims.first(dims.size() - 2); };
  StridedSpace space = space_of(batch(out.shape()));
  for (const Tensor* factor : {&left, &right})
    add_operand(space, batch(factor->shape()), batch(factor->strides()));
  coalesce(space);
  return space;
}

template <class T>
void multiply_floats(Tensor left, Tensor right, const Tensor& out, const T* bias = nullptr) {
  one_blas_thread();
  const Matrix am = matrix_of(left), bm = matrix_of(right);
  const i64 M = out.size(-2), N = out.size(-1), K = left.size(-1);
  if (std::max({M, N, K, am.leading, bm.leading}) > std::numeric_limits<int>::max()) {
    fail("[matmul] expected dimensions that BLAS can count in 32 bits, got {} and {}",
         left.describe(), right.describe());
  }
  const T *a = left.data<T>(), *b = right.data<T>();
  T* c = out.data<T>();
  const StridedSpace batches = batches_of(out, left, right);
  const bool in_vectors = std::is_same_v<T, float> && is_for_vectors(M, N, K);
  const auto [rows, columns] =
      in_vectors ? Panels::of_vectors(M, N, K, batches.count()) : Panels::of_blas(M, N, K);
  const i64 row_panels = (M - 1) / rows + 1, column_panels = (N - 1) / columns + 1;
  const i64 panels = row_panels * column_panels;
  const i64 work = std::max<i64>(1, rows * columns * K);
  const Grain grain(std::max<i64>(1, (in_vectors ? kSharedWork : kPanelWork) / work),
                    std::max<i64>(1, kPanelWork / work));
  parallel_for(
      batches.count() * panels, grain, [&, rows = rows, columns = columns](i64 begin, i64 end) {
        [[maybe_unused]] const std::conditional_t<std::is_same_v<T, float>, FlushDenormals, int>
            flush{};
        for (i64 t = begin; t < end; ++t) {
          const i64 batch = t / panels, p = t % panels;
          const Coordinates place(batches, batch);
          const i64 in_a = place.offset(batches, 0), in_b = place.offset(batches, 1);
          const i64 m0 = p / column_panels * rows, n0 = p % column_panels * columns;
          panel(a + in_a, am, b + in_b, bm, c + batch * M * N, M, N, K, m0, std::min(rows, M - m0),
                n0, std::min(columns, N - n0), bias);
        }
      });
}

// Integers wrap, so they are added and multiplied as unsigned.
template <class T>
void multiply_integers(const Tensor& left, const Tensor& right, const Tensor& out) {
  using U [[gnu::may_alias]] = std::make_unsigned_t<T>;
  const i64 M = out.size(-2), N = out.size(-1), K = left.size(-1);
  const Tensor b_rows =
      N == 1 || right.stride(-1) == 1 ? right : contiguous_as(right, right.dtype());
  const StridedSpace batches = batches_of(out, left, b_rows);
  const i64 row = left.stride(-2), column = left.stride(-1), b_row = b_rows.stride(-2);
  parallel_for(batches.count() * M, std::max<i64>(1, kPanelWork / std::max<i64>(1, N * K)),
               [&](i64 begin, i64 end) {
                 for (i64 t = begin; t < end; ++t) {
                   const Coordinates place(batches, t / M);
                   const i64 in_a = place.offset(batches, 0), in_b = place.offset(batches, 1);
                   const U* a = reinterpret_cast<const U*>(left.data<T>()) + in_a + t % M * row;
                   const U* b = reinterpret_cast<const U*>(b_rows.data<T>()) + in_b;
                   U* c = reinterpret_cast<U*>(out.data<T>()) + t * N;
                   std::fill(c, c + N, U(0));
                   for (i64 k = 0; k < K; ++k) {
                     const U factor = a[k * column];
                     const U* in = b + k * b_row;
                     for (i64 j = 0; j < N; ++j) c[j] += factor * in[j];
                   }
                 }
               });
}

}  // namespace

std::string_view vector_products() {
  switch (vector_isa()) {
    case VectorIsa::none: return "";
    case VectorIsa::avx2: return "small f32 products: avx2";
    default: return blas_lacks_avx512() ? "f32 products: avx512" : "small f32 products: avx512";
  }
}

void matmul(const Call& call, Tensor* outputs) {
  const Tensor &a = call.input(0), &b = call.input(1);
  if (outputs[0].numel() == 0) return;
  const DType type = accumulator_of(op_info(call.op), outputs[0].dtype(), cpu);
  write_contiguous(outputs[0], type, [&](const Tensor& out) {
    if (a.size(-1) == 0) {
      std::memset(out.data(), 0, out.bytes());
    } else if (type == DType::f32) {
      multiply_floats<float>(a.dtype() == type ? a : contiguous_as(a, type),
                             b.dtype() == type ? b : contiguous_as(b, type), out);
    } else if (type == DType::f64) {
      multiply_floats<double>(a, b, out);
    } else if (type == DType::i32) {
      multiply_integers<std::int32_t>(a, b, out);
    } else if (type == DType::i64) {
      multiply_integers<std::int64_t>(a, b, out);
    } else {
      fail("[matmul] expected numbers, got {} and {}", a.describe(), b.describe());
    }
  });
}

void affine(const Call& call, Tensor* outputs) {
  const Tensor &a = call.input(0), &b = call.input(1), &row = call.input(2), &out = outputs[0];
  if (is_half(out.dtype())) {  // rounded once, at the end
    const Tensor wide[] = {contiguous_as(a, f32), contiguous_as(b, f32), contiguous_as(row, f32)};
    const Tensor* inputs[] = {&wide[0], &wide[1], &wide[2]};
    Call once(Op::affine, inputs, 3);
    once.dtype = f32;
    Tensor result = make_tensor(f32, out.shape(), cpu);
    affine(once, &result);
    return copy_tensor(out, result);
  }
  if (out.dtype() == f32 && a.size(-1) > 0 && out.numel() > 0 && row.is_contiguous() &&
      row.numel() == out.size(-1) && is_for_vectors(out.size(-2), out.size(-1), a.size(-1))) {
    return write_contiguous(outputs[0], f32, [&](const Tensor& result) {
      multiply_floats<float>(a, b, result, row.data<float>());
    });
  }
  matmul(call, outputs);
  const Tensor* terms[] = {&out, &row};
  Call sum(Op::add, terms, 2);
  sum.dtype = out.dtype();
  sum.in_place = true;
  pointwise(sum, outputs);
}

}  // namespace brrr::on_cpu
