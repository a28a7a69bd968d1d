#include "cli/json_output.h"

#include <nlohmann/json.hpp>

#include "brrr/measure/json_parts.h"

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
  Json document = {{"model", o.toy.model}};
  for (const auto& [name, value] : o.facts)
    std::visit([&](const auto& each) { document[name] = each; }, value);
  document.update(
      {{"seed", o.seed}, {"device", to_string(o.toy.device)}, {"mode", name_of(o.mode)}});
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

}  // namespace brrr::cli
