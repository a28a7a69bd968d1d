#include "brrr/nn/load_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "brrr/autograd/autograd.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::nn {
namespace {

// "f32[3, 4]", without the device.
std::string dtype_and_shape(const Tensor& x) {
  if (!x.defined()) return "an undefined tensor";
  return fmt::format("{}{}{}", name_of(x.dtype()), to_string(x.shape()),
                     x.without_values() ? " without values" : "");
}

bool can_load(const Tensor& target, const Tensor& value) {
  return value.defined() && value.without_values() <= target.without_values() &&
         target.dtype() == value.dtype() && std::ranges::equal(target.shape(), value.shape());
}

// Everything that may fail runs before the first write. A value that shares storage with a target
// is cloned, since the writes would change it.
void copy_all(std::span<const Tensor> targets, std::vector<Tensor> values) {
  const NoGrad constant;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = to(values[i], targets[i].device());
    const bool aliases = std::ranges::any_of(
        targets, [&](const Tensor& target) { return values[i].shares_storage_with(target); });
    if (aliases) values[i] = clone(values[i]);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    Tensor target = targets[i];
    copy_(target, values[i]);
  }
}

}  // namespace

void load_tensors(const std::string& from, const char* owner, const NamedTensors& targets,
                  const NamedTensors& values) {
  std::map<std::string_view, const Tensor*> given;
  std::string problems;
  for (const auto& [name, tensor] : values) {
    if (!given.emplace(name, &tensor).second) problems += fmt::format("\n  twice: {}", name);
  }
  std::vector<Tensor> to, sources;
  for (const auto& [name, target] : targets) {
    const auto found = given.find(name);
    if (found == given.end()) {
      problems += fmt::format("\n  missing: {} {}", name, dtype_and_shape(target));
      continue;
    }
    if (!can_load(target, *found->second)) {
      problems += fmt::format("\n  mismatched: {} expected {}, got {}", name,
                              dtype_and_shape(target), dtype_and_shape(*found->second));
    }
    to.push_back(target);
    sources.push_back(*found->second);
    given.erase(found);
  }
  for (const auto& [name, tensor] : given) {
    problems += fmt::format("\n  unexpected: {} {}", name, dtype_and_shape(*tensor));
  }
  if (!problems.empty()) {
    fail("[{}] expected the {} tensors of {}, got {}:{}", from, targets.size(), owner,
         values.size(), problems);
  }
  copy_all(to, std::move(sources));
}

}  // namespace brrr::nn
