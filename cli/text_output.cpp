#include "cli/text_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "brrr/ops/matmul.h"
#include "brrr/tensor/counted.h"

namespace brrr::cli {

using measure::aligned;
using measure::bytes_text;
using measure::kDisturbed;
using measure::line;
using measure::number_text;
using measure::without_sign_of_nan;

namespace {

// When, at what clock and with what software ceilings were measured.
std::string measured_text(const std::string& date, std::int64_t mhz, const std::string& software) {
  return fmt::format("{}, {}, {}", date, mhz > 0 ? fmt::format("{} MHz", mhz) : "clock unknown",
                     software);
}

}  // namespace

std::string work_text(const TrainingOptions& o) {
  const ToyOptions& toy = o.toy;
  std::string layers = counted(toy.layers, toy.residual ? "residual block" : "layer");
  if (toy.model == "transformer")
    layers += fmt::format(", {} heads, seq {}", toy.heads, toy.seq);
  else if (toy.residual || toy.activation != nn::Activation::gelu_tanh)
    layers += fmt::format(" of {}", nn::name_of(toy.activation));
  return fmt::format("batch {}, width {}, {}, {}{} on {}", toy.batch, toy.width, layers,
                     name_of(toy.dtype), matmul_precision() == Precision::tf32 ? " (tf32)" : "",
                     to_string(toy.device));
}

std::string to_text(const measure::Machine& m) {
  std::string text;
  line(text, "brrr", fmt::format("{}, {}, {}", m.version, m.build_type, m.compiler));
  line(text, "system", m.system);
  const measure::Processor& p = m.processor;
  line(text, "cpu",
       fmt::format("{}, {} (kernels: {}), {} threads ({} used), {}", p.model, p.isa, p.kernels,
                   p.threads, p.used, bytes_text(p.memory_bytes)));
  for (const measure::Gpu& gpu : m.gpus) {
    line(text, fmt::format("cuda:{}", gpu.index),
         fmt::format("{}, compute capability {}, {} multiprocessors, {}, L2 {}", gpu.name,
                     gpu.compute_capability, gpu.multiprocessors, bytes_text(gpu.memory_bytes),
                     bytes_text(gpu.l2_bytes)));
  }
  if (!m.why_no_cuda.empty()) line(text, "cuda", "none: " + m.why_no_cuda);
  for (const measure::Library& library : m.libraries) {
    std::string value = library.problem.empty() ? library.version : "none: " + library.problem;
    if (!library.file.empty()) value += ", " + library.file;
    line(text, library.name, value);
  }
  for (const measure::Cache& cache : m.caches) {
    line(text, "cache",
         fmt::format("{}: {}, {} entries, {}{}{}", cache.name, cache.path, cache.entries,
                     bytes_text(cache.bytes),
                     cache.problem.empty() ? "" : "; nothing is kept: ", cache.problem));
    for (const auto& [entry, why] : cache.refused)
      line(text, "", fmt::format("not used: {} {}", entry, why));
  }
  for (const measure::KnownCeilings& known : m.ceilings) {
    line(text, "ceilings",
         known.date.empty()
             ? fmt::format("{}: defaults, {}", known.device, known.why_defaults)
             : fmt::format("{}: calibrated {}", known.device,
                           measured_text(known.date, known.clock_mhz, known.software)));
    for (const std::string& what : known.doubts) line(text, "in doubt", what);
  }
  return text;
}

std::string to_text(const measure::Results& results, const measure::Machine& machine) {
  std::vector<std::vector<std::string>> rows = {{"name", "value", "limit", "ratio"}};
  std::vector<std::string> limits = {"limit measured as"};
  bool disturbed = false;
  for (const measure::Result& r : results) {
    const bool mark = r.disturbed();
    disturbed |= mark;
    rows.push_back({r.name + (mark ? " ~" : ""), number_text(r.value) + " " + r.unit,
                    r.limit ? number_text(*r.limit) : "-",
                    r.ratio() ? fmt::format("{:.3f}", *r.ratio()) : "-"});
    limits.push_back(r.limit_name);
  }
  std::string text;
  if (!results.empty()) text += measure::place_text(results.front().device, machine);
  const std::vector<std::string> lines = aligned(rows);
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += lines[i] + (limits[i].empty() ? "" : "  ") + limits[i] + "\n";
  if (disturbed) text += kDisturbed;
  return text;
}

std::string to_text(const measure::Calibration& calibration, const std::string& file) {
  std::string text;
  line(text, to_string(calibration.device), calibration.ceilings.machine);
  std::vector<std::vector<std::string>> rows;
  bool disturbed = false;
  for (const measure::Result& r : calibration.readings) {
    disturbed |= r.disturbed();
    rows.push_back({r.name + (r.disturbed() ? " ~" : ""), number_text(r.value) + " " + r.unit});
  }
  for (const std::string& row : aligned(rows)) text += row + "\n";
  if (disturbed) text += kDisturbed;
  if (calibration.gpu) {
    for (const std::string& what : measure::not_checked(*calibration.gpu))
      line(text, "not checked", what);
  }
  const graph::Ceilings& c = calibration.ceilings;
  line(text, "calibrated", measured_text(c.date, c.clock_mhz, c.software));
  line(text, "measured in", fmt::format("{:.1f} s", calibration.seconds));
  for (const std::string& what : c.doubts) line(text, "in doubt", what);
  line(text, "kept in", file.empty() ? "no file" : file);
  return text;
}

std::string heading_text(const TrainOptions& o) {
  std::string text;
  line(text, o.toy.model,
       fmt::format("{}, {}{}, {}", work_text(o), name_of(o.mode),
                   o.rounding == Rounding::fast ? " (fast rounding)" : "", o.optimizer));
  return text;
}

std::string loss_text(std::int64_t step, double loss, bool first) {
  std::string text;
  line(text, first ? "loss" : "",
       fmt::format("{:>8}  {:.6g}{}", step, without_sign_of_nan(loss),
                   std::isfinite(loss) ? "" : "  (--check-finite finds its origin)"));
  return text;
}

std::string to_text(const TrainResult& result) {
  std::string text;
  if (result.interrupted) {
    const auto done = static_cast<std::int64_t>(result.losses.size());
    line(text, "interrupted",
         fmt::format("after {} of {} steps{}", done, result.options.steps,
                     done < result.options.steps ? "" : ", during the measurement"));
  }
  if (!result.saved.empty())
    line(text, "saved", fmt::format("{}, after step {}", result.saved, result.steps_done));
  if (result.step) {
    const measure::Timing& step = *result.step;
    line(text, "step",
         fmt::format("{} us (least {}, most {}){}", number_text(step.median * 1e6),
                     number_text(step.least * 1e6), number_text(step.most * 1e6),
                     step.disturbed() ? ", disturbed" : ""));
  }
  if (const std::optional<measure::StepCost>& cost = result.cost) {
    line(text, "peak memory", bytes_text(cost->peak_bytes));
    line(
        text, "per step",
        fmt::format("{}, {} Mflop, {} moved", counted(cost->kernels, "kernel"),
                    number_text(static_cast<double>(cost->flops) * 1e-6), bytes_text(cost->bytes)));
  }
  if (const std::optional<CompiledEntry>& entry = result.compiled) {
    line(text, "graph",
         fmt::format("{} in {}; arena {} (at least {}), gradients {}, scratch {}",
                     counted(entry->nodes, "call"), counted(entry->lanes, "lane"),
                     bytes_text(entry->arena_bytes), bytes_text(entry->least_bytes),
                     bytes_text(entry->kept_bytes),
                     bytes_text(entry->scratch_bytes + entry->kernel_bytes)));
    if (entry->arena_bytes_without_remat > 0) {
      line(text, "remat",
           fmt::format("{} recomputed; arena with every value kept {}",
                       counted(entry->recomputed_calls, "call"),
                       bytes_text(entry->arena_bytes_without_remat)));
    }
    line(text, "compiled in",
         fmt::format("{:.1f} ms: trace {:.1f}, plan {:.1f}, first run {:.1f}, capture {:.1f}",
                     entry->trace_ms + entry->plan_ms + entry->first_run_ms + entry->capture_ms,
                     entry->trace_ms, entry->plan_ms, entry->first_run_ms, entry->capture_ms));
  }
  return text;
}

}  // namespace brrr::cli
