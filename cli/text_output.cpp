// Lays out what people read.
#include "cli/text_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace brrr::cli {
namespace {

std::string bytes_text(std::int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 100 ? 0 : 1, units[unit]);
}

// Three figures that count, never an exponent.
std::string number_text(double value) {
  const int digits = value == 0 || value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 4;
  return fmt::format("{:.{}f}", value, digits);
}

void line(std::string& text, std::string_view name, std::string_view value) {
  text += fmt::format("{:<16} {}\n", name, value);
}

}  // namespace

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
    line(text, library.name,
         library.problem.empty() ? library.version : "none: " + library.problem);
  }
  for (const measure::Cache& cache : m.caches) {
    line(text, "cache",
         fmt::format("{}: {}, {} entries, {}", cache.name, cache.path, cache.entries,
                     bytes_text(cache.bytes)));
  }
  return text;
}

std::string to_text(const measure::Results& results, const measure::Machine& machine) {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"name", "value", "limit", "ratio", "the limit is"}};
  bool disturbed = false;
  for (const measure::Result& r : results) {
    const bool mark = r.spread > 0.10;
    disturbed |= mark;
    rows.push_back({r.name + (mark ? " ~" : ""), number_text(r.value) + " " + r.unit,
                    r.limit ? number_text(*r.limit) : "-",
                    r.ratio() ? fmt::format("{:.3f}", *r.ratio()) : "-", r.limit_name});
  }
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  if (!results.empty()) {
    const bool on_cpu = results.front().device.is_cpu() || machine.gpus.empty();
    text += fmt::format("on {}\n", on_cpu ? machine.processor.model : machine.gpus.front().name);
  }
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:>{}}  {:>{}}  {:>{}}", row[0], widths[0], row[1], widths[1],
                        row[2], widths[2], row[3], widths[3]);
    text += row[4].empty() ? "\n" : "  " + row[4] + "\n";
  }
  if (disturbed) text += "~ the samples lie far apart: the machine was busy with something else\n";
  return text;
}

std::string to_text(const TrainResult& result) {
  const TrainOptions& o = result.options;
  const ToyOptions& toy = o.toy;
  std::string text;
  line(
      text, toy.model,
      fmt::format(
          "batch {}, width {}, {} layers{}, {}{} on {}, {}, {}", toy.batch, toy.width, toy.layers,
          toy.model == "transformer" ? fmt::format(", {} heads, seq {}", toy.heads, toy.seq) : "",
          name_of(toy.dtype), o.tf32 ? " (tf32)" : "", to_string(toy.device), o.mode, o.optimizer));
  // Ten losses at most, the first and the last among them.
  const std::size_t count = result.losses.size(), shown = std::min<std::size_t>(count, 10);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t at = shown == 1 ? 0 : i * (count - 1) / (shown - 1);
    const auto step = result.steps_done - static_cast<std::int64_t>(count - at);
    line(text, i == 0 ? "loss" : "", fmt::format("{:>8}  {:.6g}", step, result.losses[at]));
  }
  if (result.step) {
    const measure::Timing& step = *result.step;
    line(text, "step",
         fmt::format("{} us (least {}, most {}){}", number_text(step.median * 1e6),
                     number_text(step.least * 1e6), number_text(step.most * 1e6),
                     step.disturbed() ? ", disturbed" : ""));
  }
  line(text, "peak memory", bytes_text(result.cost.peak_bytes));
  line(text, "a step has",
       fmt::format("{} kernels, {} Mflop, {} moved", result.cost.kernels,
                   number_text(static_cast<double>(result.cost.flops) * 1e-6),
                   bytes_text(result.cost.bytes)));
  return text;
}

}  // namespace brrr::cli
