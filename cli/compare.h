// brrr compare: the same training of a toy model in all modes, in one process.
#pragma once

#include <functional>
#include <string>

#include "cli/train.h"
#include <brrr/measure/compare.h>

namespace brrr::cli {

struct CompareArguments {
  bool double_batch = false;  // times each mode at twice the batch as well
  bool timeline = false;      // records timelines of long steps too
  bool verbose = false;       // prints details
};

// Uses the model, the number of steps and the timing budget of `options`.
measure::Comparison compare(const TrainOptions& options, const CompareArguments& further,
                            const std::function<void(const std::string& what)>& progress);

}  // namespace brrr::cli
