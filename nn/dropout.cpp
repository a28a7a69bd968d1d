#include "brrr/nn/dropout.h"

#include <fmt/format.h>

#include "brrr/tensor/error.h"

namespace brrr::nn {

Dropout::Dropout(double p) : Module("dropout"), p_(p) {
  if (!(p >= 0 && p <= 1)) {
    fail(fmt::format("[dropout] expected a probability in [0, 1], got {}", p));
  }
}

}  // namespace brrr::nn
