// Activation functions by name; each is the op of that name.
#pragma once

#include <cstdint>
#include <string_view>

#include <brrr/tensor/tensor.h>

namespace brrr::nn {

// gelu uses erf. gelu_tanh is PyTorch's GELU(approximate="tanh"), which is faster on the CPU.
enum class Activation : std::uint8_t { gelu_tanh, gelu, relu, silu, tanh };
inline constexpr Activation kActivations[] = {Activation::gelu_tanh, Activation::gelu,
                                              Activation::relu, Activation::silu, Activation::tanh};

Tensor activate(Activation activation, const Tensor& x);
std::string_view name_of(Activation activation);

}  // namespace brrr::nn
