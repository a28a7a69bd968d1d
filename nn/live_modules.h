// The modules that exist, for messages that name their parameters.
#pragma once

#include <string>

#include <brrr/nn/module.h>

namespace brrr::nn {

bool is_alive(const Module* module);
// The path of a parameter that some module has registered: "mlp.layers.0.weight"; empty: none has.
std::string path_of_parameter(const TensorImpl* leaf);

}  // namespace brrr::nn
