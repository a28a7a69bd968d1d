// brrr bench steps: training steps called and replayed, and what tracing and replaying cost.
#pragma once

#include <brrr/measure/bench.h>

namespace brrr::cli {

// "steps/SIZE PRECISION MODE" are the steps of bench/peers/torch_steps.py, in us. On CUDA their
// limit is the time of the device alone. The CPU has the smaller sizes only.
measure::Results bench_steps(const measure::BenchOptions& options);

}  // namespace brrr::cli
