// Equal launches of a compiled step, with their time: what kernels a reader looks at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/measure/compare.h>

namespace brrr::measure {

// Launches with the same name, shape and work, and therefore the same predicted time.
struct KernelGroup {
  const core::LaunchCost* cost = nullptr;  // of the side
  int count = 0, measured = 0;
  double seconds = 0;  // of all of them: measured, else predicted
  std::int64_t predicted_ps = 0;

  std::vector<std::string> modules = {};  // that have them, in their order
  std::vector<std::string> phases = {};
  std::vector<std::string> lines = {};  // of the program

  double each() const { return seconds / count; }
  std::string phase() const;  // "forward and backward"; empty: not known
  // "layers.*.attention", or "encoder and 2 more"; empty: not known.
  std::string module() const;
  // "train.cpp:31 in loss and 2 more"; empty: not known.
  std::string line() const;
  // With phase and line: "layers.*.attention, backward, train.cpp:31 in loss".
  std::string where() const;
  bool is_measured() const { return measured == count; }
};

// Equal launches together, the slowest first. `seconds`: the measured times of launches; if not all
// of a group are measured, its time is the predicted one. `launches` must live.
std::vector<KernelGroup> grouped(std::span<const core::LaunchCost> launches,
                                 std::span<const std::optional<double>> seconds = {});
std::vector<KernelGroup> grouped(const Side& side);

// Those of them that were measured.
std::vector<MeasuredKernel> measured_kernels(const Side& side);

}  // namespace brrr::measure
