// The live output of brrr train: on stdout the losses of at most ten steps, the first and the last
// among them; on a terminal also a status line with the current step.
#pragma once

#include <cstdint>

#include "cli/train.h"
#include <brrr/measure/terminal.h>

namespace brrr::cli {

class TrainLines {
 public:
  // `losses`: whether losses are printed (not with --json).
  TrainLines(const TrainOptions& options, bool losses);

  void show(const TrainProgress& at);
  // Prints the last loss if it was not printed, and the results.
  void finish(const TrainResult& result);

 private:
  void print_loss(std::int64_t step, double loss);
  void show_progress(const TrainProgress& at);

  const TrainOptions& options_;
  bool losses_;
  measure::ProgressLine line_;
  std::int64_t printed_ = 0;  // lines
  std::int64_t last_ = -1;    // the step of the last line
  double start_, next_ = 0;   // the time of the start; of the next update of the status line
};

}  // namespace brrr::cli
