#include "ops/cuda/turn.h"

#include <algorithm>

#include "ops/cuda/launch.h"
#include "ops/cuda/sources.h"

namespace brrr::on_cuda {

void turn_matrix(const TurnedMatrix& matrix, DType dtype, Device device, CUstream stream) {
  static Kernels<3> kernels;
  const int variant = size_of(dtype) == 2 ? 0 : size_of(dtype) == 4 ? 1 : 2;
  const CUfunction kernel = kernels.get(device, variant, [&] {
    return jit::load_kernel(device, "turn", sources::turn(dtype));
  });
  constexpr std::int64_t kTile = 64;
  const Grid grid{ceil_div(matrix.rows, kTile) * ceil_div(matrix.cols, kTile),
                  std::min<std::int64_t>(matrix.batches, 65535)};
  launch(kernel, grid, 256, stream, matrix);
}

}  // namespace brrr::on_cuda
