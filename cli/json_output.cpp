#include "cli/json_output.h"

#include <nlohmann/json.hpp>

#include "brrr/measure/json_parts.h"
#include "cli/trace.h"

namespace brrr::cli {
namespace {

using measure::describe;
using measure::disturbances_of;
using measure::Json;
using measure::not_checked_of;
using measure::or_null;
using measure::text_of;

Json describe(const measure::Experiment& experiment) {
  return {{"name", experiment.name}, {"title", experiment.title}, {"claim", experiment.claim}};
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

// Model, sizes and settings.
Json describe(const TrainOptions& o) {
  Json document = Json::object();
  for (const auto& [name, value] : facts_of(o))
    std::visit([&](const auto& each) { document[name] = each; }, value);
  document.update({{"device", to_string(o.toy.device)}, {"mode", name_of(o.mode)}});
  return document;
}

Json describe(const TrainResult& result) {
  const TrainOptions& o = result.options;
  Json document = describe(o);
  document.update({{"rounding", name_of(o.rounding)},
                   {"remat", name_of(o.remat)},
                   {"steps", result.steps_done},
                   {"interrupted", result.interrupted},
                   {"saved", or_null(result.saved)}});
  document.update(describe(result, o.mode));
  return document;
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
  Json document = describe(o);
  document.update({{"file", o.out},
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
  return text_of(document);
}

std::string to_json(const Profile& profile) {
  const measure::Ledger& ledger = profile.ledger;
  const TrainOptions& o = profile.options;
  Json document = describe(o), classes = Json::array();
  for (const measure::LedgerLine& line : ledger.lines) {
    classes.push_back({{"name", name_of(line.of)},
                       {"is", description_of(line.of)},
                       {"ns", line.ns},
                       {"share", line.share},
                       {"standard_error", line.standard_error},
                       {"samples", line.samples}});
  }
  document.update({{"remat", name_of(o.remat)},
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

}  // namespace brrr::cli
