// uniform and normal on CUDA, with the bits that the CPU draws.
#include <fmt/format.h>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::text {
extern const char random_cu[];
}  // namespace brrr::text

namespace brrr::on_cuda {
namespace {

CUfunction draw_kernel(cu::CudaStream& stream, DType dtype, bool normal) {
  // Halves are drawn as f32: uniform with fewer bits, normal then rounded.
  const auto make_text = [&] {
    const std::string_view drawn = normal && is_half(dtype) ? "f32" : name_of(dtype);
    return typedef_of(dtype, "Element") +
           fmt::format("constexpr int kWidth = {};\n#define DRAW brrr_{}_block_{}\n",
                       dtype == f64 ? 2 : 4, normal ? "normal" : "uniform", drawn) +
           text::random_cu;
  };
  return hand_written(stream, text::random_cu, static_cast<std::uint64_t>(dtype) * 2 + normal,
                      "draw", make_text, {.random = true});
}

void draw(const Call& call, Tensor* outputs, bool normal) {
  if (outputs[0].numel() == 0) return;
  const Tensor state = contiguous_here(call.input(0));
  cu::CudaStream& stream = cu::current_stream(state.device());
  const CUfunction kernel = draw_kernel(stream, outputs[0].dtype(), normal);
  const auto place = static_cast<std::uint32_t>(call.attrs[0].i());
  write_contiguous(outputs[0], [&](Tensor& out) {
    constexpr int kThreads = 256, kOfBlock = 4 * kThreads;
    const std::int64_t count = out.numel();
    const Grid grid{blocks_for(count, kOfBlock, stream.on->multiprocessors, 32)};
    launch(kernel, grid, kThreads, stream, out.data(), state.data(), place, count);
  });
}

}  // namespace

void uniform(const Call& call, Tensor* outputs) { draw(call, outputs, false); }
void normal(const Call& call, Tensor* outputs) { draw(call, outputs, true); }

}  // namespace brrr::on_cuda
