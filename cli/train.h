// brrr train: trains a toy model, then takes the step's time and counts what it asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/training.h"
#include <brrr/measure/timing.h>

namespace brrr::cli {

struct TrainOptions : TrainingOptions {
  std::int64_t steps = 20;
  double time_seconds = 0.5;   // of further steps, which the step's time is taken from; 0: none
  bool seed_is_given = false;  // else it is that of the file loaded
  std::string save, load;      // files; empty: none
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
  std::optional<CompiledEntry> compiled;  // in graph mode
};

TrainResult train(const TrainOptions& options);

// So many steps, and their losses, which are read at the end.
std::vector<double> train_steps(Training& training, std::int64_t steps);
// How the time of a step is taken.
measure::Sampling sampling_of(const TrainOptions& options);

}  // namespace brrr::cli
