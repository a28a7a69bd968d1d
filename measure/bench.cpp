// How results are put together from timings.
#include "brrr/measure/bench.h"

#include <algorithm>

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

}  // namespace brrr::measure
