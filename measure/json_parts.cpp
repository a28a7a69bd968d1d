#include "brrr/measure/json_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>
#include "brrr/measure/verdict_text.h"

namespace brrr::measure {

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json describe(const Machine& m) {
  Json gpus = Json::array(), libraries = Json::array(), caches = Json::array();
  for (const Gpu& gpu : m.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"memory_bytes", gpu.memory_bytes},
                    {"compute_capability", gpu.compute_capability},
                    {"multiprocessors", gpu.multiprocessors},
                    {"l2_bytes", gpu.l2_bytes}});
  }
  for (const Library& library : m.libraries) {
    libraries.push_back({{"name", library.name},
                         {"version", or_null(library.version)},
                         {"problem", or_null(library.problem)},
                         {"file", or_null(library.file)}});
  }
  for (const Cache& cache : m.caches) {
    Json refused = Json::array();
    for (const auto& [entry, why] : cache.refused)
      refused.push_back({{"entry", entry}, {"why", why}});
    caches.push_back({{"name", cache.name},
                      {"path", cache.path},
                      {"entries", cache.entries},
                      {"bytes", cache.bytes},
                      {"problem", or_null(cache.problem)},
                      {"refused", std::move(refused)}});
  }
  Json ceilings = Json::array();
  for (const KnownCeilings& known : m.ceilings) {
    ceilings.push_back({{"device", known.device},
                        {"calibrated", or_null(known.date)},
                        {"why_defaults", or_null(known.why_defaults)},
                        {"clock_mhz", known.clock_mhz > 0 ? Json(known.clock_mhz) : Json(nullptr)},
                        {"software", or_null(known.software)},
                        {"doubts", known.doubts}});
  }
  const Processor& p = m.processor;
  return {{"tag", m.tag},
          {"date", m.date},
          {"brrr", m.version},
          {"build", m.build_type},
          {"compiler", m.compiler},
          {"system", m.system},
          {"cpu",
           {{"model", p.model},
            {"isa", p.isa},
            {"kernels", p.kernels},
            {"threads", p.threads},
            {"threads_used", p.used},
            {"memory_bytes", p.memory_bytes}}},
          {"gpus", std::move(gpus)},
          {"why_no_cuda", or_null(m.why_no_cuda)},
          {"libraries", std::move(libraries)},
          {"caches", std::move(caches)},
          {"ceilings", std::move(ceilings)}};
}

std::vector<std::string> not_checked_of(const std::optional<GpuState>& gpu) {
  return gpu ? not_checked(*gpu) : std::vector<std::string>();
}
std::vector<std::string> disturbances_of(const std::optional<GpuState>& gpu) {
  return gpu ? disturbances(*gpu) : std::vector<std::string>();
}

Json describe(const Results& results) {
  Json list = Json::array();
  for (const Result& r : results) {
    list.push_back({{"name", r.name},
                    {"device", to_string(r.device)},
                    {"value", r.value},
                    {"unit", r.unit},
                    {"limit", or_null(r.limit)},
                    {"ratio", or_null(r.ratio())},
                    {"limit_is", or_null(r.limit_name)},
                    {"spread", r.spread}});
  }
  return list;
}

Json describe(const Plot& plot) {
  Json series = Json::array();
  for (const Series& each : plot.series)
    series.push_back({{"name", each.name}, {"points", each.points}});
  return {{"x", plot.x}, {"y", or_null(plot.y)}, {"series", std::move(series)}};
}

Json describe(const EagerCalls& calls) {
  return {{"kernels", calls.kernels},
          {"products", calls.products},
          {"library", calls.library},
          {"views", calls.views},
          {"recorded", calls.recorded}};
}

Json describe(const CompiledEntry& entry) {
  Json document = {{"nodes", entry.nodes},
                   {"launches", entry.launches},
                   {"lanes", entry.lanes},
                   {"arena_bytes", entry.arena_bytes},
                   {"least_bytes", entry.least_bytes},
                   {"kept_bytes", entry.kept_bytes},
                   {"scratch_bytes", entry.scratch_bytes},
                   {"kernel_bytes", entry.kernel_bytes},
                   {"planned_bytes", entry.planned_bytes()},
                   {"trace_ms", entry.trace_ms},
                   {"plan_ms", entry.plan_ms},
                   {"first_run_ms", entry.first_run_ms},
                   {"capture_ms", entry.capture_ms}};
  if (entry.arena_bytes_without_remat > 0) {
    document.update({{"recomputed_calls", entry.recomputed_calls},
                     {"arena_bytes_without_remat", entry.arena_bytes_without_remat}});
  }
  return document;
}

Json describe(const StepResult& result, Mode mode) {
  const auto microseconds = [&](double Timing::*which) {
    return result.step ? Json((*result.step).*which * 1e6) : Json(nullptr);
  };
  const auto counted = [&](std::int64_t StepCost::*which) {
    return result.cost ? Json((*result.cost).*which) : Json(nullptr);
  };
  const auto predicted = [&](auto part) {
    return result.cost ? Json(static_cast<double>(part(result.cost->predicted)) * 1e-6)
                       : Json(nullptr);
  };
  Json document = {
      {"step_us", microseconds(&Timing::median)},
      {"step_us_min", microseconds(&Timing::least)},
      {"step_us_max", microseconds(&Timing::most)},
      {"peak_bytes", counted(&StepCost::peak_bytes)},
      {"kernels_per_step", counted(&StepCost::kernels)},
      {"flops_per_step", counted(&StepCost::flops)},
      {"bytes_per_step", counted(&StepCost::bytes)},
      {"predicted_us", predicted([](const StepTime& t) { return t.ps(); })},
      {"predicted_overhead_us", predicted([](const StepTime& t) { return t.overhead_ps; })},
      {"predicted_bandwidth_us", predicted([](const StepTime& t) { return t.bandwidth_ps; })},
      {"predicted_compute_us", predicted([](const StepTime& t) { return t.compute_ps; })},
      {"host_slowdown", result.cost ? Json(result.cost->host_slowdown) : Json(nullptr)},
      {"eager_calls",
       result.cost && mode == Mode::eager ? describe(result.cost->eager) : Json(nullptr)},
      {"calibrated", result.cost ? Json(result.cost->calibrated) : Json(nullptr)},
      {"losses", result.losses}};
  if (result.compiled) document.update(describe(*result.compiled));
  return document;
}

namespace {

Json describe(const IdleSource& source, const Occupancy& in) {
  const auto steps = static_cast<double>(std::max<std::size_t>(in.steps, 1));
  return {{"cause", kIdleCauses[static_cast<std::size_t>(source.cause)]},
          {"text", to_string(source)},
          {"work", source.work ? Json(name_of(*source.work)) : Json(nullptr)},
          {"name", or_null(source.name)},
          {"in_graph", source.replayed},
          {"share", in.share(source.ns)},
          {"us_per_step", static_cast<double>(source.ns) * 1e-3 / steps},
          {"gaps_per_step", static_cast<double>(source.gaps) / steps}};
}

}  // namespace

Json idle_by_cause(const std::optional<Occupancy>& occupancy) {
  Json shares = nullptr;
  for (std::size_t i = 0; occupancy && i < kIdleCauses.size(); ++i)
    shares[kIdleCauses[i]] = occupancy->share(occupancy->idle_ns[i]);
  return shares;
}

Json idle_sources(const std::optional<Occupancy>& occupancy) {
  Json list = Json::array();
  if (!occupancy) return list;
  for (const IdleSource& source : occupancy->sources) list.push_back(describe(source, *occupancy));
  return list;
}

Json describe_recording(const Timeline& timeline) {
  return {{"source", timeline.source},
          {"complete", timeline.is_complete()},
          {"missing", timeline.missing},
          {"steps", timeline.steps.size()},
          {"perturbation", timeline.perturbation()}};
}

namespace {

Json describe(const MeasuredKernel& kernel) {
  return {{"name", kernel.name},
          {"result", kernel.result},
          {"module", or_null(kernel.module)},
          {"phase", kernel.phase},
          {"line", or_null(kernel.line)},
          {"launches", kernel.launches},
          {"us", kernel.seconds * 1e6},
          {"needed_us", kernel.needed * 1e6}};
}

}  // namespace

Json describe(const std::vector<CodeLine>& lines) {
  Json list = Json::array();
  for (const CodeLine& line : lines) {
    list.push_back({{"place", line.place},
                    {"calls_brrr", line.calls_brrr},
                    {"waits", line.waits},
                    {"share", line.share},
                    {"samples", line.samples}});
  }
  return list;
}

Json describe(const Diagnosis& d) {
  Json shares = nullptr;
  if (d.shares) {
    shares = Json::object();
    for (const ShownShare& each : kShownShares)
      shares[name_of(each.regime)] = d.shares->of(each.regime);
    shares.update({{"idle", d.shares->idle},  // the parts of the overhead
                   {"launches", d.shares->launches},
                   {"transfers", d.shares->transfers},
                   {"small_kernels", d.shares->small}});
  }
  Json estimate = Json::array();
  for (const IdleShare& each : d.idle_estimate)
    estimate.push_back({{"text", to_string(each.source)}, {"share", each.share}});
  const std::optional<double> busy = d.busy();
  const std::optional<Regime> second = d.shares ? d.shares->mixed_with() : std::optional<Regime>();
  return {{"regime", d.regime ? Json(name_of(*d.regime)) : Json(nullptr)},
          {"shares", std::move(shares)},
          {"mixed_with", second ? Json(name_of(*second)) : Json(nullptr)},
          {"confidence",
           d.regime ? Json(kConfidences[static_cast<std::size_t>(d.confidence)]) : Json(nullptr)},
          {"basis", d.by_timeline() ? "timings and timeline" : "timings"},
          {"caveats", d.caveats},
          {"busy", or_null(busy)},
          {"idle", busy ? Json(1 - *busy) : Json(nullptr)},
          {"idle_by_cause", idle_by_cause(d.occupancy)},
          {"idle_sources", idle_sources(d.occupancy)},
          {"idle_estimate", std::move(estimate)},
          {"idle_unattributed", or_null(d.unattributed)},
          {"achieved",
           {{"flops_per_second", d.flops.rate},
            {"flops_of_ceiling", d.flops.share},
            {"bytes_per_second", d.bytes.rate},
            {"bytes_of_ceiling", d.bytes.share}}},
          {"efficiency", or_null(d.efficiency)},
          {"advice", or_null(d.advice)},
          {"code", describe(d.code)},
          {"slowest_kernel", d.slowest ? describe(*d.slowest) : Json(nullptr)},
          {"doubts", d.doubts},
          {"problems", d.problems},
          {"not_checked", d.not_checked}};
}

Json describe(const BatchDoubling& doubling) {
  Json fits = Json::array();
  for (const Regime regime : doubling.fits) fits.push_back(name_of(regime));
  return {{"judgement", kDoublings[static_cast<std::size_t>(doubling.judgement)]},
          {"ratio", doubling.ratio},
          {"expected_overhead", doubling.expected[0]},
          {"expected_bandwidth", doubling.expected[1]},
          {"expected_compute", doubling.expected[2]},
          {"expected", or_null(doubling.expected_here)},
          {"fits", std::move(fits)},
          {"text", doubling.text}};
}

namespace {

Json describe(const PlotAxis& axis) {
  return {{"title", axis.title}, {"logarithmic", axis.logarithmic}};
}

Json describe(const std::vector<RooflinePlot::Ceiling>& ceilings) {
  Json list = Json::array();
  for (const auto& each : ceilings) list.push_back({{"name", each.name}, {"rate", each.rate}});
  return list;
}

Json describe(const LinePlot& plot) {
  Json series = Json::array();
  for (const Series& each : plot.series)
    series.push_back({{"name", each.name}, {"points", each.points}});
  return {{"kind", "lines"},       {"title", plot.title},         {"x", describe(plot.x)},
          {"y", describe(plot.y)}, {"series", std::move(series)}, {"steps", plot.steps}};
}

Json describe(const BarPlot& plot) {
  Json groups = Json::array();
  for (const auto& each : plot.groups)
    groups.push_back({{"name", each.name}, {"values", each.values}, {"shares", each.shares}});
  return {{"kind", "bars"},      {"title", plot.title},
          {"unit", plot.unit},   {"measures", plot.measures},
          {"parts", plot.parts}, {"groups", std::move(groups)}};
}

Json describe(const RooflinePlot& plot) {
  Json kernels = Json::array();
  for (const auto& each : plot.kernels) {
    kernels.push_back({{"name", each.name},
                       {"flops", each.flops},
                       {"bytes", each.bytes},
                       {"seconds", each.seconds},
                       {"measured", each.measured},
                       {"share", each.share}});
  }
  return {{"kind", "roofline"},
          {"title", plot.title},
          {"bandwidths", describe(plot.bandwidths)},
          {"computes", describe(plot.computes)},
          {"kernels", std::move(kernels)}};
}

// A span is [start, end, index of its kind].
Json describe(const LanePlot& plot) {
  Json lanes = Json::array();
  for (const auto& lane : plot.lanes) {
    Json spans = Json::array();
    for (const auto& span : lane.spans) spans.push_back({span.start, span.end, span.kind});
    lanes.push_back({{"name", lane.name}, {"spans", std::move(spans)}});
  }
  return {{"kind", "lanes"}, {"title", plot.title}, {"x", plot.x},
          {"end", plot.end}, {"kinds", plot.kinds}, {"lanes", std::move(lanes)}};
}

Json describe(const ReportItem& block) {
  if (const auto* text = std::get_if<Text>(&block)) return {{"kind", "text"}, {"text", text->text}};
  if (const auto* table = std::get_if<Table>(&block)) {
    return {{"kind", "table"},
            {"caption", table->caption},
            {"columns", table->columns},
            {"rows", table->rows}};
  }
  if (const auto* picture = std::get_if<Picture>(&block))
    return {{"kind", "picture"}, {"caption", picture->caption}, {"svg", picture->svg}};
  const auto& figure = std::get<Figure>(block);
  Json document = std::visit([](const auto& plot) { return describe(plot); }, figure.plot);
  document["caption"] = figure.caption;
  return document;
}

}  // namespace

Json describe(const Report& report) {
  Json facts = Json::object(), sections = Json::array();
  for (const auto& [name, value] : report.facts) facts[name] = value;
  for (const Section& section : report.sections) {
    Json blocks = Json::array();
    for (const ReportItem& block : section.blocks) blocks.push_back(describe(block));
    sections.push_back({{"title", section.title},
                        {"badge", or_null(section.badge)},
                        {"blocks", std::move(blocks)}});
  }
  return {{"title", report.title}, {"facts", std::move(facts)}, {"sections", std::move(sections)}};
}

std::string text_of(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace brrr::measure
