#include "brrr/measure/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

#include "brrr/measure/bench.h"
#include "brrr/measure/compare_report.h"
#include "brrr/measure/replays.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

std::string sources_text(std::span<const GeneratedKernel> kernels) {
  std::string text;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    text +=
        fmt::format("\n// kernel {} [{}]\n{}", i, fmt::join(kernels[i].calls, ", "),
                    kernels[i].source.empty() ? "// its source is not kept\n" : kernels[i].source);
  }
  return text;
}

// The entries that a call of the step replays, each once.
std::vector<ReplayedEntry> entries_of(const ModelRun& run, const Step& step) {
  std::vector<ReplayedEntry> entries;
  for (const ReplayedEntry& each : replays_in([&step] { step(); })) {
    const bool known = std::ranges::any_of(entries, [&each](const ReplayedEntry& other) {
      return other.step == each.step && other.entry == each.entry;
    });
    if (!known) entries.push_back(each);
  }
  if (entries.empty()) {
    fail(
        "[explain] expected {} to replay a compiled step in mode {}, got calls one by one; "
        "compile it with the mode that make() is given",
        run.name, name_of(run.mode));
  }
  return entries;
}

// The measured and predicted time and peak memory of a step. Clears the compiled steps, since the
// peak is measured relative to memory that outlives them, gradients included.
std::string measured_text(const ModelRun& run, const Step& step,
                          const std::vector<ReplayedEntry>& entries) {
  std::int64_t predicted_ps = 0;
  std::size_t planned = 0;
  for (const ReplayedEntry& each : entries) {
    const CompiledEntry entry = each.report();
    predicted_ps += entry.predicted.ps();
    planned += entry.planned_bytes();
  }
  std::string text = "\nmeasured beside predicted:\n";
  if (run.seconds > 0) {
    const Timing timing =
        time(synchronized_batch(run.device, [&step] { step(); }), sampling_for(run.seconds));
    text += fmt::format("  step: {} us, predicted {}{}\n", number_text(timing.median * 1e6),
                        number_text(static_cast<double>(predicted_ps) * 1e-6),
                        timing.disturbed() ? ", disturbed" : "");
  }
  synchronize(run.device);
  reset_peak_memory(run.device);
  step();
  synchronize(run.device);
  const MemoryStats with = memory_stats(run.device);
  for (const ReplayedEntry& each : entries) each.step->clear();
  const MemoryStats without = memory_stats(run.device);
  text += fmt::format("  peak memory of a step: {} bytes, planned {}\n",
                      with.peak - without.live + with.captured - without.captured, planned);
  return text;
}

}  // namespace

std::string explain(ModelRun run, const ExplainOptions& options) {
  run.steps = 0;
  const Step step = run.trained();
  const std::vector<ReplayedEntry> entries = entries_of(run, step);
  if (options.format == ExplainFormat::text) {
    std::string text;
    for (const ReplayedEntry& each : entries) {
      text += (text.empty() ? "" : "\n") + each.step->explain() + "\n" +
              each.step->graph_text(each.entry, 0);
      if (options.source) text += sources_text(each.step->kernels(each.entry));
    }
    if (run.remat.kind() != Remat::Kind::none) text += measured_text(run, step, entries);
    return text;
  }
  if (options.entry >= static_cast<int>(entries.size())) {
    fail(
        "[explain] expected --entry to be below the number of compiled steps that are replayed, "
        "{}, "
        "got {}",
        entries.size(), options.entry);
  }
  const ReplayedEntry& entry = entries[static_cast<std::size_t>(options.entry)];
  if (options.format == ExplainFormat::json) return entry.step->graph_text(entry.entry, 2);
  if (options.format == ExplainFormat::dot) return entry.step->graph_text(entry.entry, 1);
  LinePlot plot = memory_plot({{name_of(run.remat), entry.step->live_bytes(entry.entry)}});
  plot.title += fmt::format(": {}, {}", run.name, with_device(run, run.device));
  return with_style(to_svg(plot, "memory"));
}

}  // namespace brrr::measure
