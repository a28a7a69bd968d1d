// matmul on CUDA: expresses a product as strided-batched products of the library, copying operands
// where necessary, and runs their plans. Integers and small products run in brrr's own kernels.

#include <algorithm>
#include <optional>
#include <span>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/cuda/matmul_layout.h"
#include "brrr/ops/cuda/matmul_plan.h"
#include "brrr/ops/cuda/matmul_small.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/matmul.h"
#include "brrr/ops/shapes.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/runtime.h"

namespace brrr::sources {
extern const char matmul_integer_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {
namespace {

template <class T>
struct IntegerProduct {
  const T* a;
  const T* b;
  T* d;
  std::int64_t m, n, k, batches;
  KernelStrides strides;
};

template <class T>
void multiply_integers(const MatrixProduct& p, const Tensor& a, const Tensor& b, Tensor& d,
                       cu::CudaStream& stream) {
  const CUfunction kernel =
      hand_written(stream, sources::matmul_integer_cu, sizeof(T), "matmul_integer",
                   [] { return typedef_of(dtype_of<T>, "Element") + sources::matmul_integer_cu; });
  const int inner = widest(p.batch);
  constexpr std::int64_t kTile = 32;
  each_outer(p, inner, [&](std::int64_t at_a, std::int64_t at_b, std::int64_t at_d) {
    const IntegerProduct<T> one{a.data<T>() + at_a,
                                b.data<T>() + at_b,
                                d.data<T>() + at_d,
                                p.m,
                                p.n,
                                p.k,
                                inner < 0 ? 1 : p.batch[inner],
                                kernel_strides(p, inner)};
    const Grid grid{ceil_div(p.m, kTile) * ceil_div(p.n, kTile),
                    std::min<std::int64_t>(one.batches, 65535)};
    launch(kernel, grid, 256, stream, one);
  });
}

// A copy of x expanded to the batch of the result.
Tensor spread_batch(const Tensor& x, const Tensor& result) {
  Dims shape(result.shape());
  shape[shape.size() - 2] = x.size(-2);
  shape[shape.size() - 1] = x.size(-1);
  return contiguous_copy(make_view(x, shape, broadcast_strides(x.shape(), x.strides(), shape)));
}

// Whether the matrices of x are a strided batch: one stride, as many matrices as the result has.
bool is_one_batch(const Tensor& x, const Tensor& result) {
  const auto batch = [](std::span<const std::int64_t> dims) { return dims.first(dims.size() - 2); };
  if (x.numel() / (x.size(-1) * x.size(-2)) != result.numel() / (result.size(-1) * result.size(-2)))
    return false;
  StridedSpace space = space_of(batch(x.shape()));
  add_operand(space, batch(x.shape()), batch(x.strides()));
  coalesce(space);
  return space.rank <= 1;
}

// Whether one call of the library on copies of operands that are not strided batches is faster than
// `calls` calls in sequence. A short call takes about as long as copying 8 MB.
bool is_worth_copies(std::int64_t calls, const Tensor& a, const Tensor& b, const Tensor& d) {
  constexpr std::int64_t kMostCalls = 16, kBytesOfCall = 8 << 20;
  if (calls == 1 || !is_one_batch(d, d)) return false;
  const std::int64_t batches = d.numel() / (d.size(-1) * d.size(-2));
  std::int64_t copied = 0;
  for (const Tensor* x : {&a, &b}) {
    if (!is_one_batch(*x, d)) copied += batches * x->size(-1) * x->size(-2);
  }
  return calls > kMostCalls ||
         (calls - 1) * kBytesOfCall > copied * static_cast<std::int64_t>(size_of(d.dtype()));
}

void add_row(Tensor& d, const Tensor& row) {
  const Tensor* terms[] = {&d, &row};
  Call sum(Op::add, terms, 2);
  sum.dtype = d.dtype();
  sum.in_place = true;
  pointwise(sum, &d);
}

// Whether the library can add the row in its epilogue: brrr's rows are the columns of its d.
bool fits_epilogue(const LibraryProduct& given, const Tensor& d, const Tensor& row) {
  return given.calls == 1 && given.key.batches == 1 && !given.exchanged && d.dtype() != f64 &&
         row.is_contiguous() && alignment_class(row.data()) == 4;
}

// d = a b, and `row` added to its rows unless it is null.
void multiply(const Tensor& a, const Tensor& b, const Tensor* row, Tensor& d,
              cu::CudaStream& stream) {
  const MatrixProduct asked = product_of(a, b, d);
  if (a.dtype() == i32) return multiply_integers<std::int32_t>(asked, a, b, d, stream);
  if (a.dtype() == i64) return multiply_integers<std::int64_t>(asked, a, b, d, stream);

  const bool tf32 = a.dtype() == f32 && matmul_precision() == Precision::tf32;
  // A call of the small kernel has one stride for its batch.
  if (asked.batch.size() <= 1 && jit::is_small(asked, a.dtype(), tf32))
    return multiply_small(asked, a, b, row, d, stream);

  std::optional<LibraryProduct> given = as_library_product(asked);
  if (!given) {
    if (!as_library_operand(asked.m, asked.k, asked.a.row, asked.a.col))
      return multiply(contiguous_copy(a), b, row, d, stream);
    if (!as_library_operand(asked.k, asked.n, asked.b.row, asked.b.col))
      return multiply(a, contiguous_copy(b), row, d, stream);
    Tensor result = make_tensor(d.dtype(), d.shape(), d.device());
    multiply(a, b, row, result, stream);
    return copy_into(d, result);
  }
  if (is_worth_copies(given->calls, a, b, d)) {
    // One operand at a time; the recursion checks the other one.
    if (!is_one_batch(a, d)) return multiply(spread_batch(a, d), b, row, d, stream);
    if (!is_one_batch(b, d)) return multiply(a, spread_batch(b, d), row, d, stream);
  }

  MatmulKey& key = given->key;
  key.dtype = a.dtype();
  key.tf32 = tf32;
  key.measured = matmul_choice() == MatmulChoice::measured;
  key.device = static_cast<std::uint16_t>(stream.device.index);
  const bool in_epilogue = row && fits_epilogue(*given, d, *row);
  if (in_epilogue) key.epilogue = Epilogue::bias;

  const Tensor &left = given->exchanged ? b : a, &right = given->exchanged ? a : b;
  const auto size = static_cast<std::int64_t>(size_of(a.dtype()));
  const auto element = [size](const Tensor& x, std::int64_t offset) {
    return static_cast<char*>(x.data()) + offset * size;
  };
  // The matrices of a batch start at multiples of the stride, so both the address and the stride
  // must be aligned.
  const auto alignment = [size](const void* address, std::int64_t stride) {
    return std::min(alignment_class(address),
                    alignment_class(reinterpret_cast<const void*>(stride * size)));
  };
  each_outer(given->product, given->inner,
             [&](std::int64_t at_left, std::int64_t at_right, std::int64_t at_d) {
               MatmulOperands operands;
               operands.x = element(right, at_right);
               operands.y = element(left, at_left);
               operands.d = element(d, at_d);
               if (in_epilogue) operands.bias = row->data();
               key.align_x = alignment(operands.x, key.batch_x);
               key.align_y = alignment(operands.y, key.batch_y);
               key.align_d = alignment(operands.d, key.batch_d);
               run(plan_for(key, operands, stream), operands, stream);
             });
  if (row && !in_epilogue) add_row(d, *row);
}

}  // namespace

void matmul(const Call& call, Tensor* outputs) {
  const Tensor &a = call.input(0), &b = call.input(1);
  Tensor& d = outputs[0];
  if (a.dtype() == boolean)
    fail("[matmul] expected numbers, got {} and {}", a.describe(), b.describe());
  if (d.numel() == 0) return;
  cu::CudaStream& stream = cu::current_stream(a.device());
  if (a.size(-1) == 0) {
    write_contiguous(d, [&](Tensor& result) {
      cuda_runtime().fill_bytes(stream, result.data(), 0, result.bytes());
    });
    return;
  }
  multiply(a, b, nullptr, d, stream);
}

void affine(const Call& call, Tensor* outputs) {
  const Tensor &a = call.input(0), &row = call.input(2);
  Tensor& d = outputs[0];
  if (d.numel() == 0) return;
  if (a.size(-1) == 0) {
    matmul(call, outputs);
    return add_row(d, row);
  }
  multiply(a, call.input(1), &row, d, cu::current_stream(a.device()));
}

}  // namespace brrr::on_cuda
