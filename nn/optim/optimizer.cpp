#include "brrr/nn/optim/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/unread.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/graph/replay_listener.h"
#include "brrr/nn/live_modules.h"
#include "brrr/nn/parameters.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::optim {
namespace {

std::vector<Tensor> grads_of(const std::vector<Tensor>& leaves) {
  std::vector<Tensor> gradients;
  for (const Tensor& leaf : leaves) gradients.push_back(grad_of(leaf));
  return gradients;
}

// Names leaves that no optimizer has, in one line: parameters of modules at once, others when a
// second step has found that their gradients are only added to. Each is named once.
void report_untrained(const Optimizer* optimizer) {
  std::vector<std::string> names;
  for (const autograd::UnreadLeaf& leaf : autograd::unread_leaves()) {
    const std::string path = nn::path_of_parameter(leaf.impl);
    if (path.empty() && (leaf.seen_by != optimizer || leaf.backwards == leaf.seen_backwards)) {
      if (!leaf.seen_by) autograd::mark_seen(leaf, optimizer);
      continue;
    }
    names.push_back(fmt::format("{}{}{}", path.empty() ? "a leaf " : path + " ",
                                name_of(leaf.dtype), to_string(leaf.shape)));
    autograd::forget(leaf);
  }
  if (names.empty()) return;
  std::ranges::sort(names);
  const std::string line = fmt::format(
      "[Optimizer::step] no optimizer updates {}, which got a gradient: register it with "
      "parameter() or its module with child() before the optimizer is made, or exclude it with "
      "requires_grad_(x, false)\n",
      fmt::join(names, ", "));
  std::fputs(line.c_str(), stderr);
}

}  // namespace

Optimizer::Optimizer(nn::Module& model, Transformation transformation)
    : Optimizer(std::make_shared<nn::Parameters>(model), std::move(transformation)) {}

Optimizer::Optimizer(std::shared_ptr<nn::Parameters> packed, Transformation transformation)
    : Optimizer(
          list_of(packed->values()), std::move(transformation),
          [packed] { return packed->gradients(); }, [packed] { packed->zero_grad(); }) {}

Optimizer::Optimizer(std::vector<Tensor> leaves, Transformation transformation)
    : Optimizer(
          leaves, std::move(transformation), [leaves] { return grads_of(leaves); },
          [leaves] {
            for (const Tensor& leaf : leaves) brrr::zero_grad(leaf);
          }) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!is_leaf(leaves[i]) || !requires_grad(leaves[i])) {
      fail("[Optimizer] expected leaves that require a gradient, got {} at {}",
           leaves[i].describe(), i);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (TensorImpl::of(leaves[j]) == TensorImpl::of(leaves[i]))
        fail("[Optimizer] expected each leaf once, got {} at {} and at {}", leaves[i].describe(), j,
             i);
    }
    autograd::mark_read(leaves[i]);
  }
}

Optimizer::Optimizer(std::vector<Tensor> values, Transformation transformation, Collect gradients,
                     std::function<void()> zero_grad)
    : values_(std::move(values)),
      transformation_(std::move(transformation)),
      gradients_(std::move(gradients)),
      zero_grad_(std::move(zero_grad)),
      state_(transformation_.init(values_)) {
  if (!gradients_ || !zero_grad_)
    fail("[Optimizer] expected functions that give and clear gradients, got none");
}

void Optimizer::step() {
  TraceListener* const trace = thread_context.trace_listener;
  if (trace) {
    for (const auto& [name, tensor] : state_.named())
      trace->on_tensor_named(tensor, "optimizer." + name);
  }
  std::vector<Tensor> gradients = gradients_();
  if (autograd::has_unread()) report_untrained(this);
  if (std::ranges::none_of(gradients, &Tensor::defined)) {
    fail("[Optimizer::step] expected gradients, got none for {} parameters; call backward first{}",
         values_.size(),
         requires_grad(values_[0]) ? ""
                                   : ", of a loss that was computed after the optimizer or "
                                     "nn::Parameters had packed the model's parameters");
  }
  for (std::size_t i = 0; i < std::min(gradients.size(), values_.size()); ++i) {
    if (gradients[i].defined()) continue;
    const IntendedConstants intended;
    gradients[i] = zeros_like(values_[i]);
  }
  transformation_.apply(std::move(gradients), state_, values_);
  if (!trace) core::tell_listener([&](auto& each) { each.updated(this, values_[0].device()); });
}

}  // namespace brrr::optim
