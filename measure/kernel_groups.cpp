#include "brrr/measure/kernel_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "brrr/measure/program_code.h"
#include "brrr/measure/text.h"

namespace brrr::measure {
namespace {

void add_new(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
}

std::string first_of(const std::vector<std::string>& names) {
  if (names.size() < 2) return names.empty() ? "" : names.front();
  return fmt::format("{} and {} more", names.front(), names.size() - 1);
}

// "layers.0": "layers", "0".
std::vector<std::string> parts_of(const std::string& module) {
  std::vector<std::string> parts = {""};
  for (const char c : module) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

std::string KernelGroup::module() const {
  if (modules.empty()) return {};
  std::vector<std::string> common = parts_of(modules.front());
  for (const std::string& each : modules) {
    const std::vector<std::string> parts = parts_of(each);
    if (parts.size() != common.size()) return first_of(modules);
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (parts[i] != common[i]) common[i] = "*";
  }
  return fmt::format("{}", fmt::join(common, "."));
}

std::string KernelGroup::line() const { return first_of(lines); }

std::string KernelGroup::phase() const { return fmt::format("{}", fmt::join(phases, " and ")); }

std::string KernelGroup::where() const {
  std::vector<std::string> parts;
  for (const std::string& each : {module(), phase(), without_folder(line())}) add_new(parts, each);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<KernelGroup> grouped(std::span<const core::LaunchCost> launches,
                                 std::span<const std::optional<double>> seconds) {
  std::map<std::tuple<std::string, std::string, std::int64_t, std::int64_t>, KernelGroup> groups;
  const std::vector<std::string> lines = lines_of(launches);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const LaunchCost& each = launches[i];
    KernelGroup& group = groups[{each.name, each.result, each.bytes, each.flops}];
    group.cost = &each;
    ++group.count;
    add_new(group.modules, each.module);
    add_new(group.phases, each.phase);
    add_new(group.lines, lines[i]);
    group.predicted_ps += each.predicted.ps();
    if (i >= seconds.size() || !seconds[i]) continue;
    ++group.measured;
    group.seconds += *seconds[i];
  }
  std::vector<KernelGroup> sorted;
  for (auto& [key, group] : groups) {
    if (!group.is_measured()) group.seconds = static_cast<double>(group.predicted_ps) * 1e-12;
    sorted.push_back(group);
  }
  std::ranges::stable_sort(sorted, std::ranges::greater(), &KernelGroup::seconds);
  return sorted;
}

std::vector<KernelGroup> grouped(const Side& side) {
  return grouped(side.launches, side.launch_seconds);
}

namespace {

// Of one launch, in seconds. Outside of products a division or a call of exp counts as a FLOP, and
// takes as long as several multiply-adds, by which the ceiling was measured.
double needed_by(const core::LaunchCost& cost) {
  constexpr std::int64_t kMostPerFlop = 8;
  const core::KernelTime& time = cost.by_ceilings;
  const std::int64_t computing = time.computing_ps * (cost.product.empty() ? kMostPerFlop : 1);
  return static_cast<double>(time.overhead_ps + std::max(time.moving_ps, computing)) * 1e-12;
}

}  // namespace

std::vector<MeasuredKernel> measured_kernels(const Side& side) {
  // On the CPU the recording of a launch is in its time.
  double recording = 0;
  if (side.timeline && side.timeline->device.is_cpu()) {
    const Timeline& timeline = *side.timeline;
    recording = std::max(0.0, timeline.traced.median - timeline.untraced.median) /
                static_cast<double>(std::max<std::size_t>(side.launches.size(), 1));
  }
  std::vector<MeasuredKernel> kernels;
  for (const KernelGroup& group : grouped(side)) {
    if (!group.is_measured()) continue;
    const core::LaunchCost& cost = *group.cost;
    kernels.push_back({.name = cost.name,
                       .result = cost.result,
                       .module = group.module(),
                       .phase = group.phase(),
                       .line = group.line(),
                       .launches = group.count,
                       .seconds = std::max(0.0, group.seconds - group.count * recording),
                       .needed = group.count * needed_by(cost)});
  }
  return kernels;
}

}  // namespace brrr::measure
