// Draws on CUDA, with the bits that the CPU draws.
#include <fmt/format.h>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/jit/body.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::sources {
extern const char random_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {
namespace {

enum class Draw : std::uint8_t { uniform, normal, bernoulli };

// The function of philox.inl that fills the elements of a block.
std::string call_of(Draw kind, DType dtype) {
  const std::string where = "(seed, step, place, block, ";
  if (kind == Draw::bernoulli) return "brrr_bernoulli_block" + where + "threshold, values)";
  // Halves are drawn as f32: uniform with fewer bits, normal then rounded.
  const bool normal = kind == Draw::normal;
  const std::string_view drawn = normal && is_half(dtype) ? "f32" : name_of(dtype);
  return fmt::format("brrr_{}_block_{}{}values)", normal ? "normal" : "uniform", drawn, where);
}

CUfunction draw_kernel(cu::CudaStream& stream, DType dtype, Draw kind) {
  const auto make_source = [&] {
    return typedef_of(dtype, "Element") +
           fmt::format("constexpr int kWidth = {};\n#define DRAW {}\n", jit::draws_of_block(dtype),
                       call_of(kind, dtype)) +
           sources::random_cu;
  };
  const auto variant = static_cast<std::uint64_t>(dtype) << 2 | static_cast<std::uint64_t>(kind);
  return hand_written(stream, sources::random_cu, variant, "draw", make_source, {.random = true});
}

void draw(const Call& call, Tensor* outputs, Draw kind, std::uint32_t threshold = 0) {
  if (outputs[0].numel() == 0) return;
  const Tensor state = contiguous_here(call.input(0));
  cu::CudaStream& stream = cu::current_stream(state.device());
  const DType dtype = outputs[0].dtype();
  const CUfunction kernel = draw_kernel(stream, dtype, kind);
  const auto place = static_cast<std::uint32_t>(call.attrs[0].i());
  write_contiguous(outputs[0], [&](Tensor& out) {
    constexpr int kThreads = 256;
    const std::int64_t count = out.numel();
    const int of_block = kThreads * (dtype == boolean ? 8 : 4);
    const Grid grid{blocks_for(count, of_block, stream.on->multiprocessors, 32)};
    launch(kernel, grid, kThreads, stream, out.data(), state.data(), place, threshold, count);
  });
}

}  // namespace

void uniform(const Call& call, Tensor* outputs) { draw(call, outputs, Draw::uniform); }
void normal(const Call& call, Tensor* outputs) { draw(call, outputs, Draw::normal); }
void bernoulli(const Call& call, Tensor* outputs) {
  draw(call, outputs, Draw::bernoulli, static_cast<std::uint32_t>(call.attrs[1].i()));
}

}  // namespace brrr::on_cuda
