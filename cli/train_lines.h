// What brrr train shows while it trains: lines of losses on stdout, ten at most, each as soon as it
// is known, the first and the last step's among them; and on a terminal a line with the last step.
#pragma once

#include <cstdint>

#include "cli/terminal.h"
#include "cli/train.h"

namespace brrr::cli {

class TrainLines {
 public:
  // Without `losses` (a JSON document is wanted) nothing goes to stdout.
  TrainLines(const TrainOptions& options, bool losses);

  void show(const TrainProgress& at);
  // What is left to print when the training is over, and the results.
  void finish(const TrainResult& result);

 private:
  void print_loss(std::int64_t step, double loss);
  void show_progress(const TrainProgress& at);

  const TrainOptions& options_;
  bool losses_;
  ProgressLine line_;
  std::int64_t printed_ = 0;  // lines
  std::int64_t last_ = -1;    // the step of the last one
  double start_, next_ = 0;   // of the progress line
};

}  // namespace brrr::cli
