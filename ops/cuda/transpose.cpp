#include "brrr/ops/cuda/transpose.h"

#include <algorithm>
#include <cstdint>

#include "brrr/ops/cuda/hand_written.h"

namespace brrr::sources {
extern const char transpose_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {

void transpose_matrices(const TransposeArgs& args, DType dtype, cu::CudaStream& stream) {
  const CUfunction kernel =
      hand_written(stream, sources::transpose_cu, size_of(dtype), "transpose",
                   [&] { return typedef_of_bits(dtype, "Element") + sources::transpose_cu; });
  const auto size = static_cast<std::int64_t>(size_of(dtype)), vector = 16 / size;
  const auto whole = [&](const void* data, std::int64_t leading, std::int64_t batch) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && leading % vector == 0 &&
           (args.batches == 1 || batch % vector == 0);
  };
  struct {
    TransposeArgs args;
    bool aligned;
  } const given{args, whole(args.from, args.from_leading, args.from_batch) &&
                          whole(args.to, args.to_leading, args.to_batch)};
  const std::int64_t tile = 16 * vector;
  const Grid grid{ceil_div(args.rows, tile) * ceil_div(args.cols, tile),
                  std::min<std::int64_t>(args.batches, 65535)};
  launch(kernel, grid, 256, stream, given);
}

}  // namespace brrr::on_cuda
