// brrr train: trains a toy model, then measures the time and the cost of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/training.h"
#include <brrr/measure/timing.h>

namespace brrr::cli {

struct TrainProgress {
  std::int64_t before;                  // steps of the loaded run
  std::int64_t done;                    // steps of this run
  const std::function<double()>& loss;  // of the last step; waits for the device
};

struct TrainOptions : TrainingOptions {
  std::int64_t steps = 20;
  double time_seconds = 0.5;   // of timed steps after the training; 0: none
  bool seed_is_given = false;  // false: a loaded run's seed is used
  std::string save, load;      // files; empty: none
  bool check_finite = false;
  std::function<void(const TrainProgress&)> progress = {};  // called after each step
  std::function<bool()> stop = {};  // called after each step; true ends the training
};

struct TrainResult {
  TrainOptions options;         // with the seed in use
  std::int64_t steps_done = 0;  // including those of the loaded run
  std::vector<double> losses;   // of this run, before each step
  bool interrupted = false;     // by `stop`; measurements may be missing
  bool cut_off = false;         // in the compilation of a step, which was not done
  std::string saved;            // the file written; empty: none
  std::optional<measure::Timing> step;
  std::optional<measure::StepCost> cost;
  std::optional<CompiledEntry> compiled;  // in graph mode
};

TrainResult train(const TrainOptions& options);

// Collects losses and reads them from the device in batches: the host rarely waits, and a long run
// holds few tensors.
class Losses {
 public:
  void add(Tensor loss);
  // All losses; reads those that are still on the device.
  std::vector<double>& values();

 private:
  std::vector<Tensor> unread_;
  std::vector<double> values_;
};

// Runs steps and returns their losses.
std::vector<double> train_steps(Training& training, std::int64_t steps);
// The sampling for a step's time.
inline measure::Sampling sampling_of(const TrainOptions& options) {
  const double sample = std::min(0.02, options.time_seconds / 8);
  return {.samples = std::max(60, static_cast<int>(options.time_seconds / sample)),
          .sample_seconds = sample,
          .budget_seconds = options.time_seconds};
}

}  // namespace brrr::cli
