// checked on CUDA: a copy in one pass, which reports values out of range through
// tensor/cuda_faults.h.
#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/jit/sources.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_faults.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::sources {
extern const char checked_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {

void checked(const Call& call, Tensor* outputs) {
  if (outputs[0].numel() == 0) return;
  const Tensor x = contiguous_here(call.input(0));
  const DType dtype = x.dtype();
  cu::CudaStream& stream = cu::current_stream(x.device());
  const CUfunction kernel =
      hand_written(stream, sources::checked_cu, static_cast<std::uint64_t>(dtype), "checked", [&] {
        return sources::faults_inl + typedef_of(dtype, "Element") +
               typedef_of(is_floating(dtype) ? "double" : "i64", "Bound") + sources::checked_cu;
      });
  const cu::FaultSink sink = cu::fault_sink(stream.device, "checked");
  write_contiguous(outputs[0], [&](Tensor& out) {
    constexpr int kThreads = 256;
    const std::int64_t count = out.numel();
    const Grid grid{blocks_for(count, kThreads, stream.on->multiprocessors, 32)};
    // The bounds are eight bytes of either type.
    launch(kernel, grid, kThreads, stream, out.data(), x.data(), count, call.attrs[0].bits,
           call.attrs[1].bits, sink);
  });
}

}  // namespace brrr::on_cuda
