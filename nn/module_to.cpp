// A module's tensors on another device, or in another type.
#include <fmt/format.h>

#include <unordered_map>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/nn/module.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"

namespace brrr::nn {
namespace {

Tensor converted(const Tensor& x, Device device, DType dtype) {
  Tensor made = to(detach(x), device, dtype);
  if (!requires_grad(x)) return made;
  requires_grad_(made);
  if (const Tensor gradient = grad_of(x); gradient.defined()) {
    set_grad(made, to(detach(gradient), device, dtype));
  }
  return made;
}

}  // namespace

Module& Module::to(Device device) { return convert(device, {}); }
Module& Module::to(DType dtype) { return convert({}, dtype); }
Module& Module::to(Device device, DType dtype) { return convert(device, dtype); }

Module& Module::convert(std::optional<Device> device, std::optional<DType> dtype) {
  if (dtype && !is_floating(*dtype)) {
    fail(fmt::format("[{}] expected a floating type to convert to, got {}", path(),
                     name_of(*dtype)));
  }
  refuse_while_tracing("Module::to", "it would leave the module with tensors without values");
  const NoGrad constant;
  std::unordered_map<const TensorImpl*, Tensor> made;
  const std::vector<Entry> all = entries();
  for (const Entry& entry : all) {
    const Tensor& x = *entry.tensor;
    if (!x.defined() || made.contains(x.impl())) continue;
    const Device there = device.value_or(x.device());
    const DType type = is_floating(x.dtype()) ? dtype.value_or(x.dtype()) : x.dtype();
    if (there == x.device() && type == x.dtype()) continue;
    if (GradientGroup::holds(x)) {
      fail(fmt::format(
          "[{}] expected a module that is not packed, got {}, which nn::Parameters or an optimizer "
          "has packed: call to(...) before making those",
          path(), entry.name));
    }
    made.emplace(x.impl(), converted(x, there, type));
  }
  // Nothing can fail from here on.
  for (const Entry& entry : all) {
    if (!entry.tensor->defined()) continue;
    const auto found = made.find(entry.tensor->impl());
    if (found != made.end()) replace(*entry.tensor, found->second);
  }
  return *this;
}

}  // namespace brrr::nn
