#include "brrr/nn/losses.h"

#include <algorithm>

#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::nn {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return mean(losses);
    case Reduction::sum: return sum(losses);
    case Reduction::none: break;
  }
  return losses;
}

void expect_floating(const char* name, const char* what, const Tensor& x) {
  if (x.defined() && is_floating(x.dtype())) return;
  fail("[{}] expected {} of a floating type, got {}", name, what, x.describe());
}

void expect_pair(const char* name, const char* what, const Tensor& x, const Tensor& target) {
  expect_floating(name, what, x);
  if (target.defined() && target.dtype() == x.dtype() &&
      std::ranges::equal(x.shape(), target.shape())) {
    return;
  }
  fail("[{}] expected a target like the {} {}, got {}", name, what, x.describe(),
       target.describe());
}

Tensor promoted_half(const Tensor& x) { return is_half(x.dtype()) ? cast(x, f32) : x; }

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  const CompositeScope scope("mse_loss");
  expect_pair("mse_loss", "input", x, target);
  return reduced(square(x - target), reduction);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                     double label_smoothing) {
  const CompositeScope scope("cross_entropy");
  expect_floating("cross_entropy", "logits", logits);
  const bool fit = target.defined() && category_of(target.dtype()) == Category::integer &&
                   logits.rank() == target.rank() + 1 &&
                   std::ranges::equal(logits.shape().first(target.shape().size()), target.shape());
  if (!fit) {
    fail(
        "[cross_entropy] expected logits [..., classes] and targets of integers [...], got {} and "
        "{}",
        logits.describe(), target.describe());
  }
  if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
    fail("[cross_entropy] expected a smoothing in [0, 1], got {}", label_smoothing);
  }
  const Tensor wide = promoted_half(logits);
  Tensor of_target = squeeze(gather(wide, -1, unsqueeze(target, -1)), -1);
  if (label_smoothing > 0) of_target = lerp(of_target, mean(wide, {-1}), label_smoothing);
  return cast(reduced(logsumexp(wide, {-1}) - of_target, reduction), logits.dtype());
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction) {
  const CompositeScope scope("binary_cross_entropy_with_logits");
  expect_pair("binary_cross_entropy_with_logits", "logits", logits, target);
  const Tensor wide = promoted_half(logits);
  return cast(reduced(softplus(wide) - wide * promoted_half(target), reduction), logits.dtype());
}

}  // namespace brrr::nn
