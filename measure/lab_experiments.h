// The experiments of the lab, a function each, and what they share.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/graph/compile.h>
#include <brrr/measure/lab.h>
#include <brrr/measure/limits.h>
#include <brrr/measure/step_cost.h>
#include <brrr/nn/module.h>
#include <brrr/ops/functions.h>
#include <brrr/ops/matmul.h>

namespace brrr::measure::lab {

// Options of a tensor on the device of the lab.
inline Options here(const LabOptions& options) { return {.dtype = f32, .device = options.device}; }

// lab_calculators.cpp
Finding growth(const LabOptions& options);
Finding parallel(const LabOptions& options);
// lab_products.cpp
Finding peaks(const LabOptions& options);
Finding square_products(const LabOptions& options);
// lab_classes.cpp
Finding operator_classes(const LabOptions& options);
Finding achieved_flops(const LabOptions& options);
Finding share_of_peak(const LabOptions& options);
// lab_bandwidth.cpp
Finding accesses(const LabOptions& options);
Finding fused_cost(const LabOptions& options);
Finding break_even(const LabOptions& options);
Finding repeat(const LabOptions& options);
Finding multiply_add(const LabOptions& options);
// lab_fusion.cpp
Finding fusion_onto(const LabOptions& options);
Finding activations(const LabOptions& options);
// lab_memory.cpp
Finding memory_ladder(const LabOptions& options);
Finding transfers(const LabOptions& options);
// lab_in_place.cpp
Finding in_place(const LabOptions& options);
// lab_remat.cpp
Finding recomputation(const LabOptions& options);
// lab_overhead.cpp
Finding additions(const LabOptions& options);
Finding batch_doubling(const LabOptions& options);
Finding remedies(const LabOptions& options);
Finding chain(const LabOptions& options);
// lab_python.cpp
// Additions a second, where python3 (and torch) is installed.
struct PythonAdditions {
  std::optional<double> python = {}, torch = {};
};
PythonAdditions python_additions(Device device);
PythonAdditions parse_python_additions(const std::string& output);  // "python 3e7\ntorch 3e5\n"
std::string text_of(const PythonAdditions& found);

// lab_loading.cpp
Finding data_loading(const LabOptions& options);
// lab_timelines.cpp
Finding timelines(const LabOptions& options);
Finding gpu_util(const LabOptions& options);
// Why a recorded step shows nothing of the untraced one, where tracing adds this share of its time
// and more than doubles it; empty: it does not.
std::string recording_doubt(std::string_view name, double perturbation);

// lab_flame.cpp
Finding one_addition(const LabOptions& options);

// --- Shared ---

using Step = std::function<void()>;

// A step in one mode, called until it is replayed.
struct PreparedStep {
  Step call;
  double bytes = 0;  // that its kernels read and write
  double flops = 0;
  std::int64_t kernels = 0;
  std::optional<CompiledEntry> entry = {};  // unless it is eager
};
PreparedStep prepare(Device device, Step step, Mode mode, Rounding rounding = Rounding::eager,
                     Remat remat = Remat::none());

// The step that `make` returns, in each mode, timed alternately. `make` is called for each mode, so
// that steps with parameters share none.
struct InModes {
  std::array<PreparedStep, 3> steps;  // eager, graph, fused
  std::array<Timing, 3> timings;

  double speed_up(Mode mode) const {
    return timings[0].median / timings[static_cast<std::size_t>(mode)].median;
  }
  double spread() const;
};
InModes time_modes(const LabOptions& options, const std::function<Step()>& make);

// Forward and backward, with an update by Adam where asked for, on a fixed batch of noise.
Step training_step(Device device, std::shared_ptr<nn::Module> model, const Dims& shape,
                   bool update = true);

// Elements of a tensor that exceeds the caches.
std::int64_t large(const LabOptions& options);
// The same but for a quick experiment, which has fewer.
std::int64_t pass_elements(const LabOptions& options);
// A copy with cold caches, on the CPU a plain loop of adds.
BandwidthLimit copy_limit(const LabOptions& options);
MultiplyAdds multiply_add_limit(const LabOptions& options);
// A square product; f32 in TF32 on CUDA. Flops a second.
struct ProductRate {
  double rate = 0, spread = 0;
};
ProductRate product_rate(const LabOptions& options, std::int64_t n, DType dtype);
// One that reaches the peak.
std::int64_t full_product(const LabOptions& options);

Reading microseconds(std::string name, const Timing& timing);

}  // namespace brrr::measure::lab
