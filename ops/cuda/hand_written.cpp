#include "brrr/ops/cuda/hand_written.h"

#include <fmt/format.h>

#include "brrr/ops/jit/render.h"

namespace brrr::on_cuda {

KernelTable<CUfunction>& hand_written_kernels() {
  static auto* table = new KernelTable<CUfunction>;
  return *table;
}

std::string typedef_of(std::string_view type, std::string_view name) {
  return fmt::format("typedef {} {};\n", type, name);
}

std::string typedef_of(DType dtype, std::string_view name) {
  return typedef_of(jit::pieces::c_name(dtype), name);
}

std::string typedef_of_bits(DType dtype, std::string_view name) {
  return typedef_of(fmt::format("u{}", 8 * size_of(dtype)), name);
}

}  // namespace brrr::on_cuda
