// The one file that knows the JSON library.
#include "cli/json_output.h"

#include <nlohmann/json.hpp>

namespace brrr::cli {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json describe(const measure::Machine& m) {
  Json gpus = Json::array(), libraries = Json::array(), caches = Json::array();
  for (const measure::Gpu& gpu : m.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"memory_bytes", gpu.memory_bytes},
                    {"compute_capability", gpu.compute_capability},
                    {"multiprocessors", gpu.multiprocessors},
                    {"l2_bytes", gpu.l2_bytes}});
  }
  for (const measure::Library& library : m.libraries) {
    libraries.push_back({{"name", library.name},
                         {"version", or_null(library.version)},
                         {"problem", or_null(library.problem)}});
  }
  for (const measure::Cache& cache : m.caches) {
    caches.push_back({{"name", cache.name},
                      {"path", cache.path},
                      {"entries", cache.entries},
                      {"bytes", cache.bytes}});
  }
  const measure::Processor& p = m.processor;
  return {{"tag", m.tag},
          {"date", m.date},
          {"brrr", m.version},
          {"build", m.build_type},
          {"compiler", m.compiler},
          {"system", m.system},
          {"cpu",
           {{"model", p.model},
            {"isa", p.isa},
            {"kernels", p.kernels},
            {"threads", p.threads},
            {"threads_used", p.used},
            {"memory_bytes", p.memory_bytes}}},
          {"gpus", std::move(gpus)},
          {"why_no_cuda", or_null(m.why_no_cuda)},
          {"libraries", std::move(libraries)},
          {"caches", std::move(caches)}};
}

// Text from the system may hold anything; what is not UTF-8 is replaced.
std::string text_of(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string to_json(const measure::Machine& machine) { return text_of(describe(machine)); }

std::string to_json(const measure::Results& results, const measure::Machine& machine) {
  Json list = Json::array();
  for (const measure::Result& r : results) {
    list.push_back({{"name", r.name},
                    {"device", to_string(r.device)},
                    {"value", r.value},
                    {"unit", r.unit},
                    {"limit", or_null(r.limit)},
                    {"ratio", or_null(r.ratio())},
                    {"limit_is", or_null(r.limit_name)},
                    {"spread", r.spread}});
  }
  return text_of({{"results", std::move(list)}, {"machine", describe(machine)}});
}

}  // namespace brrr::cli
