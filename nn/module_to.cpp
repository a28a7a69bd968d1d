// Module::to: moves and converts a module's tensors in place.

#include <unordered_map>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/nn/module.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::nn {
namespace {

Tensor converted(const Tensor& x, Device device, DType dtype) {
  Tensor result = to(detach(x), device, dtype);
  if (!requires_grad(x)) return result;
  requires_grad_(result);
  if (const Tensor gradient = grad_of(x); gradient.defined()) {
    set_grad(result, to(detach(gradient), device, dtype));
  }
  return result;
}

}  // namespace

Module& Module::to(Device device) { return convert(device, {}); }
Module& Module::to(DType dtype) { return convert({}, dtype); }
Module& Module::to(Device device, DType dtype) { return convert(device, dtype); }

Module& Module::convert(std::optional<Device> device, std::optional<DType> dtype) {
  if (dtype && !is_floating(*dtype)) {
    fail("[{}] expected a floating type to convert to, got {}", path(), name_of(*dtype));
  }
  refuse_while_tracing("Module::to", "it would leave the module with tensors without values");
  const NoGrad constant;
  std::unordered_map<const TensorImpl*, Tensor> replacements;
  const std::vector<RegisteredTensor> all = named_tensors();
  for (const RegisteredTensor& entry : all) {
    const Tensor& x = *entry.tensor;
    if (!x.defined() || replacements.contains(TensorImpl::of(x))) continue;
    const Device new_device = device.value_or(x.device());
    const DType new_dtype = is_floating(x.dtype()) ? dtype.value_or(x.dtype()) : x.dtype();
    if (new_device == x.device() && new_dtype == x.dtype()) continue;
    if (GradientGroup::holds(x)) {
      fail(
          "[{}] expected a module that is not packed, got {}, which nn::Parameters or an optimizer "
          "has packed: call to(...) before making those",
          path(), entry.name);
    }
    replacements.emplace(TensorImpl::of(x), converted(x, new_device, new_dtype));
  }
  // Nothing can fail from here on.
  for (const RegisteredTensor& entry : all) {
    if (!entry.tensor->defined()) continue;
    const auto found = replacements.find(TensorImpl::of(*entry.tensor));
    if (found != replacements.end()) replace(*entry.tensor, found->second);
  }
  return *this;
}

}  // namespace brrr::nn
