// A training run in one safetensors file: the parameters under their own names, the optimizer's
// state under "optimizer.", and the model, the seed and the steps done as metadata. The seed and
// the model fix all that is drawn; a step draws nothing.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/io/safetensors.h>
#include <brrr/nn/module.h>
#include <brrr/nn/optim/optimizer.h>

namespace brrr::cli {

struct RunFacts {
  std::string model;
  std::string activation = {};  // of an mlp; empty: of another model
  bool residual = false;
  std::uint64_t seed = 0;
  std::int64_t steps = 0;
};

// "transformer", "mlp of relu", "mlp of silu in residual blocks"
std::string network_of(const RunFacts& facts);

void save_run(const std::string& path, const RunFacts& facts, const nn::Module& module,
              const optim::Optimizer& optimizer);

class RunFile {
 public:
  explicit RunFile(const std::string& path);

  const RunFacts& facts() const { return facts_; }
  void load_into(nn::Module& module, optim::Optimizer& optimizer) const;

 private:
  std::string path_;
  SafeTensors file_;
  RunFacts facts_;
};

}  // namespace brrr::cli
