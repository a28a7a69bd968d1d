// cumsum on CUDA. Sums accumulate in f64, of integers and bool in i64. The same shape on the same
// GPU is cut into the same parts, so its bits are the same every time.
#include <algorithm>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::sources {
extern const char scan_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {
namespace {

// The same as in scan.cu.
struct Scan {
  const void* x;
  void* out;
  void* part_sums;
  std::int64_t outer, n, inner;
  std::int64_t parts, part;
};

DType sum_dtype(DType out) { return accumulator_of(op_info(Op::cumsum), out, cuda()); }

CUfunction scan_kernel(cu::CudaStream& stream, DType in, DType out, int which) {
  constexpr const char* kEntries[] = {"scan_row_sums", "scan_rows", "scan_column_sums",
                                      "scan_columns"};
  const int variant = (static_cast<int>(in) * kDTypes + static_cast<int>(out)) * 4 + which;
  return hand_written(stream, sources::scan_cu, static_cast<std::uint64_t>(variant),
                      kEntries[which], [&] {
                        return typedef_of(in, "In") + typedef_of(out, "Out") +
                               typedef_of(sum_dtype(out), "Sum") + sources::scan_cu;
                      });
}

void scan(const Tensor& x, int dim, Tensor& out) {
  cu::CudaStream& stream = cu::current_stream(x.device());
  const auto [outer, n, inner] = AroundDim(x.shape(), dim);
  Scan s{x.data(), out.data(), nullptr, outer, n, inner, 1, 1};
  const bool rows = s.inner == 1;
  constexpr std::int64_t kThreads = 256, kTile = 2048;
  // Enough parts to keep the device busy, each long enough to be worth a block or a thread.
  const std::int64_t least = rows ? 4 * kTile : 64;
  const std::int64_t wanted = std::int64_t{stream.on->multiprocessors} * (rows ? 4 : 1024);
  const std::int64_t parts =
      std::clamp<std::int64_t>(wanted / std::max<std::int64_t>(1, s.outer * s.inner), 1,
                               std::max<std::int64_t>(1, s.n / least));
  s.part = ceil_div(s.n, parts);
  if (rows) s.part = ceil_div(s.part, kTile) * kTile;
  s.parts = ceil_div(s.n, s.part);
  const std::int64_t pieces = s.outer * s.parts * s.inner;
  const Grid grid{rows ? std::min<std::int64_t>(pieces, INT32_MAX)
                       : blocks_for(pieces, kThreads, stream.on->multiprocessors, 64)};
  Tensor sums;
  if (s.parts > 1) {
    sums = make_tensor(sum_dtype(out.dtype()), {&pieces, 1}, x.device());
    s.part_sums = sums.data();
    launch(scan_kernel(stream, x.dtype(), out.dtype(), rows ? 0 : 2), grid, kThreads, stream, s);
  }
  launch(scan_kernel(stream, x.dtype(), out.dtype(), rows ? 1 : 3), grid, kThreads, stream, s);
}

}  // namespace

void cumsum(const Call& call, Tensor* outputs) {
  if (outputs[0].numel() == 0) return;
  const Tensor x = contiguous_here(call.input(0));
  const int dim = static_cast<int>(call.attrs[0].i());
  write_contiguous(outputs[0], [&](Tensor& out) {
    if (x.rank() == 0) {
      copy_into(out, x);
    } else {
      scan(x, dim, out);
    }
  });
}

}  // namespace brrr::on_cuda
