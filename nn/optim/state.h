// The state of a gradient transformation between steps: a tree of named tensors. Steps write them
// in place, so a State names the same tensors for its whole lifetime.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/nn/load_tensors.h>
#include <brrr/tensor/tensor.h>

namespace brrr::optim {

using nn::NamedTensors;

class State {
 public:
  // Each returns *this, for chaining. A list has one tensor per parameter; entries may be
  // undefined.
  State& add(std::string name, Tensor tensor);
  State& add(std::string name, std::vector<Tensor> list);
  State& add(std::string name, State child);

  Tensor& tensor(std::string_view name);
  std::vector<Tensor>& list(std::string_view name);
  // The same; throws unless the list has the shapes of these parameters.
  std::vector<Tensor>& list(std::string_view name, std::span<const Tensor> params);
  State& child(std::string_view name);
  // The first tensor of that name directly in a child of the given name, depth first; null: none.
  Tensor* find(std::string_view child, std::string_view name);

  // Every tensor by its path, such as "1.mu.0": child, list, index.
  NamedTensors named() const;
  // Copies values by path (nn/load_tensors.h).
  void load(const NamedTensors& values);

 private:
  struct Field {
    std::string name;
    std::vector<Tensor> tensors;
    bool is_list;
  };
  Field& field(std::string_view name);
  void name_into(const std::string& prefix, NamedTensors& names) const;
  void require_new(const std::string& name) const;

  std::vector<Field> fields_;
  std::vector<std::string> child_names_;
  std::vector<State> children_;
};

// A safetensors file of the state's tensors by their paths; resuming from it gives the same bits.
void save(const State& state, const std::string& path);
void load(State& state, const std::string& path);

}  // namespace brrr::optim
