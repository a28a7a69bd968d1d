// A toy model under way: its parameters, its optimizer, and the step that trains it, which is
// called or replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/toy.h"
#include <brrr/graph/compile.h>
#include <brrr/measure/step_cost.h>
#include <brrr/nn/optim/optimizer.h>
#include <brrr/nn/parameters.h>

namespace brrr::cli {

struct TrainingOptions {
  ToyOptions toy;
  Mode mode = Mode::eager;
  std::string remat = "none";
  bool tf32 = false;
  bool measured_matmul = true;  // the fastest algorithm of those offered, else the first
  std::string optimizer = "adam";
  double rate = 1e-3;
  std::int64_t warmup = 0;  // steps in which the rate rises from 0
  double clip = 0;          // of the gradients' common norm; 0: none
  std::uint64_t seed = 0;
};

const char* name_of(Mode mode);

// Sets the seed and how matrix products are computed: trainings that differ in these are made and
// run one after the other.
class Training {
 public:
  explicit Training(const TrainingOptions& options);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // Gives the loss before the step.
  Tensor step() { return step_(); }
  // Forgets what was compiled.
  void clear() { step_.clear(); }

  nn::Module& module() { return toy_.module(); }
  const nn::Parameters& parameters() const { return parameters_; }
  optim::Optimizer& optimizer() { return optimizer_; }

  // What a step asks for; makes a few. A replay has the calls of the graph; what it keeps for
  // itself counts as live.
  measure::StepCost cost();
  // How the step was compiled; nothing in eager mode.
  std::optional<CompiledEntry> compiled() const;
  // What tells of itself.
  const Compiled<std::function<Tensor()>>& compiled_step() const { return step_; }

 private:
  Device device_;
  Toy toy_;
  nn::Parameters parameters_;
  optim::Optimizer optimizer_;
  Compiled<std::function<Tensor()>> step_;
};

}  // namespace brrr::cli
