// Launches the CUDA kernel that the user gave for a registered op; defined in ops/cuda/.
#pragma once

#include <brrr/ops/register_op.h>

namespace brrr::on_cuda {

void run_kernel_source(const CudaKernel& kernel, const Call& call, Tensor* outputs, int n_outputs);

}  // namespace brrr::on_cuda
