// A chain of modules, named by index: "0.weight", "2.weight".
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

  // Constructs a module at the end; the Sequential owns it.
  template <class M, class... Arguments>
  M& add(Arguments&&... arguments) {
    auto owned = std::make_unique<M>(std::forward<Arguments>(arguments)...);
    M& module = *owned;
    append(std::move(owned));
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
