// brrr trace: records some steps of a training and writes them for Perfetto.
#pragma once

#include <string>

#include "cli/train.h"
#include <brrr/measure/timeline.h>

namespace brrr::cli {

struct TraceOptions : TrainOptions {
  int record = 3;   // steps
  std::string out;  // the file
};

struct TraceResult {
  TraceOptions options;
  measure::Timeline timeline;
};

// Trains for options.steps, then records and writes the file.
TraceResult trace(const TraceOptions& options);

std::string to_text(const TraceResult& result);
std::string to_json(const TraceResult& result);  // json_output.cpp

}  // namespace brrr::cli
