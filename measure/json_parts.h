// What documents in JSON are made of (docs/schemas). For the sources of measure/ and of the
// program: no public header includes it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/bench.h>
#include <brrr/measure/compare.h>
#include <brrr/measure/html_report.h>
#include <brrr/measure/idle.h>
#include <brrr/measure/lab.h>
#include <brrr/measure/machine.h>

namespace brrr::measure {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json or_null(const std::string& text);  // null for ""

Json describe(const Machine& machine);
Json describe(const Results& results);
Json describe(const Plot& plot);
Json describe(const EagerCalls& calls);
Json describe(const CompiledEntry& entry);
Json describe(const StepResult& result, Mode mode);
Json describe(const std::vector<CodeLine>& lines);
Json describe(const Diagnosis& diagnosis);
Json describe(const BatchDoubling& doubling);
Json describe(const Report& report);
Json describe_recording(const Timeline& timeline);
Json idle_by_cause(const std::optional<Occupancy>& occupancy);
Json idle_sources(const std::optional<Occupancy>& occupancy);
std::vector<std::string> not_checked_of(const std::optional<GpuState>& gpu);
std::vector<std::string> disturbances_of(const std::optional<GpuState>& gpu);

// Text from the system may be any bytes; invalid UTF-8 is replaced.
std::string text_of(const Json& document);

}  // namespace brrr::measure
