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

struct TrainProgress {
  std::int64_t before;                  // steps of the run that was loaded
  std::int64_t done;                    // steps of this one
  const std::function<double()>& loss;  // of the last step; waits for the device
};

struct TrainOptions : TrainingOptions {
  std::int64_t steps = 20;
  double time_seconds = 0.5;   // of further steps, which the step's time is taken from; 0: none
  bool seed_is_given = false;  // else it is that of the file loaded
  std::string save, load;      // files; empty: none
  bool check_finite = false;
  std::function<void(const TrainProgress&)> progress = {};  // called after each step
  std::function<bool()> stop = {};  // asked after each step whether to end there
};

struct TrainResult {
  TrainOptions options;         // with the seed that was used
  std::int64_t steps_done = 0;  // with those of the run that was loaded
  std::vector<double> losses;   // of this run, before each step
  bool interrupted = false;     // by `stop`; then what was not measured yet is missing
  std::string saved;            // the file that was written; empty: none
  std::optional<measure::Timing> step;
  std::optional<measure::StepCost> cost;
  std::optional<CompiledEntry> compiled;  // in graph mode
};

TrainResult train(const TrainOptions& options);

// Losses on their way to the host: read from the device many at a time, so that the host seldom
// waits, and a run keeps few tensors however long it is.
class Losses {
 public:
  void add(Tensor loss);
  // All so far.
  std::vector<double>& values();

 private:
  std::vector<Tensor> unread_;
  std::vector<double> values_;
};

// So many steps, and their losses.
std::vector<double> train_steps(Training& training, std::int64_t steps);
// How the time of a step is taken.
measure::Sampling sampling_of(const TrainOptions& options);

}  // namespace brrr::cli
