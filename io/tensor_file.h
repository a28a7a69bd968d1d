// One tensor in a file, whose name's end says its format.
#pragma once

#include <string>

#include <brrr/tensor/tensor.h>

namespace brrr {

// Writes a tensor to a file: "x.npy", or "x.safetensors" under the name "tensor". Replaces the file
// atomically. A module's parameters are saved by nn::save, several tensors by save_safetensors.
void save(const Tensor& tensor, const std::string& path);
// Reads the tensor of an .npy file, or of a .safetensors file that has one, to the CPU.
Tensor load(const std::string& path);

}  // namespace brrr
