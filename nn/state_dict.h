// What a module holds, by name, and files of it. Names and layouts are PyTorch's for layers of the
// same names, so a safetensors file of either is one of the other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <brrr/nn/module.h>

namespace brrr::nn {

using StateDict = std::vector<std::pair<std::string, Tensor>>;

// Parameters and buffers, as constants that share the module's memory.
StateDict state_dict(const Module& module);

// Writes the values into the module's own tensors, whatever the devices. Names, shapes and types
// must be the module's; what is missing, extra or misshapen is listed by one error, and nothing has
// changed.
void load_state_dict(Module& module, const StateDict& state);

// The same by way of a safetensors file.
void save(const Module& module, const std::string& path);
void load(Module& module, const std::string& path);

}  // namespace brrr::nn
