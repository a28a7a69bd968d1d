// The card of a machine: valid, with its figures, and no text over another.
#include "brrr/measure/machine_card.h"

#include <map>
#include <regex>

#include "brrr/measure/svg_canvas.h"
#include "tests/harness/catch.h"
#include "tests/harness/html_checker.h"

using namespace brrr;
using Catch::Contains;
using graph::Curve;
using graph::ProductType;

namespace {

measure::Machine machine_of(const std::string& name) {
  measure::Machine machine;
  machine.version = "1.2.3";
  machine.processor = {
      .model = name, .isa = "avx512", .kernels = "v3", .threads = 2, .used = 2, .memory_bytes = 64};
  machine.gpus = {{.index = 0, .name = name, .compute_capability = "9.0", .multiprocessors = 132}};
  return machine;
}

graph::Ceilings made_up() {
  graph::Ceilings ceilings;
  ceilings.date = "2026-01-31T12:00:00Z";
  ceilings.moved = Curve::of_rate(50'000'000'000);
  ceilings.f32_flops = 200'000'000'000;
  for (const ProductType type : {ProductType::f32, ProductType::tf32, ProductType::bf16}) {
    ceilings.products[static_cast<std::size_t>(type)] = graph::in_any_order(
        Curve::of_rate(type == ProductType::bf16 ? 1'000'000'000'000 : 400'000'000'000));
  }
  ceilings.eager.call_ps = 180'000;
  ceilings.eager.queued_ps = 2'100'000;
  ceilings.replay_ps = 3'000'000;
  ceilings.node_ps = 40'000;
  return ceilings;
}

struct PlacedText {
  double left, right, top, bottom;
  std::string text;
};
// The card's own, without its roofline's.
std::vector<PlacedText> texts_of(const std::string& svg) {
  static const std::map<std::string, double> sizes = {
      {"name", 40 * 1.12}, {"details", 20}, {"label", 20}, {"value", 24 * 1.12}};
  static const std::regex text(
      R"re(<text x="([0-9.]+)" y="([0-9.]+)" text-anchor="(\w+)" class="(name|details|label|value)">([^<]*)</text>)re");
  std::vector<PlacedText> texts;
  for (std::sregex_iterator at(svg.begin(), svg.end(), text), end; at != end; ++at) {
    const double size = sizes.at((*at)[4]), width = measure::svg::text_width((*at)[5].str(), size);
    const double x = std::stod((*at)[1]) - ((*at)[3] == "end" ? width : 0), y = std::stod((*at)[2]);
    texts.push_back({x, x + width, y - size * 0.8, y + size * 0.25, (*at)[5]});
  }
  return texts;
}

void check_card(const std::string& svg) {
  INFO(svg);
  CHECK(testing::problems_of_svg(svg) == std::vector<std::string>());
  const std::vector<PlacedText> texts = texts_of(svg);
  CHECK(texts.size() >= 18);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    INFO(texts[i].text);
    CHECK(texts[i].left >= 0);
    CHECK(texts[i].right <= measure::kCardWidth);
    CHECK(texts[i].bottom <= measure::kCardHeight);
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = texts[i].left >= texts[j].right || texts[j].left >= texts[i].right ||
                         texts[i].top >= texts[j].bottom || texts[j].top >= texts[i].bottom;
      INFO(texts[j].text);
      CHECK(apart);
    }
  }
}

}  // namespace

TEST_CASE("the card of a machine has its ceilings and their knee", "[report]") {
  const std::string svg = card_svg(machine_of("A processor"), cpu, made_up());
  check_card(svg);
  CHECK_THAT(svg, Contains("viewBox=\"0 0 1200 630\"") && Contains(">A processor</text>") &&
                      Contains(">50 GB/s</text>") && Contains(">400 GFLOP/s</text>") &&
                      Contains(">1 TFLOP/s</text>") && Contains(">200 GFLOP/s</text>") &&
                      Contains(">20.0 flops/B</text>") && Contains(">4.00 flops/B</text>") &&
                      Contains(">180 ns</text>") &&
                      Contains(">3.00 \u00b5s + 40.0 ns a kernel</text>") &&
                      Contains(">brrr 1.2.3</text>") && Contains(">measured 2026-01-31</text>"));
  CHECK_THAT(svg, !Contains(">kernel in a full stream</text>"));
  const std::string on_cuda = card_svg(machine_of("A card"), cuda(0), made_up());
  check_card(on_cuda);
  CHECK_THAT(on_cuda, Contains(">products tf32</text>") && Contains(">2.10 \u00b5s</text>") &&
                          Contains("132 multiprocessors"));
}

TEST_CASE("a card of defaults and of long names is valid", "[report]") {
  graph::Ceilings ceilings = made_up();
  ceilings.date = "";
  const std::string svg = card_svg(machine_of(std::string(300, 'W') + "<&\""), cpu, ceilings);
  check_card(svg);
  CHECK_THAT(svg,
             Contains("\u2026</text>") && Contains(">estimated; brrr calibrate measures</text>"));
  check_card(card_svg(machine_of("none"), cpu, graph::Ceilings()));
  check_card(card_svg(machine_of("none"), cuda(3), graph::default_ceilings(cpu)));
}
