#include "brrr/nn/optim/state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "brrr/io/safetensors.h"
#include "brrr/tensor/fail.h"

namespace brrr::optim {

void State::require_new(const std::string& name) const {
  const bool taken = std::ranges::find(fields_, name, &Field::name) != fields_.end() ||
                     std::ranges::find(child_names_, name) != child_names_.end();
  if (taken || name.empty()) fail("[State::add] expected a new name, got \"{}\"", name);
}

State& State::add(std::string name, Tensor tensor) {
  require_new(name);
  fields_.push_back({std::move(name), {std::move(tensor)}, false});
  return *this;
}

State& State::add(std::string name, std::vector<Tensor> list) {
  require_new(name);
  fields_.push_back({std::move(name), std::move(list), true});
  return *this;
}

State& State::add(std::string name, State child) {
  require_new(name);
  child_names_.push_back(std::move(name));
  children_.push_back(std::move(child));
  return *this;
}

State::Field& State::field(std::string_view name) {
  const auto found = std::ranges::find(fields_, name, &Field::name);
  if (found == fields_.end()) {
    std::vector<std::string_view> names;
    for (const Field& field : fields_) names.push_back(field.name);
    fail("[State] expected one of the names [{}], got \"{}\"", fmt::join(names, ", "), name);
  }
  return *found;
}

Tensor& State::tensor(std::string_view name) {
  Field& found = field(name);
  if (found.is_list) fail("[State::tensor] expected one tensor, got the list \"{}\"", name);
  return found.tensors[0];
}

std::vector<Tensor>& State::list(std::string_view name) {
  Field& found = field(name);
  if (!found.is_list) fail("[State::list] expected a list, got the one tensor \"{}\"", name);
  return found.tensors;
}

std::vector<Tensor>& State::list(std::string_view name, std::span<const Tensor> params) {
  std::vector<Tensor>& tensors = list(name);
  bool fits = tensors.size() == params.size();
  for (std::size_t i = 0; fits && i < params.size(); ++i) {
    fits = !tensors[i].defined() || std::ranges::equal(tensors[i].shape(), params[i].shape());
  }
  if (!fits) {
    const auto describe = [](std::span<const Tensor> list) {
      std::vector<std::string> texts;
      for (const Tensor& t : list) texts.push_back(t.defined() ? t.describe() : "none");
      return fmt::format("[{}]", fmt::join(texts, ", "));
    };
    fail("[State::list] expected the parameters that init saw, \"{}\" of which is {}, got {}", name,
         describe(tensors), describe(params));
  }
  return tensors;
}

State& State::child(std::string_view name) {
  const auto found = std::ranges::find(child_names_, name);
  if (found == child_names_.end()) {
    fail("[State::child] expected one of the names [{}], got \"{}\"", fmt::join(child_names_, ", "),
         name);
  }
  return children_[found - child_names_.begin()];
}

Tensor* State::find(std::string_view child, std::string_view name) {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (child_names_[i] == child) {
      const auto found = std::ranges::find(children_[i].fields_, name, &Field::name);
      if (found != children_[i].fields_.end()) return &found->tensors[0];
    }
    if (Tensor* below = children_[i].find(child, name)) return below;
  }
  return nullptr;
}

void State::name_into(const std::string& prefix, NamedTensors& names) const {
  for (const Field& field : fields_) {
    for (std::size_t i = 0; i < field.tensors.size(); ++i) {
      if (!field.tensors[i].defined()) continue;
      names.emplace_back(prefix + field.name + (field.is_list ? fmt::format(".{}", i) : ""),
                         field.tensors[i]);
    }
  }
  for (std::size_t i = 0; i < children_.size(); ++i) {
    children_[i].name_into(prefix + child_names_[i] + ".", names);
  }
}

NamedTensors State::named() const {
  NamedTensors names;
  name_into("", names);
  return names;
}

void State::load(const NamedTensors& values) {
  nn::load_tensors("State::load", "the optimizer's state", named(), values);
}

void save(const State& state, const std::string& path) {
  save_safetensors(path, {state.named(), {{"format", "brrr"}}});
}

void load(State& state, const std::string& path) { state.load(load_safetensors(path).tensors); }

}  // namespace brrr::optim
