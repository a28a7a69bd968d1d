// A training run in one safetensors file: parameters, the optimizer's state under "optimizer.", and
// model, seed and completed steps as metadata. No random state is saved: the seed determines the
// batch and the initial values, and a step draws no random numbers.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/io/safetensors.h>
#include <brrr/nn/module.h>
#include <brrr/nn/optim/optimizer.h>

namespace brrr::cli {

struct RunMetadata {
  std::string model;
  std::string activation = {};  // of an mlp; empty for other models
  bool residual = false;
  std::uint64_t seed = 0;
  std::int64_t steps = 0;
};

// "transformer", "mlp of relu", "mlp of silu in residual blocks"
std::string describe_network(const RunMetadata& run);

void save_run(const std::string& path, const RunMetadata& run, const nn::Module& module,
              const optim::Optimizer& optimizer);

class RunFile {
 public:
  explicit RunFile(const std::string& path);

  const RunMetadata& metadata() const { return metadata_; }
  void load_into(nn::Module& module, optim::Optimizer& optimizer) const;

 private:
  std::string path_;
  SafeTensors file_;
  RunMetadata metadata_;
};

}  // namespace brrr::cli
