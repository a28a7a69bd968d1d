// How the kernel text of a registered op is started; in ops/cuda/.
#pragma once

#include <brrr/ops/register_op.h>

namespace brrr::on_cuda {

void run_kernel_text(const CudaKernel& kernel, const Call& call, Tensor* outputs, int n_outputs);

}  // namespace brrr::on_cuda
