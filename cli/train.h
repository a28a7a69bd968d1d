// brrr train: trains a toy model, then takes the step's time and counts what it asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/toy.h"
#include "measure/step_cost.h"
#include "measure/timing.h"

namespace brrr::cli {

struct TrainOptions {
  ToyOptions toy;
  std::string mode = "eager";
  std::string remat = "none";
  bool tf32 = false;
  bool measured_matmul = true;  // the fastest algorithm of those offered, else the first
  std::string optimizer = "adam";
  double rate = 1e-3;
  std::int64_t warmup = 0;  // steps in which the rate rises from 0
  double clip = 0;          // of the gradients' common norm; 0: none
  std::int64_t steps = 20;
  double time_seconds = 0.5;  // of further steps, which the step's time is taken from; 0: none
  std::optional<std::uint64_t> seed = {};  // else that of the file loaded, else 0
  std::string save, load;                  // files; empty: none
  bool check_finite = false;
  // Told of steps done and how many there will be; `loss` waits for the device.
  std::function<void(std::int64_t done, const std::function<double()>& loss)> progress = {};
};

struct TrainResult {
  TrainOptions options;         // with the seed that was used
  std::int64_t steps_done = 0;  // with those of the run that was loaded
  std::vector<double> losses;   // of this run, before each step
  std::optional<measure::Timing> step;
  measure::StepCost cost;
};

TrainResult train(const TrainOptions& options);

}  // namespace brrr::cli
