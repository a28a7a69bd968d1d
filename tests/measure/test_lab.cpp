// The lab: every experiment in its short form, and verdicts on recorded numbers.
#include "brrr/measure/lab.h"

#include <set>

#include "brrr/measure/lab_experiments.h"
#include "brrr/nn/mlp.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"
#include "tests/harness/lab_findings.h"

using namespace brrr;
using measure::Finding;
using measure::Interval;

TEST_CASE("every experiment of the lab has its readings and a claim", "[lab]") {
  std::set<std::string> names;
  for (const measure::Experiment& experiment : measure::experiments()) {
    CHECK(names.insert(experiment.name).second);
    CHECK(std::string(experiment.title) != "");
    CHECK(std::string(experiment.claim) != "");
    INFO(experiment.name);
    testing::check_exact_readings(experiment.name, testing::run_experiment(experiment, cpu));
  }
  CHECK(names.size() == 20);
  CHECK_FALSE(names.contains("all"));
  CHECK_FALSE(names.contains("list"));
}

TEST_CASE("a claim holds inside of its interval", "[lab]") {
  Finding finding;
  finding.readings = {
      {.name = "eager", .value = 4396, .unit = "us", .spread = 0.02},
      {.name = "accesses", .value = 2, .article = 2, .claim = Interval{2, 2}},
      {.name = "eager over fused", .value = 1.9, .article = 2, .claim = Interval{1.6, 2.6}}};
  CHECK(finding.confirmed());
  CHECK_FALSE(finding.disturbed());
  CHECK(finding.verdict() ==
        "confirmed: accesses is 2.00 (claimed: 2.00); eager over fused is 1.90 (claimed: 1.60 to "
        "2.60)");
  finding.readings[2].value = 0.7426;
  CHECK_FALSE(finding.confirmed());
  CHECK(finding.verdict() == "differs: eager over fused is 0.7426 (claimed: 1.60 to 2.60)");
  finding.readings[2].value = 2.61;
  CHECK_FALSE(finding.confirmed());
  finding.readings[2].value = 1.6;
  CHECK(finding.confirmed());
  finding.readings[1].value = 2.5;
  finding.readings[1].unit = "passes";
  CHECK(finding.verdict() == "differs: accesses is 2.50 passes (claimed: 2.00)");
  finding.readings[0].spread = 0.2;
  CHECK(finding.disturbed());
}

TEST_CASE("a disturbed experiment is run again, and its calmest run is kept", "[lab]") {
  static int runs;
  static std::vector<double> spreads;
  const measure::Experiment experiment{
      "test", "", "", [](const measure::LabOptions&) {
        Finding finding;
        finding.readings = {{.name = "calm", .value = 1},
                            {.name = "run", .value = double(runs), .spread = spreads[runs]}};
        ++runs;
        return finding;
      }};
  const auto kept = [&](std::vector<double> each, bool quick = false) {
    runs = 0;
    spreads = std::move(each);
    measure::LabOptions options;
    options.quick = quick;
    return measure::run_experiment(experiment, options).readings[1].value;
  };
  CHECK(kept({0.02}) == 0);
  CHECK(kept({0.3, 0.05}) == 1);
  CHECK(kept({0.3, 0.2, 0.25}) == 1);
  CHECK(runs == 3);
  CHECK(kept({0.3}, /*quick=*/true) == 0);
}

TEST_CASE("a value that is no number confirms nothing", "[lab]") {
  Finding finding;
  finding.readings = {{.name = "ratio", .value = std::nan(""), .claim = Interval{0, 1}}};
  CHECK_FALSE(finding.confirmed());
}

TEST_CASE("numbers have three significant digits", "[lab]") {
  using measure::number_text;
  CHECK(number_text(0) == "0");
  CHECK(number_text(-3.5552) == "-3.56");
  CHECK(number_text(0.0123) == "0.0123");
  CHECK(number_text(19500) == "19500");
  CHECK(number_text(49.94) == "49.9");
}

TEST_CASE("a step is prepared in each mode with its costs", "[lab]") {
  const Tensor x = ones({64});
  Tensor y = zeros({64});
  const measure::lab::Step step = [&] { add_(mul_(add_(y, x), 0.5), 1.0); };
  const auto cost = [&](Mode mode) { return measure::lab::prepare(cpu, step, mode); };
  const measure::lab::PreparedStep eager = cost(Mode::eager), fused = cost(Mode::fused);
  CHECK_FALSE(eager.entry);
  CHECK(eager.kernels == 3);
  CHECK(eager.bytes == 3 * 256 + 2 * 2 * 256);
  CHECK(fused.entry);
  CHECK(fused.kernels == 1);
  CHECK(fused.bytes == 3 * 256);
  CHECK(fused.flops == eager.flops);
}

TEST_CASE("the steps of the modes do the same and share nothing", "[lab]") {
  std::vector<Tensor> made;
  measure::LabOptions options;
  options.device = cpu;
  options.quick = true;
  const measure::lab::InModes modes = measure::lab::time_modes(options, [&] {
    made.push_back(zeros({16}));
    return [y = made.back()]() mutable { cos_(y); };
  });
  REQUIRE(made.size() == 3);
  for (const Tensor& y : made) CHECK(item(y[0]) == Approx(0.739085));  // the fixed point of cos
  CHECK(modes.speed_up(Mode::eager) == 1);
  CHECK(modes.speed_up(Mode::graph) > 0);
}
