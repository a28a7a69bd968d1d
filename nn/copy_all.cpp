#include "brrr/nn/copy_all.h"

#include <algorithm>

#include "brrr/autograd/autograd.h"
#include "brrr/ops/functions.h"

namespace brrr::nn {

void copy_all(std::span<const Tensor> targets, std::vector<Tensor> values) {
  const NoGrad constant;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = to(values[i], targets[i].device());
    const bool lies_there = std::ranges::any_of(
        targets, [&](const Tensor& target) { return values[i].shares_storage_with(target); });
    if (lies_there) values[i] = clone(values[i]);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    Tensor target = targets[i];
    copy_(target, values[i]);
  }
}

}  // namespace brrr::nn
