#include "brrr/ops/cuda/hand_written.h"

namespace brrr::on_cuda {

KernelTable<CUfunction>& hand_written_kernels() {
  static auto* table = new KernelTable<CUfunction>;
  return *table;
}

}  // namespace brrr::on_cuda
