// brrr calibrate: its readings on this machine, and the verdict on them.
#include "brrr/measure/calibrate.h"

#include "brrr/measure/limits.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/step_cost.h"
#include "tests/harness/catch.h"
#include "tests/harness/own_cache.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::Calibration;

namespace {

Calibration undisturbed() {
  Calibration c;
  c.readings = {
      measure::time_result("eager call", cpu, {.median = 2e-7, .spread = 0.04}, nullptr, "")};
  c.first_rate = 100e9;
  c.last_rate = 95e9;
  return c;
}

}  // namespace

TEST_CASE("a quick calibration reads every ceiling, and is not to be kept", "[calibrate]") {
  std::vector<std::string> shown;
  measure::BenchOptions options{.device = cpu, .quick = true};
  options.progress = [&](const std::string& name) { shown.push_back(name); };
  const Calibration result = measure::calibrate(options);
  const graph::Ceilings& c = result.ceilings;
  CHECK(c.machine == graph::machine_of(cpu));
  CHECK(c.date.size() == std::string("2026-01-02T03:04:05Z").size());
  CHECK((c.eager.call_ps > 0 && c.eager.view_ps > 0 && c.eager.record_ps > 0 && c.node_ps >= 0 &&
         c.replay_ps >= 0));
  CHECK((c.f32_flops > 0 && c.f64_flops > 0 && c.functions > 0 && c.draws > 0));
  CHECK(c.moved.points.size() == 2);
  for (const graph::ProductCurves& curves : c.products) {
    for (const graph::Curve& curve : curves) CHECK(curve.points.size() == 1);
  }
  CHECK(result.readings.size() >= 12);
  CHECK(shown.size() >= 10);
  CHECK(measure::disturbances(result).front() == "sizes were small and samples few");
  CHECK(c.doubts == measure::disturbances(result));
  CHECK_FALSE(measure::is_to_be_kept(result));
  CHECK_FALSE(result.gpu);
}

TEST_CASE("disturbed readings are named", "[calibrate]") {
  CHECK(measure::disturbances(undisturbed()).empty());
  const auto why = [](auto change) {
    Calibration c = undisturbed();
    change(c);
    const std::vector<std::string> lines = measure::disturbances(c);
    return lines.size() == 1 ? lines[0] : std::to_string(lines.size()) + " lines";
  };
  CHECK(why([](Calibration& c) { c.readings[0].spread = 0.25; }) ==
        "eager call: samples spread by 25 %");
  CHECK(why([](Calibration& c) { c.last_rate = 80e9; }) ==
        "the clock moved: 100 GFLOP/s at first, 80 at the end");
  CHECK(why([](Calibration& c) { c.first_rate = 80e9; }) ==
        "the clock moved: 80 GFLOP/s at first, 95 at the end");
  CHECK(why([](Calibration& c) { c.gpu = {.unavailable = {}, .processes = 2}; }) ==
        "2 processes compute on the card");
  CHECK(why([](Calibration& c) {
          c.gpu = {
              .unavailable = {}, .processes = 1, .slowed_by = {"thermal slowdown", "power brake"}};
        }) == "the card is slowed: thermal slowdown, power brake");
}

TEST_CASE("disturbed ceilings are kept with their doubts, and do not replace others",
          "[calibrate]") {
  const test::OwnCache cache;
  Calibration calm = undisturbed();
  calm.device = cpu;
  calm.ceilings = graph::default_ceilings(cpu);
  calm.ceilings.machine = graph::machine_of(cpu);
  calm.ceilings.software = graph::software_of(cpu);
  calm.ceilings.date = measure::describe_machine().date;
  Calibration disturbed = calm;
  disturbed.ceilings.doubts = {"eager call: samples spread by 25 %"};
  CHECK(measure::is_to_be_kept(disturbed));
  graph::write_ceilings(disturbed.ceilings, cpu);
  CHECK(graph::ceilings_of(cpu)->doubts == disturbed.ceilings.doubts);
  CHECK_THAT(measure::ceilings_drift(cpu).back(),
             Catch::Contains("were disturbed: eager call: samples spread by 25 %"));
  CHECK(measure::is_to_be_kept(disturbed));
  CHECK(measure::is_to_be_kept(calm));
  graph::write_ceilings(calm.ceilings, cpu);
  CHECK(graph::ceilings_of(cpu)->doubts.empty());
  CHECK_FALSE(measure::is_to_be_kept(disturbed));
  CHECK(measure::is_to_be_kept(calm));
}

TEST_CASE("what cannot be checked of a card is said, and is no disturbance", "[calibrate]") {
  using measure::GpuState;
  const GpuState calm{.unavailable = {}, .processes = 1},
      unknown{.unavailable = {"other processes on the card: libnvidia-ml.so.1 not found"}};
  CHECK(measure::not_checked(calm).empty());
  CHECK(measure::not_checked(unknown) == unknown.unavailable);
  CHECK(measure::disturbances(unknown).empty());
  // A list without even this process tells nothing of others.
  const GpuState none{.unavailable = {}, .processes = 0};
  CHECK(measure::disturbances(none).empty());
  CHECK(
      measure::not_checked(none) ==
      std::vector<std::string>{"other processes on the card: NVML lists none, not even this one"});
}

TEST_CASE("a disturbance before or after a measurement counts", "[calibrate]") {
  using measure::GpuState;
  const auto state = [](std::optional<int> processes, std::vector<std::string> slowed_by = {}) {
    return GpuState{.unavailable = {}, .processes = processes, .slowed_by = std::move(slowed_by)};
  };
  const auto processes = [&](std::optional<int> a, std::optional<int> b) {
    return measure::worse_of(state(a), state(b)).processes;
  };
  CHECK(processes(1, 1) == 1);
  CHECK(processes(1, 3) == 3);
  CHECK(processes(3, 1) == 3);
  CHECK(processes(0, 3) == 3);
  CHECK(processes(3, 0) == 3);
  CHECK(processes(0, 1) == 1);  // this process came
  CHECK(processes(1, 0) == 0);
  CHECK(processes(0, 0) == 0);
  CHECK(processes(std::nullopt, 2) == 2);
  CHECK(processes(2, std::nullopt) == 2);
  CHECK_FALSE(processes(std::nullopt, 1));
  CHECK_FALSE(processes(1, std::nullopt));
  CHECK(measure::worse_of(state(1, {"power brake"}), state(1, {"power brake", "heat"})).slowed_by ==
        std::vector<std::string>{"power brake", "heat"});
  const GpuState lost{.unavailable = {"why its clock is what it is: 3"}, .processes = 1};
  CHECK(measure::worse_of(lost, state(1)).unavailable == lost.unavailable);
}

TEST_CASE("ceilings that no longer hold are named", "[calibrate]") {
  graph::Ceilings c = graph::default_ceilings(cpu);
  c.f32_flops = 100'000'000'000;
  c.clock_mhz = 1980;
  CHECK(measure::drift_of(c, {.flops = 50e9, .clock_mhz = 900}).empty());  // defaults
  c.date = "2026-01-02T03:04:05Z";
  CHECK(measure::drift_of(c, {.flops = 114e9, .clock_mhz = 1800}).empty());
  CHECK(measure::drift_of(c, {.flops = 86e9, .clock_mhz = 0}).empty());
  CHECK(measure::drift_of(c, {.flops = 84e9, .clock_mhz = 1980}) ==
        std::vector<std::string>{"ceilings measured at 100 GFLOP/s of multiply-adds on "
                                 "2026-01-02T03:04:05Z, now 84.0: brrr calibrate"});
  CHECK(measure::drift_of(c, {.flops = 116e9}).size() == 1);
  CHECK(measure::drift_of(c, {.flops = 100e9, .clock_mhz = 1410}) ==
        std::vector<std::string>{
            "ceilings measured at a clock of 1980 MHz on 2026-01-02T03:04:05Z, now 1410: brrr "
            "calibrate"});
  c.clock_mhz = 0;
  CHECK(measure::drift_of(c, {.flops = 100e9, .clock_mhz = 1410}).empty());
  const measure::CeilingsProbe now = measure::probe_ceilings(cpu);
  CHECK(now.flops > 0);
  CHECK(now.clock_mhz == 0);
}

TEST_CASE("multiply-adds of doubles take more time than of floats", "[calibrate]") {
  const measure::MultiplyAdds narrow = measure::plain_multiply_adds(f32, 1),
                              wide = measure::plain_multiply_adds(f64, 1);
  CHECK(narrow.flops == 2 * wide.flops);
  CHECK(narrow.batch(1) > 0);
  CHECK(wide.batch(1) > 0);
}

TEST_CASE("an eager step has a predicted time", "[calibrate]") {
  const graph::Ceilings c = *graph::ceilings_of(cpu);
  const Tensor a = ones({64, 64});
  const measure::StepCost one = measure::cost_of_step(cpu, [&] { matmul(a, a); });
  CHECK(one.predicted.overhead_ps == c.eager.call_ps);
  CHECK(one.predicted.compute_ps ==
        c.product(graph::ProductType::f32, FactorOrder::mixed).time_of(2 * 64 * 64 * 64));
  CHECK(one.predicted.bandwidth_ps == 0);
  const measure::StepCost two = measure::cost_of_step(cpu, [&] { a + a + a; });
  CHECK(two.predicted.overhead_ps == 2 * c.eager.call_ps);
  CHECK(two.predicted.bandwidth_ps > 0);
  CHECK(measure::cost_of_step(cpu, [&] { transpose(a, 0, 1); }).predicted.ps() == c.eager.view_ps);
}
