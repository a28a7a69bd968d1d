// Modules one after the other, named by their places: "0.weight", "2.weight".
//
//   nn::Sequential model;
//   model.add<nn::Linear>(2, 64);
//   model.add<nn::Function>(relu);
//   model.add<nn::Linear>(64, 3);
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <brrr/nn/module.h>

namespace brrr::nn {

// A function without parameters, as a module.
class Function : public Module {
 public:
  explicit Function(std::function<Tensor(const Tensor&)> function);
  Tensor forward(const Tensor& x) override { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

class Sequential : public Module {
 public:
  Sequential() : Module("sequential") {}

  // Makes a module at the end, and keeps it.
  template <class M, class... Arguments>
  M& add(Arguments&&... arguments) {
    auto made = std::make_unique<M>(std::forward<Arguments>(arguments)...);
    M& module = *made;
    append(std::move(made));
    return module;
  }
  void append(std::unique_ptr<Module> module);

  std::size_t size() const { return modules_.size(); }
  Module& operator[](std::size_t i) const;

  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::unique_ptr<Module>> modules_;
};

}  // namespace brrr::nn
