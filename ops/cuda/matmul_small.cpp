#include "brrr/ops/cuda/matmul_small.h"

#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/jit/sources.h"

namespace brrr::on_cuda {
namespace {

// The arguments of an entry.
struct SmallProduct {
  const void* a;
  const void* b;
  void* d;
  const void* row;
  std::int64_t row_step, d_row, d_col, a_batch, b_batch, d_batch;
  jit::SmallFactors factors;
};

}  // namespace

void multiply_small(const MatrixProduct& p, const Tensor& a, const Tensor& b, const Tensor* row,
                    Tensor& d, cu::CudaStream& stream) {
  const jit::SmallSchedule schedule =
      jit::small_schedule(p, a.dtype(), {alignment_of(a.data()), alignment_of(b.data())});
  const CUfunction kernel =
      hand_written(stream, sources::matmul_small_cu, schedule.key(), "matmul_small",
                   [&] { return matmul_small_source_of_call(schedule); });
  const KernelStrides s = kernel_strides(p, p.batch.empty() ? -1 : 0);
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
                         jit::small_factors(p)};
  const jit::SmallGrid grid = jit::small_grid(p);
  launch(kernel, {grid.columns, grid.rows, grid.batches}, jit::kSmallThreads, stream, one);
}

}  // namespace brrr::on_cuda
