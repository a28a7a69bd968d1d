#include "brrr/nn/dropout.h"

#include "brrr/tensor/fail.h"

namespace brrr::nn {

Dropout::Dropout(double p) : Module("dropout"), p_(p) {
  if (!(p >= 0 && p <= 1)) fail("[dropout] expected a probability in [0, 1], got {}", p);
}

}  // namespace brrr::nn
