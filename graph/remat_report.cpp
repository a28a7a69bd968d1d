// The report of rematerialization: values that are kept and recomputed, memory before and after.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "brrr/graph/rematerialize.h"
#include "brrr/tensor/counted.h"

namespace brrr::graph {
namespace {

std::string policy_text(const Remat& policy) {
  switch (policy.kind()) {
    case Remat::Kind::none: return "none";
    case Remat::Kind::min_cut: return "min_cut";
    case Remat::Kind::full: return "full";
    case Remat::Kind::budget: break;
  }
  return fmt::format("budget({:g})", policy.fraction());
}

double microseconds(std::int64_t picoseconds) { return static_cast<double>(picoseconds) * 1e-6; }

std::string memory_text(ValueMemory memory) {
  switch (memory) {
    case ValueMemory::arena: return "arena";
    case ValueMemory::gradients: return "gradient memory";
    case ValueMemory::registers: return "registers";
    case ValueMemory::outside: break;
  }
  return "result";
}

// A bar chart of live bytes over the step: the maximum in each of at most `kRows` intervals, of the
// arena and of temporaries that alias gradients.
std::string curve_text(const Simulation& simulation, std::size_t most) {
  constexpr std::size_t kRows = 24, kWidth = 48;
  const std::size_t calls = simulation.live.size(), rows = std::min(kRows, calls);
  std::string text;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t from = row * calls / rows, to = (row + 1) * calls / rows;
    const auto most_of = [&](const std::vector<std::size_t>& bytes) {
      const auto first = bytes.begin();
      return *std::max_element(first + static_cast<std::ptrdiff_t>(from),
                               first + static_cast<std::ptrdiff_t>(to));
    };
    const auto bar = [&](std::size_t bytes) {
      return most ? (bytes * kWidth + most - 1) / most : 0;
    };
    const std::size_t live = most_of(simulation.live), aliased = most_of(simulation.in_gradients);
    text += fmt::format("      {:>6} {:>12} {:>12}  {}{}\n", from, live, aliased,
                        std::string(bar(live), '#'), std::string(bar(aliased), '+'));
  }
  return text;
}

}  // namespace

std::string to_string(const RematReport& report) {
  const Simulation &before = report.baseline, &after = report.chosen;
  const std::size_t aliased_before = before.most_in_gradients(),
                    aliased = after.most_in_gradients();
  std::string text = fmt::format(
      "  rematerialization, {}: {} run again\n"
      "    arena planned {} bytes, with every value kept {}\n",
      policy_text(report.policy), counted(report.recomputed_calls, "call"), after.peak_bytes,
      before.peak_bytes);
  if (aliased_before > 0) {
    text += fmt::format(
        "    in the memory of gradients, which is there anyway: up to {} bytes, with every value "
        "kept {}\n",
        aliased, aliased_before);
  }
  if (after.peak_bytes > report.unfused_bytes && report.unfused_bytes > 0) {
    text += fmt::format("    fusion raises planned memory by {} bytes: {} call by call\n",
                        after.peak_bytes - report.unfused_bytes, report.unfused_bytes);
  }
  text += fmt::format(
      "    predicted {:.1f} us of kernels one after another, with every value kept {:.1f}\n",
      microseconds(after.picoseconds), microseconds(before.picoseconds));
  if (report.saves_nothing)
    text +=
        "    no backward pass reads values of the forward pass, so the policy changes nothing\n";
  if (report.ended_early) {
    text += fmt::format(
        "    the search ended early, after {} plans: the step is too long for the others\n",
        report.plans);
  }
  for (const std::string& note : report.notes_on_marks) text += "    " + note + "\n";
  std::vector<CallSite> sites;
  for (const RematValue& value : report.values) sites.push_back(value.site);
  const std::vector<std::string> lines = describe(sites);
  text +=
      "    values that the backward pass reads or computes again; ns: of their call again, * live "
      "at the peak; where they are, and why:\n";
  for (std::size_t i = 0; i < report.values.size(); ++i) {
    const RematValue& value = report.values[i];
    text += fmt::format("      {} {:>10} bytes {:>9.1f} ns{} {} = {}{} (at {}); {}; {}\n",
                        value.recomputed ? "again" : "kept ", value.bytes,
                        static_cast<double>(value.picoseconds) * 1e-3, value.at_peak ? " *" : "  ",
                        value.value, value.op, value.module.empty() ? "" : ", " + value.module,
                        lines[i], memory_text(value.memory), value.reason);
  }
  const std::size_t most =
      std::max(before.peak_bytes, after.peak_bytes) + std::max(aliased_before, aliased);
  text +=
      "    live bytes by call, with every value kept: of the arena (#), in the memory of gradients "
      "(+):\n" +
      curve_text(before, most);
  text += "    live bytes by call, now:\n" + curve_text(after, most);
  return text;
}

std::string to_json(const RematReport& report) {
  using Json = nlohmann::ordered_json;
  const auto step = [](const Simulation& simulation) {
    return Json{{"us", microseconds(simulation.picoseconds)},
                {"peak_bytes", simulation.peak_bytes},
                {"live_bytes", simulation.live},
                {"in_gradients_bytes", simulation.in_gradients}};
  };
  std::vector<CallSite> sites;
  for (const RematValue& value : report.values) sites.push_back(value.site);
  const std::vector<std::string> lines = describe(sites);
  Json values = Json::array();
  for (std::size_t i = 0; i < report.values.size(); ++i) {
    const RematValue& value = report.values[i];
    values.push_back({{"value", value.value},
                      {"op", value.op},
                      {"module", value.module},
                      {"where", lines[i]},
                      {"bytes", value.bytes},
                      {"ns", static_cast<double>(value.picoseconds) * 1e-3},
                      {"recomputed", value.recomputed},
                      {"at_peak", value.at_peak},
                      {"memory", memory_text(value.memory)},
                      {"peak_bytes", value.peak_bytes},
                      {"reason", value.reason},
                      {"obstacle", value.obstacle ? Json(value.obstacle) : Json()}});
  }
  const Json all = {{"policy", policy_text(report.policy)},
                    {"recomputed_calls", report.recomputed_calls},
                    {"every_value_kept", step(report.baseline)},
                    {"planned", step(report.chosen)},
                    {"unfused_bytes", report.unfused_bytes},
                    {"marks", report.notes_on_marks},
                    {"values", std::move(values)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace brrr::graph
