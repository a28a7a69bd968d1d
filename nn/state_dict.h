// The state of a module by name, in memory and in safetensors files. Names and layouts are
// PyTorch's for the layers that both have, so either reads the other's files.
#pragma once

#include <string>

#include <brrr/nn/load_tensors.h>
#include <brrr/nn/module.h>

namespace brrr::nn {

using StateDict = NamedTensors;

// Parameters and buffers, detached; they share the module's memory.
StateDict state_dict(const Module& module);

// Copies the values into the module's tensors (nn/load_tensors.h).
void load_state_dict(Module& module, const StateDict& state);

// The same through a safetensors file.
void save(const Module& module, const std::string& path);
void load(Module& module, const std::string& path);

}  // namespace brrr::nn
