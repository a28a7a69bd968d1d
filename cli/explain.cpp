#include "cli/explain.h"

#include <fmt/format.h>

#include "brrr/measure/bench.h"
#include "brrr/measure/compare_report.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/stream.h"
#include "cli/text_output.h"

namespace brrr::cli {
namespace {

// The measured and predicted time and peak memory of a step. Clears the compiled step, since the
// peak is measured relative to memory that outlives it, gradients included.
std::string measured_text(Training& training, const ExplainOptions& o) {
  const Device device = o.toy.device;
  const CompiledEntry entry = *training.compiled();
  std::string text = "measured beside predicted:\n";
  if (o.time_seconds > 0) {
    const measure::Timing step =
        measure::time(measure::synchronized_batch(device, [&training] { training.step(); }),
                      measure::sampling_for(o.time_seconds));
    text += fmt::format("  step: {} us, predicted {}{}\n", measure::number_text(step.median * 1e6),
                        measure::number_text(static_cast<double>(entry.predicted.ps()) * 1e-6),
                        step.disturbed() ? ", disturbed" : "");
  }
  synchronize(device);
  reset_peak_memory(device);
  training.step();
  synchronize(device);
  const MemoryStats with = memory_stats(device);
  training.clear();
  const MemoryStats without = memory_stats(device);
  text += fmt::format("  peak memory of a step: {} bytes, planned {}\n",
                      with.peak - without.live + with.captured - without.captured,
                      entry.planned_bytes());
  return text;
}

}  // namespace

std::string explain(const ExplainOptions& o) {
  using Format = ExplainOptions::Format;
  Training training(o);
  for (int i = 0; i < 2; ++i) training.step();  // the second one is captured
  const auto& step = training.compiled_step();
  if (o.format == Format::json) return step.graph_json();
  if (o.format == Format::dot) return step.graph_dot();
  if (o.format == Format::svg) {
    measure::LinePlot plot = measure::memory_plot({{name_of(o.remat), step.live_bytes()}});
    plot.title += fmt::format(": {}, {}", o.toy.model, work_text(o));
    return measure::with_style(measure::to_svg(plot, "memory"));
  }
  std::string text = step.explain() + "\n" + step.graph_text();
  if (o.source) text += sources_text(step.kernels());
  if (o.remat.kind() != Remat::Kind::none) text += "\n" + measured_text(training, o);
  return text;
}

}  // namespace brrr::cli
