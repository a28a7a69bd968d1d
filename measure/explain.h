// The command explain: a traced step, call by call.
#pragma once

#include <string>

#include <brrr/measure/model_run.h>

namespace brrr::measure {

enum class ExplainFormat : std::uint8_t { text, json, dot, svg };  // svg: a plot of the memory

struct ExplainOptions {
  ExplainFormat format = ExplainFormat::text;
  bool source = false;  // of generated kernels, in text
  int entry = 0;        // of those that the step replays: in text all are printed
};

// Under a policy of rematerialization the text has the time and the peak of the step as measured,
// beside what was predicted.
std::string explain(ModelRun run, const ExplainOptions& options);

}  // namespace brrr::measure
