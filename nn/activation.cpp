#include "brrr/nn/activation.h"

#include "brrr/ops/functions.h"

namespace brrr::nn {
namespace {

struct Entry {
  std::string_view name;
  Tensor (*function)(const Tensor& x);
};
constexpr Entry kEntries[] = {{"gelu_tanh", [](const Tensor& x) { return gelu_tanh(x); }},
                              {"gelu", [](const Tensor& x) { return gelu(x); }},
                              {"relu", [](const Tensor& x) { return relu(x); }},
                              {"silu", [](const Tensor& x) { return silu(x); }},
                              {"tanh", [](const Tensor& x) { return tanh(x); }}};

}  // namespace

Tensor activate(Activation activation, const Tensor& x) {
  return kEntries[static_cast<std::size_t>(activation)].function(x);
}

std::string_view name_of(Activation activation) {
  return kEntries[static_cast<std::size_t>(activation)].name;
}

}  // namespace brrr::nn
