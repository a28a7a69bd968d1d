// Experiments on the FLOP rates of matrix products.
#include <fmt/format.h>

#include <algorithm>

#include "brrr/measure/lab_experiments.h"

namespace brrr::measure::lab {

Finding peaks(const LabOptions& options) {
  const MultiplyAdds limit = multiply_add_limit(options);
  const Timing timing = time(limit.batch, options.sampling());
  const double plain = limit.flops / timing.median;
  const std::int64_t n = full_product(options);
  const bool on_cpu = options.device.is_cpu();
  const ProductRate single = product_rate(options, n, f32), half = product_rate(options, n, bf16);
  const auto rate = [](std::string name, const ProductRate& r, double article) {
    return Reading{.name = std::move(name),
                   .value = r.rate * 1e-9,
                   .unit = "GFLOP/s",
                   .article = article,
                   .spread = r.spread};
  };
  Finding finding;
  finding.readings = {
      rate("multiply-adds f32 in registers", {plain, timing.spread}, 19.5e3),
      rate(fmt::format("product of {} {}", n, on_cpu ? "f32" : "tf32"), single, 156e3),
      rate(fmt::format("product of {} bf16", n), half, 312e3),
      {.name = "fastest product over multiply-adds",
       .value = std::max(single.rate, half.rate) / plain,
       .article = 16,
       .claim = Interval{8, 32},
       .spread = std::max({timing.spread, single.spread, half.spread}),
       .miss = fmt::format(
           "{}: {} GFLOP/s in f32, {} in bf16, against {} of multiply-adds",
           on_cpu ? "without tensor cores a product gains at most a factor of 2, by multiply-adds "
                    "in 1 instruction where other kernels take 2"
                  : "tensor cores are as much faster as products of this size use them",
           number_text(single.rate * 1e-9), number_text(half.rate * 1e-9),
           number_text(plain * 1e-9))}};
  finding.why = fmt::format("{}; products reach {} GFLOP/s",
                            on_cpu ? "products on this CPU run on the same vector units as all else"
                                   : "products run on tensor cores, all else on plain units",
                            number_text(std::max(single.rate, half.rate) * 1e-9));
  return finding;
}

Finding square_products(const LabOptions& options) {
  const bool on_cpu = options.device.is_cpu();
  std::vector<Series> series;
  double spread = 0;
  const auto sweep = [&](DType dtype, const char* name) {
    Series& rates = series.emplace_back(Series{fmt::format("GFLOP/s, {}", name), {}});
    const std::int64_t last = full_product(options) * (on_cpu ? 1 : 2);
    for (std::int64_t n = on_cpu ? 8 : 64; n <= last; n *= 2) {
      options.progress(fmt::format("product of {} {}", n, name));
      const ProductRate product = product_rate(options, n, dtype);
      spread = std::max(spread, product.spread);
      rates.points.emplace_back(static_cast<double>(n), product.rate * 1e-9);
    }
  };
  sweep(f32, on_cpu ? "f32" : "tf32");
  if (!on_cpu) sweep(bf16, "bf16");
  const auto& points = series[0].points;
  const double best = std::ranges::max(points, {}, &std::pair<double, double>::second).second;
  const double half =
      std::ranges::find_if(points, [&](const auto& p) { return p.second >= best / 2; })->first;
  Finding finding;
  finding.readings = {
      {.name = fmt::format("rate of {}", points.front().first),
       .value = points.front().second,
       .unit = "GFLOP/s",
       .spread = spread},
      {.name = "best rate", .value = best, .unit = "GFLOP/s", .spread = spread},
      {.name = "smallest, of the best",
       .value = 100 * points.front().second / best,
       .unit = "%",
       .claim = Interval{0, 25},
       .spread = spread,
       .miss = fmt::format("half of the best rate is reached by a size of {}", half)},
      {.name = "size that reaches half of the best", .value = half}};
  const double n = points.front().first;
  finding.why = fmt::format("a product of {} takes {} us, of which its flops at the best rate {}",
                            n, number_text(2e-3 * n * n * n / points.front().second),
                            number_text(2e-3 * n * n * n / best));
  finding.plot = Plot{"n of n x n x n", series, "GFLOP/s"};
  return finding;
}

}  // namespace brrr::measure::lab
