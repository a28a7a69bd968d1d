// What a gradient transformation remembers between steps: named tensors in a tree. They are written
// in place, so a State names the same tensors from its making to its end.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::optim {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class State {
 public:
  // Each returns *this, so that a state is made in one expression. A list has a tensor for each
  // parameter; it may leave places undefined.
  State& add(std::string name, Tensor tensor);
  State& add(std::string name, std::vector<Tensor> list);
  State& add(std::string name, State child);

  Tensor& tensor(std::string_view name);
  std::vector<Tensor>& list(std::string_view name);
  // The same; throws unless the list has the shapes of these parameters.
  std::vector<Tensor>& list(std::string_view name, std::span<const Tensor> params);
  State& child(std::string_view name);
  // The first tensor of that name in the tree below a child of the name given; null when there is
  // none.
  Tensor* find(std::string_view child, std::string_view name);

  // Every tensor by its path, such as "1.mu.0": child, list, place.
  NamedTensors named() const;
  // Copies values by path. When any is missing, too many or of another shape or dtype, one Error
  // lists all of them and nothing has changed.
  void load(const NamedTensors& values);

 private:
  struct Entry {
    std::string name;
    std::vector<Tensor> tensors;
    bool is_list;
  };
  Entry& entry(std::string_view name);
  void name_into(const std::string& prefix, NamedTensors& names) const;
  void require_new(const std::string& name) const;

  std::vector<Entry> entries_;
  std::vector<std::string> child_names_;
  std::vector<State> children_;
};

// A safetensors file of the state's tensors by their paths; resuming from it gives the same bits.
void save(const State& state, const std::string& path);
void load(State& state, const std::string& path);

}  // namespace brrr::optim
