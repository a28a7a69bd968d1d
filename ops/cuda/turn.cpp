#include "brrr/ops/cuda/turn.h"

#include <algorithm>
#include <cstdint>

#include "brrr/ops/cuda/launch.h"
#include "brrr/ops/cuda/sources.h"

namespace brrr::on_cuda {

void turn_matrix(const TurnedMatrix& matrix, DType dtype, cu::CudaStream& stream) {
  const CUfunction kernel = hand_written(stream, KernelFile::turn, size_of(dtype), [&] {
    return jit::load_kernel(stream.device, "turn", sources::turn(dtype));
  });
  const auto size = static_cast<std::int64_t>(size_of(dtype)), vector = 16 / size;
  const auto whole = [&](const void* data, std::int64_t leading, std::int64_t batch) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && leading % vector == 0 &&
           (matrix.batches == 1 || batch % vector == 0);
  };
  struct {
    TurnedMatrix matrix;
    bool aligned;
  } const given{matrix, whole(matrix.from, matrix.from_leading, matrix.from_batch) &&
                            whole(matrix.to, matrix.to_leading, matrix.to_batch)};
  const std::int64_t tile = 16 * vector;
  const Grid grid{ceil_div(matrix.rows, tile) * ceil_div(matrix.cols, tile),
                  std::min<std::int64_t>(matrix.batches, 65535)};
  launch(kernel, grid, 256, stream, given);
}

}  // namespace brrr::on_cuda
