// Checks that every public function starts with.
#pragma once

#include <brrr/tensor/tensor.h>

namespace brrr {

[[noreturn]] void undefined_argument(const char* op);

inline void require_defined(const char* op, const Tensor& x) {
  if (!x.defined()) [[unlikely]]
    undefined_argument(op);
}

// The place from the start of dimension `dim` that an index names, which counts from the end where
// it is negative; throws where there is none.
std::int64_t wrap_index(const char* op, const Tensor& x, int dim, std::int64_t index);

}  // namespace brrr
