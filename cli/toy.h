// The toy models that the program trains: an MLP and a transformer without embeddings, on a fixed
// batch of random inputs and targets with mean squared error. bench/peers has the same models for
// other frameworks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <brrr/nn/activation.h>
#include <brrr/nn/sequential.h>
#include <brrr/ops/functions.h>

namespace brrr::cli {

struct ToyOptions {
  std::string model;  // "mlp" or "transformer"
  std::int64_t batch = 0;
  std::int64_t width = 0;
  int layers = 0;
  nn::Activation activation = nn::Activation::gelu_tanh;  // mlp
  bool residual = false;                                  // mlp
  int heads = 0;                                          // transformer
  std::int64_t seq = 0;                                   // transformer
  DType dtype = f32;
  Device device;
};

// mlp: layers of width × width with an activation between them, or residual blocks. transformer:
// causal pre-norm blocks.
class Toy {
 public:
  explicit Toy(const ToyOptions& options);

  nn::Module& module() { return *module_; }
  Tensor loss();

 private:
  using Layer = std::function<Tensor(const Tensor&)>;

  void make_blocks(int count, const std::function<nn::Module&(nn::Sequential&)>& add);

  std::unique_ptr<nn::Module> module_;
  std::vector<Layer> layers_;  // of the module, in order
  Tensor inputs_, targets_;
};

}  // namespace brrr::cli
