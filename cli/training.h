// A toy model in training: its parameters, its optimizer and its training step, which runs eagerly
// or as a replayed graph.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/toy.h"
#include <brrr/graph/compile.h>
#include <brrr/measure/compare.h>
#include <brrr/measure/step_cost.h>
#include <brrr/nn/optim/optimizer.h>
#include <brrr/nn/parameters.h>

namespace brrr::cli {

struct TrainingOptions {
  ToyOptions toy;
  Mode mode = Mode::eager;
  Rounding rounding = Rounding::eager;  // of a fused step
  Remat remat = Remat::none();          // eager steps keep everything
  std::string optimizer = "adam";
  double rate = 1e-3;
  std::int64_t warmup = 0;  // steps in which the rate rises from 0
  double clip = 0;          // maximum global norm of the gradients; 0: none
};

using measure::name_of;

class Training {
 public:
  explicit Training(const TrainingOptions& options);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // Returns the loss before the step.
  Tensor step() { return step_(); }
  // Discards the compiled entries.
  void clear() { step_.clear(); }

  nn::Module& module() { return toy_.module(); }
  const nn::Parameters& parameters() const { return parameters_; }
  optim::Optimizer& optimizer() { return optimizer_; }

  // The cost of a step; runs a few. In graph mode the calls are the graph's, and the program's
  // memory counts as live.
  measure::StepCost cost();
  // The compiled entry; none in eager mode.
  std::optional<CompiledEntry> compiled() const;

 private:
  Device device_;
  Toy toy_;
  nn::Parameters parameters_;
  optim::Optimizer optimizer_;
  Compiled<std::function<Tensor()>> step_;
};

}  // namespace brrr::cli
