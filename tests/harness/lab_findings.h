// Checks of the lab's findings, on every device.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string>

#include "brrr/measure/lab.h"
#include "tests/harness/catch.h"

namespace brrr::testing {

inline bool has_digit(const std::string& text) {
  return std::ranges::any_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Runs the experiment in its short form; its readings by name.
inline std::map<std::string, double> run_experiment(const measure::Experiment& experiment,
                                                    Device device) {
  measure::LabOptions options;
  options.device = device;
  options.quick = true;
  INFO(experiment.name);
  const measure::Finding finding = measure::run_experiment(experiment, options);
  std::map<std::string, double> values;
  int claims = 0;
  for (const measure::Reading& r : finding.readings) {
    INFO(r.name);
    CHECK(std::isfinite(r.value));
    CHECK(r.spread >= 0);
    CHECK(values.emplace(r.name, r.value).second);
    // Times and rates.
    if (r.unit == "us" || r.unit.ends_with("/s")) CHECK(r.value > 0);
    if (!r.claim) continue;
    ++claims;
    CHECK(r.claim->least <= r.claim->most);
    CHECK(has_digit(r.miss));
    if (!r.holds()) CHECK(finding.why.find(r.miss) != std::string::npos);
    if (r.article) CHECK((*r.article >= r.claim->least && *r.article <= r.claim->most));
  }
  CHECK(claims > 0);
  CHECK((finding.svg.empty() || finding.svg.starts_with("<svg ")));
  CHECK(has_digit(finding.why));
  if (!finding.plot) return values;
  CHECK_FALSE(finding.plot->x.empty());
  for (const measure::Series& series : finding.plot->series) {
    CHECK(series.points.size() >= 4);
    double before = 0;
    for (const auto& [x, y] : series.points) {
      CHECK((x > before && y > 0));
      before = x;
    }
  }
  return values;
}

// Counts and calculations, which are the same on every machine.
inline void check_exact_readings(const std::string& name, std::map<std::string, double> values) {
  if (name == "cos-of-cos") {
    CHECK(values.at("accesses an element, eager") == 4);
    CHECK(values.at("accesses an element, graph") == 4);
    CHECK(values.at("accesses an element, fused") == 2);
  } else if (name == "in-place") {
    CHECK(values.at("accesses an element, in place") == 3);
    CHECK(values.at("accesses an element, to a new tensor") == 3);
    CHECK(values.at("accesses an element, to a new tensor, copied back") == 5);
    CHECK(values.at("accesses an element, gradients dropped") == Approx(6).epsilon(1e-4));
    CHECK(values.at("accesses an element, gradients zeroed") == Approx(10).epsilon(1e-4));
  } else if (name == "fusion-onto") {
    CHECK(values.at("reduction: kernels, fused") == 1);
    CHECK(values.at("reduction: accesses an element, eager") == Approx(5 + 3.0 / 1024));
    CHECK(values.at("reduction: accesses an element, fused") == Approx(1 + 1.0 / 1024));
    CHECK(values.at("product: accesses an element, eager") > 7);
    CHECK(values.at("product: accesses an element, fused") <= 5.1);
  } else if (name == "recomputation") {
    CHECK(values.at("memory, recomputed over kept, fused") < 0.5);
    CHECK(values.at("call by call, recomputed: memory") <
          values.at("call by call, every value kept: memory"));
  } else if (name == "operator-classes") {
    double flops = 0, time = 0;
    for (const auto& [reading, value] : values)
      (reading.ends_with("of the flops") ? flops : time) += value;
    CHECK(flops == Approx(100));
    CHECK(time == Approx(100));
    CHECK(values.at("products, of the flops") > 99);
    CHECK(values.at("normalization, of the flops") > 0);
    CHECK(values.at("element-wise, of the flops") > 0);
  } else if (name == "one-addition") {
    double shares = 0;
    for (const auto& [reading, value] : values) {
      CHECK(value >= 0);
      shares += value;
    }
    shares -= values.at("one eager addition") + values.at("the addition itself, as in a bare loop");
    CHECK(shares == Approx(100));
    CHECK(values.at("dispatch") + values.at("launch") > 0);  // few samples are of either alone
  } else if (name == "chain") {
    CHECK(values.at("largest difference from clipping, then Adam, by hand") == 0);
  } else if (name == "growth") {
    CHECK(values.at("processors: years to double") == Approx(1.5816).epsilon(1e-4));
    CHECK(values.at("memory: years to double") == Approx(2.6419).epsilon(1e-4));
  } else if (name == "parallel") {
    CHECK(values.at("H100: tokens a device, data-parallel") == 2475);
    CHECK(values.at("here: tokens a device, data-parallel") ==
          Approx(values.at("here: product bf16") / values.at("here: assumed link")));
  } else if (name == "break-even") {
    CHECK(values.at("flops an element before compute binds") ==
          Approx(8 * values.at("multiply-adds f32") / values.at("bandwidth of a copy")));
  }
}

}  // namespace brrr::testing
