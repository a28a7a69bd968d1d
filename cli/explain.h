// brrr explain: a traced step, call by call.
#pragma once

#include <string>

#include "cli/train.h"

namespace brrr::cli {

struct ExplainOptions : TrainOptions {
  enum class Format { text, json, dot, svg };

  Format format = Format::text;  // svg: a plot of the memory, for which `remat` must not be none
  bool source = false;           // of generated kernels, in text
};

// Under a policy of rematerialization the text has the time and the peak of the step as measured,
// beside what was predicted.
std::string explain(const ExplainOptions& o);

}  // namespace brrr::cli
