#include "brrr/nn/activation.h"

#include "brrr/ops/functions.h"

namespace brrr::nn {

Tensor activate(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::gelu: return gelu(x);
    case Activation::relu: return relu(x);
    case Activation::silu: return silu(x);
    case Activation::tanh: return tanh(x);
  }
  __builtin_unreachable();
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh: return "gelu_tanh";
    case Activation::gelu: return "gelu";
    case Activation::relu: return "relu";
    case Activation::silu: return "silu";
    case Activation::tanh: return "tanh";
  }
  __builtin_unreachable();
}

}  // namespace brrr::nn
