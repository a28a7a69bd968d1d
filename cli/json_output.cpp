// The only file that includes the JSON library, which is slow to compile.
#include "cli/json_output.h"

#include <nlohmann/json.hpp>

#include "cli/trace.h"

namespace brrr::cli {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json describe(const measure::Machine& m) {
  Json gpus = Json::array(), libraries = Json::array(), caches = Json::array();
  for (const measure::Gpu& gpu : m.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"memory_bytes", gpu.memory_bytes},
                    {"compute_capability", gpu.compute_capability},
                    {"multiprocessors", gpu.multiprocessors},
                    {"l2_bytes", gpu.l2_bytes}});
  }
  for (const measure::Library& library : m.libraries) {
    libraries.push_back({{"name", library.name},
                         {"version", or_null(library.version)},
                         {"problem", or_null(library.problem)},
                         {"file", or_null(library.file)}});
  }
  for (const measure::Cache& cache : m.caches) {
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
  for (const measure::KnownCeilings& known : m.ceilings) {
    ceilings.push_back({{"device", known.device},
                        {"calibrated", or_null(known.date)},
                        {"why_defaults", or_null(known.why_defaults)},
                        {"clock_mhz", known.clock_mhz > 0 ? Json(known.clock_mhz) : Json(nullptr)},
                        {"software", or_null(known.software)}});
  }
  const measure::Processor& p = m.processor;
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

std::vector<std::string> not_checked_of(const std::optional<measure::GpuState>& gpu) {
  return gpu ? measure::not_checked(*gpu) : std::vector<std::string>();
}
std::vector<std::string> disturbances_of(const std::optional<measure::GpuState>& gpu) {
  return gpu ? measure::disturbances(*gpu) : std::vector<std::string>();
}

Json describe(const measure::Results& results) {
  Json list = Json::array();
  for (const measure::Result& r : results) {
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

Json describe(const measure::Experiment& experiment) {
  return {{"name", experiment.name}, {"title", experiment.title}, {"claim", experiment.claim}};
}

Json describe(const measure::Plot& plot) {
  Json series = Json::array();
  for (const measure::Series& each : plot.series)
    series.push_back({{"name", each.name}, {"points", each.points}});
  return {{"x", plot.x}, {"y", or_null(plot.y)}, {"series", std::move(series)}};
}

Json describe(const ExperimentRun& found) {
  Json readings = Json::array();
  for (const measure::Reading& r : found.finding.readings) {
    readings.push_back({{"name", r.name},
                        {"value", r.value},
                        {"unit", r.unit},
                        {"article", or_null(r.article)},
                        {"claim", r.claim ? Json{r.claim->least, r.claim->most} : Json(nullptr)},
                        {"holds", r.claim ? Json(r.holds()) : Json(nullptr)},
                        {"spread", r.spread}});
  }
  Json document = describe(*found.experiment);
  document.update({{"confirmed", found.finding.outcome() == measure::Outcome::confirmed},
                   {"outcome", name_of(found.finding.outcome())},
                   {"doubts", found.finding.doubts()},
                   {"not_checked", not_checked_of(found.finding.gpu)},
                   {"verdict", found.finding.verdict()},
                   {"why", found.finding.why},
                   {"disturbed", found.finding.disturbed()},
                   {"seconds", found.seconds},
                   {"readings", std::move(readings)},
                   {"plot", found.finding.plot ? describe(*found.finding.plot) : Json(nullptr)},
                   {"svg", or_null(found.finding.svg)}});
  return document;
}

// The model and its sizes.
Json describe(const ToyOptions& toy) {
  Json document = {
      {"model", toy.model}, {"batch", toy.batch}, {"width", toy.width}, {"layers", toy.layers}};
  if (toy.model == "mlp") {
    document["activation"] = nn::name_of(toy.activation);
    document["residual"] = toy.residual;
  }
  if (toy.model == "transformer") {
    document["heads"] = toy.heads;
    document["seq"] = toy.seq;
  }
  return document;
}

Json describe(const measure::EagerCalls& calls) {
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

Json describe(const TrainResult& result) {
  const TrainOptions& o = result.options;
  const ToyOptions& toy = o.toy;
  Json document = describe(toy);
  const auto microseconds = [&](double measure::Timing::*which) {
    return result.step ? Json((*result.step).*which * 1e6) : Json(nullptr);
  };
  const auto counted = [&](std::int64_t measure::StepCost::*which) {
    return result.cost ? Json((*result.cost).*which) : Json(nullptr);
  };
  const auto predicted = [&](auto part) {
    return result.cost ? Json(static_cast<double>(part(result.cost->predicted)) * 1e-6)
                       : Json(nullptr);
  };
  document.update(
      {{"dtype", name_of(toy.dtype)},
       {"tf32", o.tf32},
       {"device", to_string(toy.device)},
       {"mode", name_of(o.mode)},
       {"rounding", name_of(o.rounding)},
       {"remat", o.remat},
       {"optimizer", o.optimizer},
       {"seed", o.seed},
       {"step_us", microseconds(&measure::Timing::median)},
       {"step_us_min", microseconds(&measure::Timing::least)},
       {"step_us_max", microseconds(&measure::Timing::most)},
       {"peak_bytes", counted(&measure::StepCost::peak_bytes)},
       {"kernels_per_step", counted(&measure::StepCost::kernels)},
       {"flops_per_step", counted(&measure::StepCost::flops)},
       {"bytes_per_step", counted(&measure::StepCost::bytes)},
       {"predicted_us", predicted([](const StepTime& t) { return t.ps(); })},
       {"predicted_overhead_us", predicted([](const StepTime& t) { return t.overhead_ps; })},
       {"predicted_bandwidth_us", predicted([](const StepTime& t) { return t.bandwidth_ps; })},
       {"predicted_compute_us", predicted([](const StepTime& t) { return t.compute_ps; })},
       {"host_slowdown", result.cost ? Json(result.cost->host_slowdown) : Json(nullptr)},
       {"eager_calls",
        result.cost && o.mode == Mode::eager ? describe(result.cost->eager) : Json(nullptr)},
       {"calibrated", result.cost ? Json(result.cost->calibrated) : Json(nullptr)},
       {"steps", result.steps_done},
       {"interrupted", result.interrupted},
       {"saved", or_null(result.saved)},
       {"losses", result.losses}});
  if (result.compiled) document.update(describe(*result.compiled));
  return document;
}

Json describe(const measure::IdleSource& source, const measure::Occupancy& in) {
  const auto steps = static_cast<double>(std::max<std::size_t>(in.steps, 1));
  return {{"cause", measure::kIdleCauses[static_cast<std::size_t>(source.cause)]},
          {"text", to_string(source)},
          {"work", source.work ? Json(name_of(*source.work)) : Json(nullptr)},
          {"name", or_null(source.name)},
          {"in_graph", source.replayed},
          {"share", in.share(source.ns)},
          {"us_per_step", static_cast<double>(source.ns) * 1e-3 / steps},
          {"gaps_per_step", static_cast<double>(source.gaps) / steps}};
}

Json idle_by_cause(const std::optional<measure::Occupancy>& occupancy) {
  Json shares = nullptr;
  for (std::size_t i = 0; occupancy && i < measure::kIdleCauses.size(); ++i)
    shares[measure::kIdleCauses[i]] = occupancy->share(occupancy->idle_ns[i]);
  return shares;
}

Json idle_sources(const std::optional<measure::Occupancy>& occupancy) {
  Json list = Json::array();
  if (!occupancy) return list;
  for (const measure::IdleSource& source : occupancy->sources)
    list.push_back(describe(source, *occupancy));
  return list;
}

Json describe_recording(const measure::Timeline& timeline) {
  return {{"source", timeline.source},
          {"complete", timeline.is_complete()},
          {"missing", timeline.missing},
          {"steps", timeline.steps.size()},
          {"perturbation", timeline.perturbation()}};
}

Json describe(const measure::Diagnosis& d) {
  Json shares = nullptr;
  if (d.shares) {
    shares = {{"overhead", d.shares->overhead()}, {"bandwidth", d.shares->bandwidth},
              {"compute", d.shares->compute},     {"idle", d.shares->idle},
              {"launches", d.shares->launches},   {"transfers", d.shares->transfers},
              {"small_kernels", d.shares->small}};
  }
  Json estimate = Json::array();
  for (const measure::IdleShare& each : d.idle_estimate)
    estimate.push_back({{"text", to_string(each.source)}, {"share", each.share}});
  const std::optional<double> busy = d.busy();
  const std::optional<measure::Regime> second =
      d.shares ? d.shares->mixed_with() : std::optional<measure::Regime>();
  return {{"regime", d.regime ? Json(name_of(*d.regime)) : Json(nullptr)},
          {"shares", std::move(shares)},
          {"mixed_with", second ? Json(name_of(*second)) : Json(nullptr)},
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
          {"problems", d.problems},
          {"not_checked", d.not_checked}};
}

// An eager step's prediction for the host's speed while the steps were timed.
Json describe_at_timed_speed(const Side& side) {
  const auto predicted = static_cast<double>(side.cost->predicted_at_timed_speed.ps()) * 1e-12;
  return {{"host_slowdown", side.cost->timed_slowdown},
          {"predicted_us", predicted * 1e6},
          {"prediction_error", predicted / side.step->median - 1}};
}

Json describe(const measure::BatchDoubling& doubling) {
  Json fits = Json::array();
  for (const measure::Regime regime : doubling.fits) fits.push_back(name_of(regime));
  return {{"judgement", measure::kDoublings[static_cast<std::size_t>(doubling.judgement)]},
          {"ratio", doubling.ratio},
          {"expected_overhead", doubling.expected[0]},
          {"expected_bandwidth", doubling.expected[1]},
          {"expected_compute", doubling.expected[2]},
          {"expected", or_null(doubling.expected_here)},
          {"fits", std::move(fits)},
          {"text", doubling.text}};
}

Json describe(const measure::PlotAxis& axis) {
  return {{"title", axis.title}, {"logarithmic", axis.logarithmic}};
}

Json describe(const std::vector<measure::RooflinePlot::Ceiling>& ceilings) {
  Json list = Json::array();
  for (const auto& each : ceilings) list.push_back({{"name", each.name}, {"rate", each.rate}});
  return list;
}

Json describe(const measure::LinePlot& plot) {
  Json series = Json::array();
  for (const measure::Series& each : plot.series)
    series.push_back({{"name", each.name}, {"points", each.points}});
  return {{"kind", "lines"},       {"title", plot.title},         {"x", describe(plot.x)},
          {"y", describe(plot.y)}, {"series", std::move(series)}, {"steps", plot.steps}};
}

Json describe(const measure::BarPlot& plot) {
  Json groups = Json::array();
  for (const auto& each : plot.groups)
    groups.push_back({{"name", each.name}, {"values", each.values}});
  return {{"kind", "bars"},
          {"title", plot.title},
          {"unit", plot.unit},
          {"measures", plot.measures},
          {"groups", std::move(groups)}};
}

Json describe(const measure::RooflinePlot& plot) {
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
Json describe(const measure::LanePlot& plot) {
  Json lanes = Json::array();
  for (const auto& lane : plot.lanes) {
    Json spans = Json::array();
    for (const auto& span : lane.spans) spans.push_back({span.start, span.end, span.kind});
    lanes.push_back({{"name", lane.name}, {"spans", std::move(spans)}});
  }
  return {{"kind", "lanes"}, {"title", plot.title}, {"x", plot.x},
          {"end", plot.end}, {"kinds", plot.kinds}, {"lanes", std::move(lanes)}};
}

Json describe(const measure::ReportItem& block) {
  if (const auto* text = std::get_if<measure::Text>(&block))
    return {{"kind", "text"}, {"text", text->text}};
  if (const auto* table = std::get_if<measure::Table>(&block)) {
    return {{"kind", "table"},
            {"caption", table->caption},
            {"columns", table->columns},
            {"rows", table->rows}};
  }
  if (const auto* picture = std::get_if<measure::Picture>(&block))
    return {{"kind", "picture"}, {"caption", picture->caption}, {"svg", picture->svg}};
  const auto& figure = std::get<measure::Figure>(block);
  Json document = std::visit([](const auto& plot) { return describe(plot); }, figure.plot);
  document["caption"] = figure.caption;
  return document;
}

Json describe(const measure::Report& report) {
  Json facts = Json::object(), sections = Json::array();
  for (const auto& [name, value] : report.facts) facts[name] = value;
  for (const measure::Section& section : report.sections) {
    Json blocks = Json::array();
    for (const measure::ReportItem& block : section.blocks) blocks.push_back(describe(block));
    sections.push_back({{"title", section.title},
                        {"badge", or_null(section.badge)},
                        {"blocks", std::move(blocks)}});
  }
  return {{"title", report.title}, {"facts", std::move(facts)}, {"sections", std::move(sections)}};
}

// Text from the system may be any bytes; invalid UTF-8 is replaced.
std::string text_of(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string error_json(const std::string& text) { return text_of({{"error", text}}); }

std::string to_json(const measure::Machine& machine) { return text_of(describe(machine)); }

std::string to_json(const measure::Results& results, const measure::Machine& machine) {
  return text_of({{"results", describe(results)}, {"machine", describe(machine)}});
}

std::string to_json(const measure::Calibration& calibration, const std::string& file,
                    const measure::Machine& machine) {
  return text_of({{"device", to_string(calibration.device)},
                  {"kept", !file.empty()},
                  {"file", or_null(file)},
                  {"disturbances", measure::disturbances(calibration)},
                  {"not_checked", not_checked_of(calibration.gpu)},
                  {"seconds", calibration.seconds},
                  {"readings", describe(calibration.readings)},
                  {"ceilings", Json::parse(graph::to_json(calibration.ceilings))},
                  {"machine", describe(machine)}});
}

std::string to_json(std::span<const measure::Experiment> experiments) {
  Json list = Json::array();
  for (const measure::Experiment& each : experiments) list.push_back(describe(each));
  return text_of({{"experiments", std::move(list)}});
}

std::string to_json(std::span<const ExperimentRun> found, const measure::LabOptions& options,
                    const measure::Machine& machine, const measure::Report* report) {
  Json findings = Json::array();
  for (const ExperimentRun& each : found) findings.push_back(describe(each));
  Json document = {{"device", to_string(options.device)},
                   {"quick", options.quick},
                   {"link_bytes", options.link},
                   {"findings", std::move(findings)},
                   {"machine", describe(machine)}};
  if (report) document["report"] = describe(*report);
  return text_of(document);
}

std::string to_json(const TrainResult& result) { return text_of(describe(result)); }

std::string to_json(const TraceResult& result) {
  const measure::Timeline& timeline = result.timeline;
  const TraceOptions& o = result.options;
  const auto timing = [](const measure::Timing& t) {
    return Json{{"us", t.median * 1e6}, {"spread", t.spread}, {"samples", t.samples}};
  };
  const double all = static_cast<double>(std::max<std::int64_t>(timeline.step_ns(), 1));
  Json host = Json::object(), device = Json::object();
  for (const measure::HostSpan& span : timeline.host) {
    Json& kind = host[name_of(span.work)];
    if (kind.is_null()) {
      const auto ns = static_cast<double>(timeline.host_ns(span.work));
      kind = {{"spans", 0}, {"share", ns / all}};
    }
    kind["spans"] = kind["spans"].get<int>() + 1;
  }
  for (const measure::DeviceSpan& span : timeline.spans) {
    Json& count = device[name_of(span.work)];
    count = count.is_null() ? 1 : count.get<int>() + 1;
  }
  const bool on_cpu = o.toy.device.is_cpu();
  const double busy = timeline.busy_share();
  return text_of({{"model", o.toy.model},
                  {"batch", o.toy.batch},
                  {"width", o.toy.width},
                  {"layers", o.toy.layers},
                  {"device", to_string(o.toy.device)},
                  {"mode", name_of(o.mode)},
                  {"file", o.out},
                  {"source", timeline.source},
                  {"complete", timeline.is_complete()},
                  {"missing", timeline.missing},
                  {"disturbances", disturbances_of(timeline.gpu)},
                  {"not_checked", not_checked_of(timeline.gpu)},
                  {"steps", timeline.steps.size()},
                  {"step_us", all * 1e-3 / static_cast<double>(o.record)},
                  {"untraced", timing(timeline.untraced)},
                  {"untraced_before", timing(timeline.before)},
                  {"untraced_after", timing(timeline.after)},
                  {"traced", timing(timeline.traced)},
                  {"perturbation", timeline.perturbation()},
                  {"host", std::move(host)},
                  {"device_spans", std::move(device)},
                  {"busy_share", on_cpu ? Json(nullptr) : Json(busy)},
                  {"idle_share", on_cpu ? Json(nullptr) : Json(1 - busy)},
                  {"idle_by_cause", idle_by_cause(occupancy_of(result))},
                  {"idle_sources", idle_sources(occupancy_of(result))}});
}

std::string to_json(const Profile& profile) {
  const measure::Ledger& ledger = profile.ledger;
  const TrainOptions& o = profile.options;
  Json document = describe(o.toy), classes = Json::array();
  for (const measure::LedgerLine& line : ledger.lines) {
    classes.push_back({{"name", name_of(line.of)},
                       {"is", description_of(line.of)},
                       {"ns", line.ns},
                       {"share", line.share},
                       {"standard_error", line.standard_error},
                       {"samples", line.samples}});
  }
  document.update({{"dtype", name_of(o.toy.dtype)},
                   {"device", to_string(o.toy.device)},
                   {"mode", name_of(o.mode)},
                   {"remat", o.remat},
                   {"optimizer", o.optimizer},
                   {"seed", o.seed},
                   {"step_ns", ledger.untraced.median * 1e9},
                   {"step_spread", ledger.untraced.spread},
                   {"sampled_step_ns", ledger.traced.median * 1e9},
                   {"perturbation", ledger.perturbation()},
                   {"sum_ns", ledger.sum_ns()},
                   {"closure", ledger.closure()},
                   {"samples", ledger.samples},
                   {"lost_samples", ledger.profile.lost},
                   {"interruption_ns", ledger.interruption_ns},
                   {"sampled_steps", ledger.steps},
                   {"complete", ledger.is_complete()},
                   {"missing", ledger.missing},
                   {"classes", std::move(classes)}});
  return text_of(document);
}

std::string to_json(const Comparison& comparison, const measure::Machine& machine,
                    const measure::Report* report) {
  const auto microseconds = [](const std::optional<measure::Timing>& timing) {
    return timing ? Json(timing->median * 1e6) : Json(nullptr);
  };
  const std::vector<measure::ComparedMode> modes = modes_of(comparison);
  Json rows = Json::array();
  for (const Side& side : comparison.sides) {
    Json row = describe(side);
    row.update({{"speed_up", comparison.speed_up(side)},
                {"agrees", !side.agreement.broken_at},
                {"loss_difference", side.agreement.largest},
                {"loss_bound", side.agreement.bound},
                {"host_us", microseconds(side.host)},
                {"device_us", microseconds(side.device)},
                {"idle_share", or_null(side.idle())},
                {"prediction_error", modes[rows.size()].error()},
                {"at_timed_speed", side.compiled ? Json(nullptr) : describe_at_timed_speed(side)}});
    row.update(describe(side.diagnosis));
    row["timeline"] = side.timeline ? describe_recording(*side.timeline) : Json(nullptr);
    row["batch_doubling"] = side.doubling ? describe(*side.doubling) : Json(nullptr);
    rows.push_back(std::move(row));
  }
  Json document = {{"agree", !comparison.disagreement()},
                   {"finite", !comparison.divergence},
                   {"verdict", or_null(measure::verdict_on(modes))},
                   {"order_right", measure::order_is_right(modes)},
                   {"rows", std::move(rows)},
                   {"machine", describe(machine)}};
  if (report) document["report"] = describe(*report);
  return text_of(document);
}

}  // namespace brrr::cli
