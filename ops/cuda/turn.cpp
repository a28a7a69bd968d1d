#include "ops/cuda/turn.h"

#include <algorithm>

#include "ops/cuda/launch.h"
#include "ops/cuda/sources.h"

namespace brrr::on_cuda {

void turn_matrix(const TurnedMatrix& matrix, DType dtype, cu::CudaStream& stream) {
  const CUfunction kernel = hand_written(stream, KernelFile::turn, size_of(dtype), [&] {
    return jit::load_kernel(stream.device, "turn", sources::turn(dtype));
  });
  constexpr std::int64_t kTile = 64;
  const Grid grid{ceil_div(matrix.rows, kTile) * ceil_div(matrix.cols, kTile),
                  std::min<std::int64_t>(matrix.batches, 65535)};
  launch(kernel, grid, 256, stream.handle, matrix);
}

}  // namespace brrr::on_cuda
