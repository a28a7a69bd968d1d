// Predicted costs of a compiled step's launches, and its planned memory: for reports and plots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <brrr/graph/call_site.h>
#include <brrr/graph/step_time.h>

namespace brrr::core {

// One launch of a compiled step, by prediction.
struct LaunchCost {
  std::string name;               // "affine"; of a generated kernel its calls: "sub, exp, mul"
  std::string result;             // the first one: "f32[64, 128]"
  std::string module;             // "mlp.layers.1"; empty: none
  const char* phase = "forward";  // or "backward", "update"
  std::int64_t bytes = 0, flops = 0;
  std::string product;  // what its matrix product is computed in: "f32", "bf16"; empty: it has none
  graph::CallSite site;               // of its last call; describing it takes a while
  KernelTime predicted, by_ceilings;  // the same, unless the kernel was timed (measure_kernels)
};

// Bytes of the arena in use at each call of a step.
struct LiveBytes {
  std::vector<std::size_t> every_value_kept;  // without rematerialization
  std::vector<std::size_t> planned;           // under the policy
  // Bytes of temporaries that alias gradients, which need no memory of their own.
  std::vector<std::size_t> every_value_kept_in_gradients, planned_in_gradients;
};

}  // namespace brrr::core
