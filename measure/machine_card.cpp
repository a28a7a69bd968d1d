#include "brrr/measure/machine_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "brrr/measure/bench.h"
#include "brrr/measure/markup.h"
#include "brrr/measure/svg_canvas.h"
#include "brrr/measure/svg_plot.h"
#include "brrr/measure/text.h"

namespace brrr::measure {
namespace {

using graph::Ceilings;
using graph::ProductType;
using Figures = std::vector<std::pair<std::string, std::string>>;

constexpr double kEdge = 56, kColumn = 600;  // where the column of figures ends
constexpr double kPlotTop = 142, kPlotWidth = 492, kPlotHeight = 424;

double bandwidth_of(const Ceilings& ceilings) {
  return ceilings.moved.points.empty() ? 0 : static_cast<double>(ceilings.moved.rate());
}

double rate_of(const Ceilings& ceilings, ProductType type) {
  const graph::Curve& curve = ceilings.product(type);
  return curve.points.empty() ? 0 : static_cast<double>(curve.rate());
}

std::vector<ProductType> product_types(Device device) {
  if (device.is_cpu()) return {ProductType::f32, ProductType::bf16};
  return {ProductType::f32, ProductType::tf32, ProductType::bf16};
}

double fastest_product(const Ceilings& ceilings, Device device) {
  double best = 0;
  for (const ProductType type : product_types(device))
    best = std::max(best, rate_of(ceilings, type));
  return best;
}

const char* name_of(ProductType type) {
  return graph::kProductTypes[static_cast<std::size_t>(type)];
}

std::string text_of_ps(std::int64_t ps) { return time_text(static_cast<double>(ps) * 1e-12); }

std::string device_name(const Machine& machine, Device device) {
  const auto index = static_cast<std::size_t>(device.index);
  if (device.is_cuda() && index < machine.gpus.size()) return machine.gpus[index].name;
  return machine.processor.model;
}

std::string device_details(const Machine& machine, Device device) {
  const auto index = static_cast<std::size_t>(device.index);
  if (device.is_cuda() && index < machine.gpus.size()) {
    const Gpu& gpu = machine.gpus[index];
    return fmt::format("{} multiprocessors, compute capability {}, {:.0f} GB", gpu.multiprocessors,
                       gpu.compute_capability, static_cast<double>(gpu.memory_bytes) * 1e-9);
  }
  return fmt::format("{} threads used, kernels: {}, {:.0f} GB", machine.processor.used,
                     machine.processor.kernels,
                     static_cast<double>(machine.processor.memory_bytes) * 1e-9);
}

// The class gives the size of its text.
std::string text_at(double x, double y, const char* css, std::string_view text,
                    const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     x, y, anchor, css, escaped(text));
}

std::string roofline(const Ceilings& ceilings, Device device) {
  RooflinePlot plot{.title = "Roofline", .description = "", .bandwidths = {}, .computes = {}};
  plot.bandwidths.push_back({"copies", bandwidth_of(ceilings)});
  for (const ProductType type : product_types(device))
    plot.computes.push_back({fmt::format("products {}", name_of(type)), rate_of(ceilings, type)});
  plot.computes.push_back({"multiply-adds f32", static_cast<double>(ceilings.f32_flops)});
  // Without its frame and paper, in the coordinates of the card.
  const std::string svg = to_svg(plot, "roofline");
  constexpr std::string_view kSize = "viewBox=\"0 0 420 ", kPaper = "class=\"paper\"/>\n";
  const double height = std::strtod(svg.c_str() + svg.find(kSize) + kSize.size(), nullptr);
  const std::size_t begin = svg.find(kPaper) + kPaper.size(), end = svg.rfind("</svg>");
  const double scale = std::min(kPlotWidth / svg::kWidth, kPlotHeight / height);
  return fmt::format("<g transform=\"translate({:.0f} {:.0f}) scale({:.3f})\">\n{}</g>\n",
                     kCardWidth - kEdge - scale * svg::kWidth, kPlotTop, scale,
                     svg.substr(begin, end - begin));
}

// Rules of plots follow the reader's light or dark setting; these have precedence.
std::string card_style() {
  return fmt::format(
      R"(
svg.plot.card {{ --paper: #ffffff; --ink: #1b1f24; --faint: #57606a; --grid: #e3e6ea;
  --c0: #0072b2; --c1: #c65400; --c2: #00805c; --c3: #a3458a; --c4: #8a6d00; --c5: #3f4a56;
  width: {:.0f}px; height: {:.0f}px; max-width: none; }}
svg.plot.card .name {{ font-size: 40px; font-weight: 600; }}
svg.plot.card .details, svg.plot.card .label {{ font-size: 20px; fill: var(--faint); }}
svg.plot.card .value {{ font-size: 24px; font-weight: 600; }}
)",
      kCardWidth, kCardHeight);
}

}  // namespace

Figures card_figures(const Ceilings& c, Device device) {
  const double bandwidth = bandwidth_of(c);
  const auto knee = [&](double flops) {
    return bandwidth > 0 ? number_text(flops / bandwidth) + " flops/B" : "-";
  };
  Figures figures = {{"copy bandwidth", svg::tick_text(bandwidth, "B/s")}};
  for (const ProductType type : product_types(device)) {
    figures.emplace_back(fmt::format("products {}", name_of(type)),
                         svg::tick_text(rate_of(c, type), "FLOP/s"));
  }
  figures.emplace_back("multiply-adds f32",
                       svg::tick_text(static_cast<double>(c.f32_flops), "FLOP/s"));
  figures.emplace_back("knee of products", knee(fastest_product(c, device)));
  figures.emplace_back("knee of other ops", knee(static_cast<double>(c.f32_flops)));
  figures.emplace_back("eager op", text_of_ps(c.eager.call_ps));
  if (device.is_cuda())
    figures.emplace_back("kernel in a full stream", text_of_ps(c.eager.queued_ps));
  figures.emplace_back(
      "replay", fmt::format("{} + {} a kernel", text_of_ps(c.replay_ps), text_of_ps(c.node_ps)));
  return figures;
}

std::string card_svg(const Machine& machine, Device device, const Ceilings& ceilings) {
  const std::string name = device_name(machine, device);
  const double width = kCardWidth - 2 * kEdge;
  constexpr double kBold = 1.12;  // as much wider
  std::string body =
      text_at(kEdge, 84, "name", svg::shortened(name, width / kBold, 40)) +
      text_at(kEdge, 120, "details", svg::shortened(device_details(machine, device), width, 20));
  const Figures figures = card_figures(ceilings, device);
  const double row = 390.0 / static_cast<double>(figures.size());
  double y = 142 + row / 2;
  for (const auto& [label, value] : figures) {
    body += text_at(kEdge, y + 8, "label", label) + text_at(kColumn, y + 8, "value", value, "end");
    y += row;
    body += fmt::format(
        "<line x1=\"{0:.0f}\" y1=\"{1:.1f}\" x2=\"{2:.0f}\" y2=\"{1:.1f}\" "
        "class=\"grid\"/>\n",
        kEdge, y - row / 2, kColumn);
  }
  body += roofline(ceilings, device) +
          text_at(kEdge, kCardHeight - 34, "details", "brrr " + machine.version) +
          text_at(kCardWidth - kEdge, kCardHeight - 34, "details",
                  ceilings.calibrated() ? "measured " + ceilings.date.substr(0, 10)
                                        : "estimated; brrr calibrate measures",
                  "end");
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot card\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "role=\"img\" aria-labelledby=\"card-title card-desc\">\n<title "
      "id=\"card-title\">{2}</title>\n"
      "<desc id=\"card-desc\">What the device computes and moves, beside its roofline.</desc>\n"
      "<style>{3}{4}</style>\n<rect x=\"0\" y=\"0\" width=\"100%\" height=\"100%\" "
      "class=\"paper\"/>\n{5}</svg>\n",
      kCardWidth, kCardHeight, escaped(name), plot_style(), card_style(), body);
}

}  // namespace brrr::measure
