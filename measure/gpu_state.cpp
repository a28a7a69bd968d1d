#include "brrr/measure/gpu_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace brrr::measure {
namespace {

void unite(std::vector<std::string>& lines, const std::vector<std::string>& others) {
  for (const std::string& line : others) {
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  }
}

}  // namespace

GpuState worse_of(const GpuState& before, const GpuState& after) {
  GpuState both = after;
  unite(both.unavailable, before.unavailable);
  unite(both.slowed_by, before.slowed_by);
  // A list of processes is complete if it contains this process, at the latest after the
  // measurement: before it, this process may not have used the card yet.
  const auto [least, most] = std::minmax({before.processes, after.processes});
  const bool lists = before.processes && after.processes >= 1;
  both.processes = lists || most > 1 ? most : least;
  return both;
}

std::vector<std::string> disturbances(const GpuState& gpu) {
  std::vector<std::string> lines;
  if (gpu.processes > 1)
    lines.push_back(fmt::format("{} processes compute on the card", *gpu.processes));
  if (!gpu.slowed_by.empty())
    lines.push_back(fmt::format("the card is slowed: {}", fmt::join(gpu.slowed_by, ", ")));
  return lines;
}

std::vector<std::string> not_checked(const GpuState& gpu) {
  std::vector<std::string> lines = gpu.unavailable;
  if (gpu.processes == 0)
    lines.emplace_back("other processes on the card: NVML lists none, not even this one");
  return lines;
}

}  // namespace brrr::measure
