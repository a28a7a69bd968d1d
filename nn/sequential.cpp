#include "brrr/nn/sequential.h"

#include "brrr/tensor/fail.h"

namespace brrr::nn {

Function::Function(std::function<Tensor(const Tensor&)> function)
    : Module("function"), function_(std::move(function)) {
  if (!function_) fail("[function] expected a function, got none");
}

void Sequential::append(std::unique_ptr<Module> module) {
  if (!module) fail("[sequential] expected a module, got none");
  module->train(training());
  modules_.push_back(std::move(module));
  child(std::to_string(modules_.size() - 1), *modules_.back());
}

Module& Sequential::operator[](std::size_t i) const {
  if (i >= size()) fail("[{}] expected an index below {}, got {}", path(), size(), i);
  return *modules_[i];
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor h = x;
  for (const std::unique_ptr<Module>& module : modules_) h = (*module)(h);
  return h;
}

}  // namespace brrr::nn
