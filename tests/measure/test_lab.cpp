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
using measure::Outcome;

TEST_CASE("every experiment of the lab has its readings and a claim", "[lab]") {
  std::set<std::string> names;
  for (const measure::Experiment& experiment : measure::experiments()) {
    CHECK(names.insert(experiment.name).second);
    CHECK(std::string(experiment.title) != "");
    CHECK(std::string(experiment.claim) != "");
    INFO(experiment.name);
    testing::check_exact_readings(experiment.name, testing::run_experiment(experiment, cpu));
  }
  CHECK(names.size() == 26);
  CHECK_FALSE(names.contains("all"));
  CHECK_FALSE(names.contains("list"));
}

TEST_CASE("a claim holds inside of its interval", "[lab]") {
  Finding finding;
  finding.readings = {
      {.name = "eager", .value = 4396, .unit = "us", .spread = 0.02},
      {.name = "accesses", .value = 2, .article = 2, .claim = Interval{2, 2}},
      {.name = "eager over fused", .value = 1.9, .article = 2, .claim = Interval{1.6, 2.6}}};
  CHECK(finding.outcome() == Outcome::confirmed);
  CHECK_FALSE(finding.disturbed());
  CHECK(finding.verdict() ==
        "confirmed: accesses is 2.00 (claimed: 2.00); eager over fused is 1.90 (claimed: 1.60 to "
        "2.60)");
  finding.readings[2].value = 0.7426;
  CHECK(finding.outcome() == Outcome::differs);
  CHECK(finding.verdict() == "differs: eager over fused is 0.743 (claimed: 1.60 to 2.60)");
  finding.readings[2].value = 2.61;
  CHECK(finding.outcome() == Outcome::differs);
  finding.readings[2].value = 1.6;
  CHECK(finding.outcome() == Outcome::confirmed);
  finding.readings[1].value = 2.5;
  finding.readings[1].unit = "passes";
  CHECK(finding.verdict() == "differs: accesses is 2.50 passes (claimed: 2.00)");
  finding.readings[0].spread = 0.2;  // has no claim
  CHECK(finding.disturbed());
  CHECK(finding.outcome() == Outcome::differs);
}

TEST_CASE("a disturbed or incomplete finding is undecided, with the reasons", "[lab]") {
  const Finding good{.readings = {{.name = "ratio", .value = 2, .claim = Interval{1, 3}}},
                     .why = ""};
  REQUIRE(good.outcome() == Outcome::confirmed);
  Finding finding = good;
  finding.readings[0].spread = 0.2;
  CHECK(finding.outcome() == Outcome::undecided);
  CHECK(finding.verdict() ==
        "undecided: samples of ratio spread by 20 %; ratio is 2.00 (claimed: 1.00 to 3.00)");
  finding.readings[0].value = 5;
  CHECK(finding.outcome() == Outcome::undecided);
  finding = good;
  finding.incomplete = {"CUPTI dropped 3 records"};
  CHECK(finding.doubts() == finding.incomplete);
  CHECK(finding.outcome() == Outcome::undecided);
  finding = good;
  finding.gpu = measure::GpuState{.unavailable = {}, .processes = 2};
  CHECK(finding.doubts() == std::vector<std::string>{"2 processes compute on the card"});
  finding.gpu->processes = 0;  // unknown is no disturbance
  CHECK(finding.outcome() == Outcome::confirmed);
}

TEST_CASE("a finding by a recording that more than doubles the step is undecided", "[lab]") {
  using measure::lab::recording_doubt;
  CHECK(recording_doubt("small step", -0.05).empty());
  CHECK(recording_doubt("small step", 1).empty());
  CHECK(recording_doubt("small step", 1.326) == "tracing makes the small step 2.33 times as long");
  Finding finding;
  finding.readings = {{.name = "idle", .value = 50, .claim = Interval{20, 100}}};
  finding.incomplete = {recording_doubt("small step", 1.01)};
  CHECK(finding.verdict() ==
        "undecided: tracing makes the small step 2.01 times as long; idle is 50.0 (claimed: 20.0 "
        "to 100)");
}

TEST_CASE("a claim may have no upper end", "[lab]") {
  Finding finding;
  finding.readings = {{.name = "ratio", .value = 1e9, .claim = Interval::at_least(100)}};
  CHECK(finding.verdict() == "confirmed: ratio is 1000000000 (claimed: at least 100)");
  finding.readings[0].value = 99;
  CHECK(finding.verdict() == "differs: ratio is 99.0 (claimed: at least 100)");
}

TEST_CASE("the sweep of batches explains its times by what each step does", "[lab]") {
  measure::LabOptions options;
  options.device = cpu;
  options.quick = true;
  const Finding finding = measure::lab::batch_doubling(options);
  CHECK_THAT(finding.why, Catch::StartsWith("from batch 1 to 2 the step takes "));
  CHECK_THAT(finding.why, Catch::Contains(" with 1.00 times the kernels, 1.0"));
  CHECK_THAT(finding.why, Catch::Contains("; from batch 256 to 512 the step takes "));
  REQUIRE(finding.plot);
  CHECK(finding.plot->series[0].points.size() == 10);
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

TEST_CASE("what does not hold is explained once, after what explains the readings", "[lab]") {
  const measure::Experiment experiment{
      "test", "", "", [](const measure::LabOptions&) {
        const Interval claim{1, 2};
        return Finding{.readings = {{.name = "low", .value = 0.5, .claim = claim, .miss = "3 us"},
                                    {.name = "holds", .value = 1, .claim = claim, .miss = "4 us"},
                                    {.name = "high", .value = 3, .claim = claim, .miss = "3 us"},
                                    {.name = "no claim", .value = 3, .miss = "5 us"}},
                       .why = "a copy moves 8 GB/s"};
      }};
  CHECK(measure::run_experiment(experiment, {}).why == "a copy moves 8 GB/s; 3 us");
}

TEST_CASE("what Python prints becomes its additions a second", "[lab]") {
  using namespace measure::lab;
  PythonAdditions found = parse_python_additions("python 32000000.5\ntorch 280000\n");
  CHECK(found.python == 32000000.5);
  CHECK(found.torch == 280000);
  CHECK(text_of(found) == "PyTorch takes 3571 ns for an addition here, Python 31.2");
  found = parse_python_additions("python 2e7\n");
  CHECK_FALSE(found.torch);
  CHECK_THAT(text_of(found), Catch::Contains("has no torch: PyTorch's figure is the article's"));
  for (const char* nothing :
       {"", "\n", "sh: python3: not found\n", "python nan\n", "python -1\n"}) {
    found = parse_python_additions(nothing);
    CHECK_FALSE(found.python);
    CHECK_FALSE(found.torch);
    CHECK_THAT(text_of(found), Catch::StartsWith("python3 is not installed here"));
  }
}

TEST_CASE("a value that is no number confirms nothing", "[lab]") {
  Finding finding;
  finding.readings = {{.name = "ratio", .value = std::nan(""), .claim = Interval{0, 1}}};
  CHECK(finding.outcome() == Outcome::differs);
}

TEST_CASE("numbers have three significant digits", "[lab]") {
  using measure::number_text;
  CHECK(number_text(0) == "0");
  CHECK(number_text(-3.5552) == "-3.56");
  CHECK(number_text(0.0123) == "0.0123");
  CHECK(number_text(0.8) == "0.800");
  CHECK(number_text(0.0017) == "0.00170");
  CHECK(number_text(1e-9) == "0.000000");
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
