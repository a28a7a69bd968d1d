// Checks that every public function starts with.
#pragma once

#include <brrr/tensor/tensor.h>

namespace brrr {

[[noreturn]] void undefined_argument(const char* op);

inline void require_defined(const char* op, const Tensor& x) {
  if (!x.defined()) [[unlikely]]
    undefined_argument(op);
}

}  // namespace brrr
