// brrr bench steps: training steps in eager and graph mode, and the costs of tracing and replay.
#pragma once

#include <brrr/measure/bench.h>

namespace brrr::cli {

// "steps/SIZE PRECISION MODE" are the steps of bench/peers/torch_steps.py, in us. On CUDA their
// limit is the device time; on the CPU only the smaller sizes run.
void bench_steps(const measure::BenchOptions& options, measure::Results& results);

}  // namespace brrr::cli
