// brrr train: trains a toy model, then measures the time and the cost of a step.
#pragma once

#include <cstdint>
#include <functional>
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
  std::uint64_t seed = 0;
  std::vector<measure::Fact> facts = {};  // options and precision, for documents
  std::int64_t steps = 20;
  double time_seconds = 0.5;   // of timed steps after the training; 0: none
  bool seed_is_given = false;  // false: a loaded run's seed is used
  std::string save, load;      // files; empty: none
  bool check_finite = false;
  std::function<void(const TrainProgress&)> progress = {};  // called after each step
  std::function<bool()> stop = {};  // called after each step; true ends the training
};

// `losses` are of this run.
struct TrainResult : measure::StepResult {
  TrainOptions options;         // with the seed in use
  std::int64_t steps_done = 0;  // including those of the loaded run
  bool interrupted = false;     // by `stop`; measurements may be missing
  bool cut_off = false;         // in the compilation of a step, which was not done
  std::string saved;            // the file written; empty: none
};

TrainResult train(const TrainOptions& options);

}  // namespace brrr::cli
