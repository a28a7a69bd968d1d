#include "brrr/nn/state_dict.h"

#include "brrr/autograd/autograd.h"
#include "brrr/io/safetensors.h"

namespace brrr::nn {
namespace {

void load_into(Module& module, const StateDict& state, const std::string& from) {
  NamedTensors targets;
  for (const Module::RegisteredTensor& entry : module.named_tensors()) {
    targets.emplace_back(entry.name, *entry.tensor);
  }
  load_tensors(from, "the module", targets, state);
}

}  // namespace

StateDict state_dict(const Module& module) {
  StateDict state;
  for (const Module::RegisteredTensor& entry : module.named_tensors()) {
    state.emplace_back(entry.name, detach(*entry.tensor));
  }
  return state;
}

void load_state_dict(Module& module, const StateDict& state) {
  load_into(module, state, "load_state_dict");
}

void save(const Module& module, const std::string& path) {
  save_safetensors(path, {state_dict(module), {}});
}

void load(Module& module, const std::string& path) {
  load_into(module, load_safetensors(path).tensors, "load " + path);
}

}  // namespace brrr::nn
