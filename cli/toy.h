// The toy models: layers without embeddings, a fixed batch of noise, mean squared error. What
// other frameworks are compared on is the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <brrr/nn/activation.h>
#include <brrr/nn/module.h>
#include <brrr/ops/functions.h>

namespace brrr::cli {

struct ToyOptions {
  std::string model;  // "mlp" or "transformer"
  std::int64_t batch = 0;
  std::int64_t width = 0;
  int layers = 0;
  nn::Activation activation = nn::Activation::gelu_tanh;  // of an mlp
  bool residual = false;                                  // the same
  int heads = 0;                                          // of a transformer
  std::int64_t seq = 0;                                   // the same
  DType dtype = f32;
  Device device;
  bool remat = false;  // each layer is computed again for its gradients, from its input
};

// - mlp: layers of width × width with an activation between them, or residual blocks.
// - transformer: causal pre-norm blocks.
class Toy {
 public:
  explicit Toy(const ToyOptions& options);

  nn::Module& module() { return *module_; }
  Tensor loss();

 private:
  using Layer = std::function<Tensor(const Tensor&)>;

  bool remat_;
  std::unique_ptr<nn::Module> module_;
  std::vector<Layer> layers_;  // of the module, in turn
  Tensor inputs_, targets_;
};

}  // namespace brrr::cli
