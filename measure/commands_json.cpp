#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "brrr/measure/json_parts.h"
#include "brrr/measure/profile.h"
#include "brrr/measure/terminal.h"
#include "brrr/measure/trace.h"

namespace brrr::measure {
namespace {

// Model, options and settings.
Json describe(const ModelRun& run) {
  Json document = {{"model", run.name}};
  for (const auto& [name, value] : run.facts)
    std::visit([&](const auto& each) { document[name] = each; }, value);
  document.update({{"device", to_string(run.device)}, {"mode", name_of(run.mode)}});
  return document;
}

}  // namespace

std::string error_json(const std::string& text) { return text_of({{"error", text}}); }

std::string to_json(const TraceResult& result) {
  const Timeline& timeline = result.timeline;
  const auto timing = [](const Timing& t) {
    return Json{{"us", t.median * 1e6}, {"spread", t.spread}, {"samples", t.samples}};
  };
  const double all = static_cast<double>(std::max<std::int64_t>(timeline.step_ns(), 1));
  Json host = Json::object(), device = Json::object();
  for (const HostSpan& span : timeline.host) {
    Json& kind = host[name_of(span.work)];
    if (kind.is_null()) {
      const auto ns = static_cast<double>(timeline.host_ns(span.work));
      kind = {{"spans", 0}, {"share", ns / all}};
    }
    kind["spans"] = kind["spans"].get<int>() + 1;
  }
  for (const DeviceSpan& span : timeline.spans) {
    Json& count = device[name_of(span.work)];
    count = count.is_null() ? 1 : count.get<int>() + 1;
  }
  const bool on_cpu = result.run.device.is_cpu();
  const double busy = timeline.busy_share();
  Json document = describe(result.run);
  document.update(
      {{"file", result.out},
       {"source", timeline.source},
       {"complete", timeline.is_complete()},
       {"missing", timeline.missing},
       {"disturbances", disturbances_of(timeline.gpu)},
       {"not_checked", not_checked_of(timeline.gpu)},
       {"steps", timeline.steps.size()},
       {"step_us",
        all * 1e-3 / static_cast<double>(std::max<std::size_t>(timeline.steps.size(), 1))},
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
  const Ledger& ledger = profile.ledger;
  Json document = describe(profile.run), classes = Json::array();
  for (const LedgerLine& line : ledger.lines) {
    classes.push_back({{"name", name_of(line.of)},
                       {"is", description_of(line.of)},
                       {"ns", line.ns},
                       {"share", line.share},
                       {"standard_error", line.standard_error},
                       {"samples", line.samples}});
  }
  document.update({{"remat", name_of(profile.run.remat)},
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
                   {"classes", std::move(classes)},
                   {"code", describe(ledger.code)}});
  return text_of(document);
}

}  // namespace brrr::measure
