// Builds results from timings.
#include "brrr/measure/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "brrr/measure/limits.h"

namespace brrr::measure {

Result time_result(std::string name, Device device, const Timing& ours, const Timing* limit,
                   std::string limit_name) {
  Result result{.name = std::move(name),
                .device = device,
                .value = ours.median * 1e9,
                .unit = "ns",
                .limit = {},
                .limit_name = std::move(limit_name),
                .spread = ours.spread};
  if (limit) {
    result.limit = limit->median * 1e9;
    result.spread = std::max(result.spread, limit->spread);
  }
  return result;
}

Result rate_result(std::string name, Device device, const char* unit, double work,
                   const Timing& ours, double limit_work, const Timing& limit,
                   std::string limit_name) {
  return {.name = std::move(name),
          .device = device,
          .value = work / ours.median * 1e-9,
          .unit = unit,
          .limit = limit_work / limit.median * 1e-9,
          .limit_name = std::move(limit_name),
          .spread = std::max(ours.spread, limit.spread)};
}

std::string number_text(double value) {
  const double size = std::abs(value);
  if (size == 0 || size >= 100) return fmt::format("{:.0f}", value);
  constexpr int kMostDigits = 6;
  const int digits = std::min(2 - static_cast<int>(std::floor(std::log10(size))), kMostDigits);
  return fmt::format("{:.{}f}", value, digits);
}

BandwidthLimit bandwidth_limit(const BenchOptions& options, const BandwidthLimit& on_cpu) {
  if (options.device.is_cpu()) return on_cpu;
  const std::int64_t bytes = options.quick ? std::int64_t{1} << 20 : std::int64_t{1} << 30;
  return {device_copy(options.device, bytes), 2.0 * static_cast<double>(bytes), "cuMemcpyDtoD"};
}

}  // namespace brrr::measure
