// Loads named values into existing tensors: all of them or none. Modules and optimizer states share
// this, so their errors read alike.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::nn {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Copies each value into the target of its name, across devices. Names, dtypes and shapes must
// agree: one Error lists every value that is missing, unexpected, duplicate or of another shape or
// type, before anything is written. The error starts with "[from] expected the N tensors of
// `owner`".
void load_tensors(const std::string& from, const char* owner, const NamedTensors& targets,
                  const NamedTensors& values);

}  // namespace brrr::nn
