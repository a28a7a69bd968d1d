#include "brrr/nn/state_dict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "brrr/autograd/autograd.h"
#include "brrr/io/safetensors.h"
#include "brrr/nn/copy_all.h"
#include "brrr/tensor/error.h"

namespace brrr::nn {
namespace {

// "f32[3, 4]", whatever the device.
std::string form_of(const Tensor& x) {
  if (!x.defined()) return "an undefined tensor";
  return fmt::format("{}{}{}", name_of(x.dtype()), to_string(x.shape()),
                     x.without_values() ? " without values" : "");
}

bool same_form(const Tensor& a, const Tensor& b) {
  return b.defined() && b.without_values() <= a.without_values() && a.dtype() == b.dtype() &&
         std::ranges::equal(a.shape(), b.shape());
}

// `from` names where the state came from.
void load_from(Module& module, const StateDict& state, const std::string& from) {
  const std::vector<Module::Entry> entries = module.entries();
  std::map<std::string_view, const Tensor*> given;
  std::string problems;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, &tensor).second) problems += fmt::format("\n  twice: {}", name);
  }
  std::vector<Tensor> targets, values;
  for (const Module::Entry& entry : entries) {
    const auto found = given.find(entry.name);
    if (found == given.end()) {
      problems += fmt::format("\n  missing: {} {}", entry.name, form_of(*entry.tensor));
      continue;
    }
    if (!same_form(*entry.tensor, *found->second)) {
      problems += fmt::format("\n  misshapen: {} expected {}, got {}", entry.name,
                              form_of(*entry.tensor), form_of(*found->second));
    }
    targets.push_back(*entry.tensor);
    values.push_back(*found->second);
    given.erase(found);
  }
  for (const auto& [name, tensor] : given) {
    problems += fmt::format("\n  extra: {} {}", name, form_of(*tensor));
  }
  if (!problems.empty()) {
    fail(fmt::format("[{}] expected the {} tensors of the module, got {}:{}", from, entries.size(),
                     state.size(), problems));
  }
  copy_all(targets, std::move(values));
}

}  // namespace

StateDict state_dict(const Module& module) {
  StateDict state;
  for (const Module::Entry& entry : module.entries()) {
    state.emplace_back(entry.name, detach(*entry.tensor));
  }
  return state;
}

void load_state_dict(Module& module, const StateDict& state) {
  load_from(module, state, "load_state_dict");
}

void save(const Module& module, const std::string& path) {
  save_safetensors(path, {state_dict(module), {}});
}

void load(Module& module, const std::string& path) {
  load_from(module, load_safetensors(path).tensors, "load " + path);
}

}  // namespace brrr::nn
