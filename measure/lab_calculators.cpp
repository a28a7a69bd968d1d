// Experiments that calculate: from the article's numbers, and from rates measured here.
#include <fmt/format.h>

#include <cmath>

#include "brrr/measure/lab_experiments.h"

namespace brrr::measure::lab {
namespace {

double years_to_double(double annual_improvement) {
  return std::log(2.0) / std::log(annual_improvement);
}

std::string doubling_text(double annual_improvement) {
  return fmt::format("log 2 over log {} is {}", annual_improvement,
                     number_text(years_to_double(annual_improvement)));
}

// Devices that compute `flops` a second and exchange `link` bytes a second, in bf16.
struct Cluster {
  double flops = 0, link = 0;

  // Flops for each byte sent at which both take as long.
  double intensity() const { return flops / link; }
  std::string text() const {
    return fmt::format("{} TFLOP/s over {} GB/s are {} flops a byte", number_text(flops * 1e-12),
                       number_text(link * 1e-9), number_text(intensity()));
  }
  // Tokens a device at which the gradients' exchange takes as long as the products.
  double data_tokens() const { return intensity(); }
  // Ways of splitting a hidden layer.
  double tensor_ways(double hidden) const { return hidden / intensity(); }
  // The hidden size of an expert from which experts may be on many nodes of eight.
  double expert_hidden() const { return 8 * intensity(); }
  // Exchange between stages for each layer, relative to its two products.
  double pipeline_share(double hidden, double layers) const {
    return 0.75 * intensity() / (layers * hidden);
  }
};

constexpr double kHidden = 16384, kLayers = 80;

}  // namespace

Finding growth(const LabOptions&) {
  // Annual improvements of bandwidth, from the article's table.
  constexpr double kProcessor = 1.55, kMemory = 1.30;
  const double processor = years_to_double(kProcessor), memory = years_to_double(kMemory);
  Finding finding;
  finding.readings = {{.name = "processors: years to double",
                       .value = processor,
                       .article = 1.6,
                       .claim = Interval{1.55, 1.65},
                       .miss = doubling_text(kProcessor)},
                      {.name = "memory: years to double",
                       .value = memory,
                       .article = 2.7,
                       .claim = Interval{2.6, 2.75},
                       .miss = doubling_text(kMemory)},
                      {.name = "flops a byte after ten years, times today's",
                       .value = std::pow(kProcessor / kMemory, 10)}};
  finding.why =
      fmt::format("the table's {} and {} a year; bandwidth falls behind compute by {:.0f} % a year",
                  kProcessor, kMemory, 100 * (kProcessor / kMemory - 1));
  Series of_processors{"processors", {}}, of_memory{"memory", {}};
  for (int year = 1; year <= 16; year *= 2) {
    of_processors.points.emplace_back(year, std::pow(kProcessor, year));
    of_memory.points.emplace_back(year, std::pow(kMemory, year));
  }
  finding.plot = Plot{"years", {of_processors, of_memory}, "growth, times"};
  return finding;
}

Finding parallel(const LabOptions& options) {
  const Cluster h100{.flops = 990e12, .link = 400e9}, h100_pod{.flops = 990e12, .link = 450e9};
  const ProductRate product = product_rate(options, full_product(options), bf16);
  const Cluster here{.flops = product.rate, .link = options.link};
  const auto count = [](std::string name, double value) {
    return Reading{.name = std::move(name), .value = value};
  };
  Finding finding;
  finding.readings = {
      {.name = "H100: tokens a device, data-parallel",
       .value = h100.data_tokens(),
       .article = 2500,
       .claim = Interval{2250, 2750},
       .miss = h100.text()},
      {.name = fmt::format("H100: ways, tensor-parallel, hidden {}", kHidden),
       .value = h100_pod.tensor_ways(kHidden),
       .article = 8,
       .claim = Interval{6, 10},
       .miss = h100_pod.text()},
      count("H100: hidden size for experts on many nodes", h100.expert_hidden()),
      {.name = fmt::format("H100: pipeline of {} layers, exchange, of a layer's time", kLayers),
       .value = 100 * h100.pipeline_share(kHidden, kLayers),
       .unit = "%",
       .claim = Interval{0, 5},
       .miss = h100.text()},
      {.name = "here: product bf16",
       .value = product.rate * 1e-9,
       .unit = "GFLOP/s",
       .article = 990e3,
       .spread = product.spread},
      {.name = "here: assumed link", .value = here.link * 1e-9, .unit = "GB/s", .article = 400},
      count("here: tokens a device, data-parallel", here.data_tokens()),
      count(fmt::format("here: ways, tensor-parallel, hidden {}", kHidden),
            here.tensor_ways(kHidden)),
      count("here: hidden size for experts on many nodes", here.expert_hidden())};
  finding.why = fmt::format(
      "all four follow from flops a second over bytes a second: {} on an H100, {} here; "
      "--link gives the bytes",
      number_text(h100.intensity()), number_text(here.intensity()));
  return finding;
}

}  // namespace brrr::measure::lab
