#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "brrr/measure/compare_text.h"
#include "brrr/measure/json_parts.h"

namespace brrr::measure {
namespace {

// An eager step's prediction for the host's speed while the steps were timed.
Json describe_at_timed_speed(const Side& side) {
  const double predicted = side.cost->predicted_at_timed_speed.seconds();
  return {{"host_slowdown", side.cost->timed_slowdown},
          {"predicted_us", predicted * 1e6},
          {"prediction_error", predicted / side.step->median - 1}};
}

}  // namespace

std::string to_json(const Comparison& comparison, const Machine& machine, const Report* report) {
  const auto microseconds = [](const std::optional<Timing>& timing) {
    return timing ? Json(timing->median * 1e6) : Json(nullptr);
  };
  const std::vector<ComparedMode> modes = comparison.modes();
  Json facts = {{"model", comparison.name}}, rows = Json::array();
  for (const auto& [name, value] : comparison.facts)
    std::visit([&](const auto& each) { facts[name] = each; }, value);
  for (const Side& side : comparison.sides) {
    Json row = facts;
    row.update(
        {{"name", side.name},
         {"device", to_string(comparison.device)},
         {"mode", name_of(side.mode)},
         {"rounding", name_of(side.mode == Mode::fused ? comparison.rounding : Rounding::eager)},
         {"remat", side.remat},
         {"steps", side.losses.size()}});
    row.update(describe(side, side.mode));
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
  Json tried = Json::array();
  for (const Tried& each : comparison.tried) {
    const bool timed = each.failure.empty();
    tried.push_back({{"name", each.name},
                     {"on", comparison.fastest().name},
                     {"work", each.work},
                     {"gain", timed ? Json(each.gain()) : Json(nullptr)},
                     {"base_us", timed ? Json(each.base.median * 1e6) : Json(nullptr)},
                     {"step_us", timed ? Json(each.step.median * 1e6) : Json(nullptr)},
                     {"failure", or_null(each.failure)}});
  }
  Json document = {{"agree", !comparison.disagreement()},
                   {"finite", !comparison.divergence},
                   {"verdict", or_null(verdict_on(modes))},
                   {"order_right", order_is_right(modes)},
                   {"tried", std::move(tried)},
                   {"interrupted", or_null(comparison.interrupted)},
                   {"rows", std::move(rows)},
                   {"machine", describe(machine)}};
  if (report) document["report"] = describe(*report);
  return text_of(document);
}

}  // namespace brrr::measure
