#include "brrr/nn/activation.h"

#include "brrr/ops/functions.h"

namespace brrr::nn {
namespace {

struct NamedActivation {
  std::string_view name;
  Tensor (*function)(const Tensor& x);
};
constexpr NamedActivation kFunctions[] = {
    {"gelu_tanh", [](const Tensor& x) { return gelu_tanh(x); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }},
    {"relu", [](const Tensor& x) { return relu(x); }},
    {"silu", [](const Tensor& x) { return silu(x); }},
    {"tanh", [](const Tensor& x) { return tanh(x); }}};

}  // namespace

Tensor activate(Activation activation, const Tensor& x) {
  return kFunctions[static_cast<std::size_t>(activation)].function(x);
}

std::string_view name_of(Activation activation) {
  return kFunctions[static_cast<std::size_t>(activation)].name;
}

}  // namespace brrr::nn
