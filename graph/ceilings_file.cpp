// Owns the file of a machine's ceilings, and the defaults that are used without one.
#include <fmt/format.h>
#include <cstring>
#include <ctime>

#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "brrr/graph/ceilings.h"
#include "brrr/ops/cpu/blas.h"
#include "brrr/ops/cpu/isa.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::graph {
namespace {

using Json = nlohmann::ordered_json;
using std::int64_t;

constexpr int kFormat = 6;
// The driver, the clock and what else runs on a machine change within months.
constexpr int kMostDays = 90;

Json describe(const Curve& curve) {
  Json points = Json::array();
  for (const Curve::Point& point : curve.points) points.push_back({point.work, point.ps});
  return points;
}

Curve curve_of(const Json& points) {
  Curve curve;
  for (const Json& point : points)
    curve.points.push_back({point.at(0).get<int64_t>(), point.at(1).get<int64_t>()});
  return curve;
}

Json describe(const ProductCurves& curves) {
  Json of_orders = Json::object();
  for (std::size_t i = 0; i < curves.size(); ++i) of_orders[kFactorOrders[i]] = describe(curves[i]);
  return of_orders;
}

ProductCurves product_curves_of(const Json& of_orders) {
  ProductCurves curves;
  for (std::size_t i = 0; i < curves.size(); ++i)
    curves[i] = curve_of(of_orders.at(kFactorOrders[i]));
  return curves;
}

// Fills in rates that were not measured. A Philox block is ten rounds of some sixteen instructions
// and gives four numbers: 40 instructions each, where a function such as exp takes 16. An element
// of 16 bits that is read or written takes three. On the CPU a number takes as long as two
// functions.
Ceilings with_unmeasured(Ceilings c, Device device) {
  if (c.draws == 0) c.draws = device.is_cuda() ? c.functions * 2 / 5 : c.functions / 2;
  if (device.is_cuda()) c.conversions = c.f32_flops / (2 * 3);
  return c;
}

Json describe(const EagerTimes& e) {
  return {{"call_ps", e.call_ps}, {"product_ps", e.product_ps}, {"library_ps", e.library_ps},
          {"view_ps", e.view_ps}, {"record_ps", e.record_ps},   {"queued_ps", e.queued_ps}};
}

EagerTimes eager_of(const Json& file) {
  return {.call_ps = file.at("call_ps"),
          .product_ps = file.at("product_ps"),
          .library_ps = file.at("library_ps"),
          .view_ps = file.at("view_ps"),
          .record_ps = file.at("record_ps"),
          .queued_ps = file.at("queued_ps")};
}

Ceilings ceilings_of(const Json& file) {
  Ceilings c;
  c.machine = file.at("machine");
  c.software = file.at("software");
  c.date = file.at("date");
  c.clock_mhz = file.at("clock_mhz");
  c.doubts = file.at("doubts").get<std::vector<std::string>>();
  c.eager = eager_of(file.at("eager"));
  c.replay_ps = file.at("replay_ps");
  c.node_ps = file.at("node_ps");
  c.moved = curve_of(file.at("moved"));
  c.f32_flops = file.at("f32_flops");
  c.f64_flops = file.at("f64_flops");
  c.functions = file.at("functions");
  c.draws = file.at("draws");
  for (std::size_t i = 0; i < kProductTypes.size(); ++i)
    c.products[i] = product_curves_of(file.at("products").at(kProductTypes[i]));
  return c;
}

bool is_valid(const Curve& curve) {
  const auto& points = curve.points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].work < 0 || points[i].ps < 0) return false;
    if (i > 0 && (points[i].work <= points[i - 1].work || points[i].ps < points[i - 1].ps))
      return false;
  }
  return !points.empty() && points.back().work > 0 && points.back().ps > 0 && curve.rate() > 0;
}

bool is_valid(const Ceilings& c) {
  constexpr int64_t kSecond = 1'000'000'000'000;
  const EagerTimes& e = c.eager;
  for (const int64_t ps : {e.call_ps, e.product_ps, e.library_ps, e.view_ps, e.record_ps,
                           e.queued_ps, c.replay_ps, c.node_ps}) {
    if (ps < 0 || ps > kSecond) return false;
  }
  return c.calibrated() && c.f32_flops > 0 && c.f64_flops > 0 && c.functions > 0 && c.draws >= 0 &&
         is_valid(c.moved) && std::ranges::all_of(c.products, [](const ProductCurves& curves) {
           return std::ranges::all_of(curves, [](const Curve& curve) { return is_valid(curve); });
         });
}

// Days from a date such as "2025-01-31T12:00:00Z" until now; none if it cannot be parsed.
std::optional<double> days_since(const std::string& date) {
  std::tm utc{};
  const char* const end = strptime(date.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  if (!end || *end) return std::nullopt;
  return std::difftime(std::time(nullptr), timegm(&utc)) / (24 * 3600);
}

// The content of a file; none if it is not what to_json writes of valid ceilings.
std::optional<Ceilings> parse(const std::string& text) {
  try {
    const Json file = Json::parse(text);
    if (file.at("format") != kFormat) return std::nullopt;
    Ceilings c = ceilings_of(file);
    if (is_valid(c) && days_since(c.date) && to_json(c) == text) return c;
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

bool is_of_another_format(const std::string& text) {
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return file.is_object() && file.contains("format") && file["format"].is_number_integer() &&
         file["format"] != kFormat;
}

Ceilings defaults_because(Device device, std::string why) {
  Ceilings c = default_ceilings(device);
  c.why_defaults = std::move(why);
  return c;
}

std::string name_of_file(Device device) {
  return fmt::format("ceilings-{}.json", jit::to_hex(jit::hash_of(machine_of(device))));
}

Ceilings read_ceilings(Device device) {
  const std::string path = ceilings_path(device);
  if (path.empty()) return defaults_because(device, "the disk cache is off");
  const auto unusable = [&](const std::string& why) {
    return defaults_because(device, fmt::format("{} {}", path, why));
  };
  std::string text, why;
  if (jit::disk_cache::read_file(name_of_file(device), text, why) == jit::disk_cache::Found::no)
    return defaults_because(device, "not calibrated");
  if (!why.empty()) return unusable(why);
  const std::optional<Ceilings> found = parse(text);
  if (!found)
    return unusable(is_of_another_format(text) ? "is of another version of brrr" : "is damaged");
  const std::string machine = machine_of(device), software = software_of(device);
  if (found->machine != machine)
    return unusable(fmt::format("is of another machine: {}, not {}", found->machine, machine));
  if (found->software != software)
    return unusable(fmt::format("is stale: of {}, not {}", found->software, software));
  if (days_since(found->date) > kMostDays)
    return unusable(
        fmt::format("is stale: measured {}, more than {} days ago", found->date, kMostDays));
  return with_unmeasured(*found, device);
}

// The ceilings that ceilings_of has read, by file and machine.
struct CeilingsCache {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Ceilings>> by_file;
};
CeilingsCache& ceilings_cache() {
  static auto* all = new CeilingsCache;
  return *all;
}

std::string model_of_processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t begin = line.find_first_not_of(" \t:", std::strlen("model name"));
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown";
}

}  // namespace

std::string processor_model() {
  static const std::string model = model_of_processor();
  return model;
}

std::string machine_of(Device device) {
  if (device.is_cuda()) return cuda_machine(device);
  return fmt::format("{}, {} thread{}", processor_model(), num_threads(),
                     num_threads() == 1 ? "" : "s");
}

std::string software_of(Device device) {
  if (device.is_cuda()) return cuda_software();
  std::string blas = blas_is_openblas() ? openblas_get_config() : "another BLAS";
  blas.erase(blas.find_last_not_of(' ') + 1);
  return fmt::format("kernels {}, {}", on_cpu::selected_isas(), blas);
}

Ceilings default_ceilings(Device device) {
  if (device.is_cuda()) return with_unmeasured(default_cuda_ceilings(device), device);
  // Typical rates of one thread of a server processor. Memory bandwidth is shared by all threads.
  const int64_t threads = num_threads();
  Ceilings c;
  c.eager = {.call_ps = 150'000,
             .product_ps = 150'000,
             .library_ps = 150'000,
             .view_ps = 30'000,
             .record_ps = 100'000,
             .queued_ps = 150'000};
  c.replay_ps = 1'000'000;
  c.node_ps = 60'000;
  c.moved = Curve::of_rate(10'000'000'000 * std::min<int64_t>(threads, 8));
  c.f32_flops = 60'000'000'000 * threads;
  c.f64_flops = c.f32_flops / 2;
  c.functions = 3'000'000'000 * threads;
  c.products.fill(in_any_order(Curve::of_rate(60'000'000'000 * threads)));
  c.products[static_cast<std::size_t>(ProductType::f64)] =
      in_any_order(Curve::of_rate(c.f64_flops));
  return with_unmeasured(std::move(c), device);
}

std::string to_json(const Ceilings& c) {
  Json products = Json::object();
  for (std::size_t i = 0; i < kProductTypes.size(); ++i)
    products[kProductTypes[i]] = describe(c.products[i]);
  const Json file = {{"format", kFormat},
                     {"machine", c.machine},
                     {"software", c.software},
                     {"date", c.date},
                     {"clock_mhz", c.clock_mhz},
                     {"doubts", c.doubts},
                     {"eager", describe(c.eager)},
                     {"replay_ps", c.replay_ps},
                     {"node_ps", c.node_ps},
                     {"f32_flops", c.f32_flops},
                     {"f64_flops", c.f64_flops},
                     {"functions", c.functions},
                     {"draws", c.draws},
                     {"moved", describe(c.moved)},
                     {"products", std::move(products)}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ceilings_path(Device device) {
  const std::string directory = jit::disk_cache::directory();
  if (directory.empty()) return "";
  return fmt::format("{}/{}", directory, name_of_file(device));
}

std::shared_ptr<const Ceilings> ceilings_of(Device device) {
  const std::string key = ceilings_path(device) + "\n" + machine_of(device);
  const std::lock_guard lock(ceilings_cache().mutex);
  std::shared_ptr<const Ceilings>& found = ceilings_cache().by_file[key];
  if (!found) found = std::make_shared<const Ceilings>(read_ceilings(device));
  return found;
}

std::string require_ceilings_path(Device device) {
  std::string path = ceilings_path(device);
  if (path.empty())
    fail("[calibrate] expected a disk cache to keep ceilings in, got BRRR_CACHE=off");
  return path;
}

void write_ceilings(const Ceilings& ceilings, Device device) {
  require_ceilings_path(device);
  const std::string why = jit::disk_cache::write_file(name_of_file(device), to_json(ceilings));
  if (!why.empty()) fail("[calibrate] {}", why);
  const std::lock_guard lock(ceilings_cache().mutex);
  ceilings_cache().by_file.clear();
}

}  // namespace brrr::graph
