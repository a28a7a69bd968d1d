// The functions between a network's layers, by name: each is the op of that name.
#pragma once

#include <cstdint>
#include <string_view>

#include <brrr/tensor/tensor.h>

namespace brrr::nn {

// gelu is the exact one, by erf. gelu_tanh approximates it, faster on the CPU: PyTorch's
// GELU(approximate="tanh").
enum class Activation : std::uint8_t { gelu_tanh, gelu, relu, silu, tanh };
inline constexpr Activation kActivations[] = {Activation::gelu_tanh, Activation::gelu,
                                              Activation::relu, Activation::silu, Activation::tanh};

Tensor activate(Activation activation, const Tensor& x);
std::string_view name_of(Activation activation);

}  // namespace brrr::nn
