// The verdict on prepared evidence, and on steps of this machine.
#include "brrr/measure/diagnose.h"

#include "brrr/measure/modes.h"
#include "tests/harness/catch.h"
#include "tests/harness/evidence.h"
#include "tests/harness/recorded_timeline.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::Diagnosis;
using measure::Evidence;
using measure::Regime;
using measure::Shares;
using namespace brrr::testing;

TEST_CASE("verdict: a tiny eager step is bound by the host", "[diagnose]") {
  Evidence e = cuda_step(Mode::eager, 92.8, 27, time_of(20, 0.2, 8.4), time_of(0, 0.2, 0.3));
  const Diagnosis d = checked(e);
  CHECK(d.regime == Regime::overhead);
  CHECK(d.shares->idle == Approx(1 - 27 / 92.8));
  CHECK(d.shares->overhead() > 0.95);
  CHECK(*d.busy() == Approx(27 / 92.8));
  CHECK(measure::to_string(d) == "overhead-bound: 100 % overhead, 0 % bandwidth, 0 % compute");
  CHECK(d.advice ==
        "replay the step (Mode::graph): the device waits for the host 71 % of the step, so at most "
        "3.4 times as fast");
  // With a prediction of graph mode, the advice has its number.
  e.cost.predicted_at_timed_speed = time_of(84, 0.2, 8.4);
  e.alternatives = {{"fused full", time_of(20, 3, 4)}, {"graph", time_of(15, 3, 8)}};
  CHECK(checked(e).advice ==
        "graph is predicted to take 26.0 us in place of 92.8: the device waits for the host 71 % "
        "of the step");
}

TEST_CASE("verdict: a tiny replay is bound by launches and small kernels", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 22.9, 21.8, time_of(14.7, 0.2, 6.1), time_of(0, 0.2, 0.3));
  const Diagnosis d = checked(e);
  CHECK(d.regime == Regime::overhead);
  CHECK(d.shares->idle == Approx(1 - 21.8 / 22.9));
  CHECK(d.shares->launches > d.shares->small);
  CHECK(d.advice.starts_with("fuse the step (Mode::fused): launches take 67 % of the step"));
  e.mode = Mode::fused;
  CHECK(checked(e).advice.starts_with("raise the batch: launches take 67 % of the step"));
}

TEST_CASE("verdict: products too small to fill the device are overhead, not compute",
          "[diagnose]") {
  // As predicted, most of the time is in products; twice their work would take hardly longer.
  const Diagnosis d =
      checked(cuda_step(Mode::fused, 65, 63, time_of(18, 1.9, 36.2), time_of(0, 1.9, 5)));
  CHECK(d.regime == Regime::overhead);
  CHECK(d.shares->small > d.shares->launches);
  CHECK(d.advice.starts_with("raise the batch: kernels too small to reach the ceilings take 54 %"));
}

TEST_CASE("verdict: a big product is bound by compute", "[diagnose]") {
  const Diagnosis d = checked(
      cuda_step(Mode::eager, 10650, 10600, time_of(20, 1497, 9150), time_of(0, 1497, 9100)));
  CHECK(d.regime == Regime::compute);
  CHECK(d.shares->compute == Approx(0.85).epsilon(0.02));
  CHECK(d.flops.share == Approx(9100 / 10650.0));
  CHECK(d.flops.rate == Approx(1e6 / 10650e-6));
  CHECK(*d.efficiency == Approx(10597 / 10600.0));
  CHECK(
      d.advice.starts_with("use tensor cores (TF32, bf16) if it does not yet, or do fewer FLOPs: "
                           "arithmetic takes 85 % of the step"));
}

TEST_CASE("verdict: a pointwise chain is bound by bandwidth", "[diagnose]") {
  Evidence e = cuda_step(Mode::eager, 2000, 1990, time_of(3, 1900, 0), time_of(0, 1890, 0));
  const Diagnosis d = checked(e);
  CHECK(d.regime == Regime::bandwidth);
  CHECK(d.bytes.share == Approx(1890 / 2000.0));
  CHECK(
      d.advice.starts_with("fuse the step (Mode::fused): moving bytes takes 99 % of the step, at "
                           "94 % of the bandwidth's ceiling"));
  e.alternatives = {{"graph", time_of(3, 1895, 0)}, {"fused", time_of(1, 620, 40)}};
  CHECK(checked(e).advice ==
        "fused is predicted to take 661 us in place of 2000: moving bytes takes 99 % of the step");
  e.mode = Mode::fused;
  e.alternatives.clear();
  CHECK(checked(e).advice.starts_with("move fewer bytes (bf16, rematerialization)"));
}

TEST_CASE("verdict: a mixed step has the regime of its largest share", "[diagnose]") {
  const Diagnosis d = checked(cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing));
  CHECK(d.regime == Regime::compute);
  CHECK(d.shares->compute == Approx(680.0 / 692 * 400 / 667));
  CHECK(d.shares->bandwidth == Approx(680.0 / 692 * 157 / 667));
  const Diagnosis third =
      checked(cuda_step(Mode::fused, 3000, 3000, time_of(90, 1310, 1300), time_of(0, 1310, 900)));
  CHECK(third.regime == Regime::bandwidth);
}

TEST_CASE("verdict: shares within ten points of each other are said to be mixed", "[diagnose]") {
  // 49 % overhead, 39 % compute: as wide apart as that counts as a regime of its own.
  const Diagnosis apart =
      checked(cuda_step(Mode::eager, 1000, 520, time_of(10, 130, 390), time_of(0, 120, 385)));
  CHECK(apart.regime == Regime::overhead);
  CHECK_FALSE(apart.shares->mixed_with());
  const Diagnosis d =
      checked(cuda_step(Mode::eager, 1000, 590, time_of(10, 150, 430), time_of(0, 150, 420)));
  CHECK(d.regime == Regime::overhead);
  CHECK(d.shares->mixed_with() == Regime::compute);
  CHECK(measure::regime_text(d) == "mixed (overhead 43 %, compute 42 %)");
  CHECK(measure::to_string(d) == "mixed: 43 % overhead, 15 % bandwidth, 42 % compute");
  CHECK(d.advice.starts_with("replay the step (Mode::graph)"));
}

TEST_CASE("a verdict without a timeline that was wanted is by timings only", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing);
  CHECK(checked(e).caveats.empty());
  e.without_kernels = true;  // by events, without CUPTI
  CHECK(checked(e).caveats == std::vector<std::string>{"basis: timings only"});
  CHECK(measure::regime_text(checked(e)) == "compute-bound (59 %; basis: timings only)");
  CHECK_FALSE(checked(e).by_timeline());
  e.without_kernels = false;
  e.occupancy = measure::Occupancy{.wall_ns = 1'000'000, .busy_ns = 970'000};
  CHECK(checked(e).by_timeline());
  CHECK(checked(e).caveats.empty());
  e.perturbation = 0.4;
  CHECK(checked(e).caveats == std::vector<std::string>{"basis: timings only"});
  // On the CPU a clock around each kernel takes its place.
  Evidence on_cpu = cpu_step(390, 380, time_of(10, 8, 250), time_of(0, 8, 240));
  on_cpu.without_kernels = true;
  CHECK(checked(on_cpu).caveats.empty());
}

TEST_CASE("verdict: kernels slower than predicted keep their proportions", "[diagnose]") {
  const Diagnosis slow = checked(cuda_step(Mode::graph, 1000, 980, kMedium, kMediumGrowing));
  const Diagnosis fast = checked(cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing));
  CHECK(slow.regime == Regime::compute);
  CHECK(slow.shares->compute == Approx(fast.shares->compute).epsilon(0.02));
  CHECK(slow.shares->inefficient == 0);
  CHECK(*slow.efficiency == Approx(557 / 980.0));
}

TEST_CASE("verdict: kernels far slower than their work needs are inefficient", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 2100, 2040, kMedium, kMediumGrowing);
  CHECK(checked(e).shares->inefficient == 0);  // nothing says of which kernels
  // One of two kernels is to blame.
  e.kernels = {{.name = "gather",
                .result = "f32[8]",
                .module = "net.embed",
                .phase = "forward",
                .launches = 2,
                .seconds = 1500e-6,
                .needed = 100e-6},
               {.name = "matmul", .result = "f32[8]", .seconds = 540e-6, .needed = 500e-6}};
  const Diagnosis d = checked(e);
  CHECK(d.regime == Regime::inefficient);
  CHECK(d.shares->inefficient == Approx(1400 / 2100.0));
  CHECK(d.shares->compute == Approx(640 / 2100.0 * 400 / 667));
  CHECK(measure::regime_text(d) == "bound by inefficient kernels (67 %)");
  CHECK_THAT(measure::to_string(d), Catch::EndsWith(", 67 % inefficient kernels"));
  REQUIRE(d.slowest);
  CHECK(d.slowest->name == "gather");
  CHECK(d.advice ==
        "look at the kernel 2 x gather of f32[8] in net.embed, forward: it takes 15.0 times what "
        "its bytes, FLOPs and launches need, and without that the step would be at most 3.00 times "
        "as fast");
  // Kernels that take up to 1.5 times their need are as they are.
  e.kernels[0].needed = 1010e-6;
  CHECK(checked(e).shares->inefficient == 0);
  CHECK_FALSE(checked(e).slowest);
  // What default ceilings say a kernel needs is no measure.
  e.kernels[0].needed = 100e-6;
  e.cost.calibrated = false;
  CHECK(checked(e).shares->inefficient == 0);
  CHECK_FALSE(checked(e).slowest);
  // On the CPU as well; kernels of several lanes overlap, so that their sum may be more.
  e = cpu_step(1000, 980, time_of(10, 80, 200), time_of(0, 80, 200));
  e.kernels = {{.seconds = 1960e-6, .needed = 490e-6}};
  CHECK(checked(e).regime == Regime::inefficient);
  CHECK(checked(e).shares->inefficient == Approx(0.75 * 0.98));
}

TEST_CASE("verdict: how sure it is follows from the spread of the timings", "[diagnose]") {
  Evidence e = cuda_step(Mode::eager, 1000, 520, time_of(10, 130, 390), time_of(0, 120, 385));
  CHECK(checked(e).confidence == measure::Confidence::sure);
  CHECK(checked(e).doubts.empty());
  e.step.spread = 0.6;  // 49 % overhead, 39 % compute: a step of 700 us would be bound by compute
  CHECK(checked(e).confidence != measure::Confidence::sure);
  CHECK_THAT(measure::regime_text(checked(e)),
             Catch::Contains("likely") || Catch::Contains("unsure"));
  // Disturbed samples are longer, never shorter: the least one counts.
  CHECK(checked(e).shares->idle == Approx(1 - 520 / 980.0));
  // By default ceilings bandwidth and compute may each be twice the other.
  e = cuda_step(Mode::graph, 692, 680, time_of(35, 220, 425), time_of(0, 200, 345));
  CHECK(checked(e).confidence == measure::Confidence::sure);
  e.cost.calibrated = false;
  CHECK(checked(e).confidence == measure::Confidence::likely);
  e = cuda_step(Mode::eager, 92.8, 27, time_of(20, 0.2, 8.4), time_of(0, 0.2, 0.3));
  e.cost.calibrated = false;
  CHECK(checked(e).confidence == measure::Confidence::sure);
}

TEST_CASE("verdict: a device that copies from the host runs no kernel", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 1000, 980, kMedium, kMediumGrowing);
  CHECK(checked(e).regime == Regime::compute);
  e.occupancy =
      measure::Occupancy{.wall_ns = 1'000'000, .busy_ns = 970'000, .transfer_ns = 600'000};
  e.occupancy->idle_ns[0] = 20'000;
  e.occupancy->sources = {{.cause = measure::IdleCause::host,
                           .work = measure::HostWork::op,
                           .name = "add",
                           .ns = 20'000,
                           .gaps = 4}};
  const Diagnosis d = checked(e);
  CHECK(d.regime == Regime::overhead);
  CHECK(d.shares->transfers == Approx(0.98 * 600 / 980));
  CHECK(d.advice ==
        "keep data on the device: copies and fills take 60 % of the step, so at most 2.5 times as "
        "fast without them");
  REQUIRE(d.occupancy);
  CHECK(d.unattributed.empty());
  CHECK(d.occupancy->share(d.occupancy->idle(measure::IdleCause::host)) == 0.02);
  REQUIRE(d.occupancy->sources.size() == 1);
  // Recording slowed the step: its timeline says nothing of the step itself.
  e.perturbation = 0.4;
  CHECK(checked(e).regime == Regime::compute);
  CHECK_FALSE(checked(e).occupancy);
  CHECK(checked(e).unattributed == "recording made the step 40 % slower");
  // How long the device waits is taken from the timings, who caused it from the timeline.
  REQUIRE(checked(e).idle_estimate.size() == 1);
  CHECK(to_string(checked(e).idle_estimate[0].source) == "add (op)");
  CHECK(checked(e).idle_estimate[0].share == Approx(0.02));
  e.missing = {"CUPTI dropped 12 records"};
  CHECK(measure::judge(e).idle_estimate.empty());
  e.missing = {};
  e.occupancy.reset();
  CHECK(checked(e).unattributed == "no timeline was recorded");
}

TEST_CASE("verdict: a recorded timeline says who caused the idle time", "[diagnose]") {
  measure::Timeline recorded = brrr::testing::recorded_timeline("h200-fused-transformer");
  Evidence e = cuda_step(Mode::fused, recorded.untraced.median * 1e6, 1278, time_of(70, 314, 850),
                         time_of(0, 314, 800));
  measure::add_timeline(recorded, e);
  const Diagnosis d = checked(e);
  CHECK(d.regime == Regime::compute);
  CHECK(d.unattributed.empty());
  REQUIRE(d.occupancy);
  CHECK(d.occupancy->share(d.occupancy->idle(measure::IdleCause::host)) ==
        Approx(0.1211).margin(1e-4));
  CHECK(to_string(d.occupancy->sources[0]) == "cuGraphLaunch (launch)");
  // Had recording slowed the step further, its idle time would not be the step's.
  measure::Timeline slowed = recorded;
  slowed.untraced.median = recorded.traced.median / 1.4;
  measure::add_timeline(slowed, e);
  CHECK(checked(e).unattributed == "recording made the step 40 % slower");
}

// The same timeline without twelve of its kernels: it would call the device idle while they ran.
TEST_CASE("verdict: a recorded timeline that lost records is not used", "[diagnose]") {
  const measure::Timeline whole = brrr::testing::recorded_timeline("h200-fused-transformer"),
                          lost = brrr::testing::recorded_timeline("h200-lost-records");
  REQUIRE(lost.spans.size() == whole.spans.size() - 12);
  CHECK(lost.busy_ns() < whole.busy_ns());
  Evidence e = cuda_step(Mode::fused, lost.untraced.median * 1e6, 1278, kMedium, kMediumGrowing);
  measure::add_timeline(lost, e);
  CHECK(only_doubt(e) == "the timeline is incomplete: CUPTI dropped 12 records");
  CHECK(checked(e).unattributed == "the timeline is incomplete");
  CHECK_FALSE(checked(e).occupancy);
  CHECK(checked(e).caveats == std::vector<std::string>{"basis: timings only"});
}

// An eager step of an MLP of two layers of 8 features. Its kernels run within ops, so that time in
// ops without that of allocations is more than theirs.
TEST_CASE("verdict: a small eager step recorded on the CPU is bound by overhead", "[diagnose]") {
  const measure::Timeline recorded = brrr::testing::recorded_timeline("cpu-eager-mlp");
  REQUIRE(recorded.device == cpu);
  REQUIRE(recorded.is_complete());
  CHECK(recorded.steps.size() == 2);
  CHECK(recorded.spans.empty());
  const auto share = [&](measure::HostWork work) {
    return static_cast<double>(recorded.host_ns(work)) / static_cast<double>(recorded.step_ns());
  };
  const double in_ops = share(measure::HostWork::op), us = recorded.untraced.median * 1e6;
  CHECK(in_ops < 0.75);
  const auto calls = static_cast<double>(std::ranges::count(recorded.host, measure::HostWork::op,
                                                            &measure::HostSpan::work)) /
                     2;
  CHECK(calls > 20);
  // A call of 30 ns, as calibrated on that machine, and hardly any bytes and FLOPs.
  Evidence e = cpu_step(us, us * (in_ops - share(measure::HostWork::allocation)),
                        time_of(calls * 0.03, 0.2, 0.2), time_of(0, 0.2, 0.2));
  const Diagnosis d = checked(e);
  CHECK(d.regime == Regime::overhead);
  CHECK(d.shares->overhead() > 0.5);
  CHECK(d.advice.starts_with("replay the step (Mode::graph): time outside of kernels"));
  // It has no spans of a device, so it is no evidence of idle time.
  measure::add_timeline(recorded, e);
  CHECK(only_doubt(e) == "the timeline is incomplete: it has no spans of the device");
}

TEST_CASE("no verdict on incomplete evidence", "[diagnose]") {
  const Evidence good = cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing);
  REQUIRE(checked(good).regime);
  Evidence e = good;
  e.queued.reset();
  CHECK(only_problem(e) ==
        "incomplete: the device was not timed, since its stream cannot queue a whole step");
  CHECK_FALSE(checked(e).busy());
  e = good;
  e.cost.on_device = {};
  CHECK(only_problem(e) == "incomplete: the step runs no kernel");
  e = good;
  e.further_problems = {"the step replays a compiled one"};
  CHECK(only_problem(e) == "the step replays a compiled one");
  CHECK(measure::to_string(checked(e)) == "no verdict: the step replays a compiled one");
}

TEST_CASE("a verdict on disturbed timings or a disturbed card is in doubt", "[diagnose]") {
  const Evidence good = cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing);
  Evidence e = good;
  e.step.spread = 0.14;
  CHECK(only_doubt(e) == "disturbed: samples of the step spread by 14 %, the least counts");
  e = good;
  e.queued->spread = 0.3;
  CHECK(only_doubt(e) == "disturbed: samples of queued steps spread by 30 %, the least counts");
  e = good;
  e.queued = timing(900);
  CHECK(only_doubt(e) == "disturbed: queued steps took 900 us, the whole step 692");
  e = good;
  e.gpu->processes = 2;
  e.gpu->slowed_by = {"power brake"};
  CHECK(only_doubt(e) == "2 doubts");
  CHECK(checked(e).doubts[1] == "disturbed: the card is slowed: power brake");
  e = good;
  e.queued = timing(720);  // within the noise: busy all the time
  CHECK(*checked(e).busy() == 1);
  CHECK(checked(e).regime == Regime::compute);
}

TEST_CASE("a verdict by default ceilings is in doubt", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing);
  e.cost.calibrated = false;
  CHECK(only_doubt(e) == "default ceilings: brrr calibrate measures this machine's");
}

TEST_CASE("a verdict by ceilings that no longer hold is in doubt", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing);
  e.drift = {"ceilings measured at 100 GFLOP/s, now 84.0"};
  CHECK(only_doubt(e) == "ceilings measured at 100 GFLOP/s, now 84.0");
}

TEST_CASE("a verdict says what could not be checked of the card", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing);
  CHECK(checked(e).not_checked.empty());
  e.gpu = measure::GpuState{.unavailable = {"other processes on the card: no NVML"}};
  CHECK(checked(e).regime == Regime::compute);
  CHECK(checked(e).not_checked == e.gpu->unavailable);
  CHECK_THAT(measure::to_string(checked(e)),
             Catch::EndsWith("; not checked: other processes on the card: no NVML"));
  e.gpu = measure::GpuState{.unavailable = {}, .processes = 0};
  CHECK(checked(e).not_checked.size() == 1);
  // While a timeline is recorded another process came.
  measure::Timeline timeline = brrr::testing::recorded_timeline("h200-fused-transformer");
  timeline.gpu = measure::GpuState{.unavailable = {}, .processes = 2};
  measure::add_timeline(timeline, e);
  CHECK(only_doubt(e) == "disturbed: 2 processes compute on the card");
}

TEST_CASE("verdict on the CPU: time outside of kernels is overhead", "[diagnose]") {
  const Diagnosis calls = checked(cpu_step(7.9, 3.4, time_of(5, 0.1, 0.6), time_of(0, 0.1, 0.5)));
  CHECK(calls.regime == Regime::overhead);
  CHECK(calls.shares->idle == Approx(1 - 3.4 / 7.9));
  CHECK(calls.shares->launches == Approx(0.5 / 7.9));  // of 5 us, 4.5 are outside of kernels
  CHECK(calls.advice.starts_with("replay the step (Mode::graph): time outside of kernels is 57 %"));

  const Diagnosis products = checked(cpu_step(390, 380, time_of(10, 8, 250), time_of(0, 8, 240)));
  CHECK(products.regime == Regime::compute);
  CHECK(products.advice.starts_with("do fewer FLOPs, or use more cores or a GPU"));

  const Diagnosis chain = checked(cpu_step(5000, 4990, time_of(2, 5100, 0), time_of(0, 5100, 0)));
  CHECK(chain.regime == Regime::bandwidth);
  // Kernels that run faster than the ceilings leave no time within them to calls.
  CHECK(chain.shares->launches == 0);

  Evidence e = cpu_step(390, 380, time_of(10, 8, 250), time_of(0, 8, 240));
  e.in_kernels = timing(500);
  CHECK(only_doubt(e) == "disturbed: time in kernels took 500 us, the whole step 390");
  e.in_kernels.reset();
  CHECK(only_problem(e) == "incomplete: the kernels were not timed");
}

TEST_CASE("judge refuses a step without a time", "[diagnose]") {
  CHECK_THROWS_WITH(measure::shares_of(Evidence{.device = cuda(0), .step = timing(5)}),
                    "[shares_of] expected kernels and their measured time, got none");
  CHECK_THROWS_WITH(measure::judge({}), "[judge] expected a step's time, got 0 s");
}

// --- Modes side by side ---

namespace {

measure::ComparedMode mode(const char* name, double predicted, double measured) {
  return {.name = name,
          .predicted = time_of(predicted, 0, 0),
          .measured = timing(measured),
          .diagnosis = {}};
}

}  // namespace

TEST_CASE("predictions of modes are scored by error and order", "[diagnose]") {
  std::vector<measure::ComparedMode> modes = {mode("eager", 144, 92.8), mode("graph", 21, 22.9),
                                              mode("fused", 15.1, 17)};
  CHECK(modes[0].error() == Approx(144 / 92.8 - 1));
  CHECK(modes[2].error() == Approx(15.1 / 17 - 1));
  CHECK(measure::order_is_right(modes));
  modes[2].predicted = time_of(22, 0, 0);
  CHECK_FALSE(measure::order_is_right(modes));
  modes[2].measured = timing(22.4);  // as fast as graph
  CHECK(measure::order_is_right(modes));
  modes[2].measured = timing(18, 0.4);  // or too widely spread to tell
  CHECK(measure::order_is_right(modes));
  CHECK(measure::order_is_right({}));
}

TEST_CASE("the verdict on modes has the regime, the fastest mode and advice", "[diagnose]") {
  std::vector<measure::ComparedMode> modes = {mode("eager", 144, 92.8), mode("fused", 15.1, 17)};
  CHECK(measure::verdict_on(modes).empty());  // eager has no regime
  modes[0].diagnosis.regime = Regime::overhead;
  modes[0].diagnosis.shares = Shares{.idle = 0.71, .compute = 0.29};
  modes[0].diagnosis.advice = "replay it";
  CHECK(measure::verdict_on(modes) ==
        "eager is overhead-bound (71 %); fused, predicted to take 15.1 us in place of 92.8, takes "
        "17.0 and is without a verdict");
  modes[1].diagnosis = modes[0].diagnosis;
  modes[1].diagnosis.advice = "raise the batch";
  CHECK(measure::verdict_on(modes).ends_with("and is overhead-bound (71 %); raise the batch"));
  CHECK(measure::is_faster(timing(100), timing(106)));
  CHECK_FALSE(measure::is_faster(timing(100), timing(104)));
  measure::Diagnosis own;
  CHECK(measure::gain_over(timing(200), own, timing(100)) == Approx(2));
  CHECK(measure::gain_over(timing(104), own, timing(100)) == 1);
  // No mode makes the user's own code faster.
  own.shares = measure::Shares{.idle = 0.2, .user = 0.8};
  CHECK(measure::gain_over(timing(200), own, timing(100)) == Approx(1.25));
  own.shares = measure::Shares{.idle = 0.03, .user = 0.97};
  CHECK(measure::gain_over(timing(200), own, timing(100)) == 1);
  modes[1].measured = timing(91);
  CHECK(measure::verdict_on(modes) ==
        "eager is overhead-bound (71 %), and no other mode is faster by 5 %; replay it");
  CHECK(measure::verdict_on({modes.data(), 1}) == "eager is overhead-bound (71 %); replay it");
  CHECK_THROWS_WITH(measure::verdict_on({}), "[verdict_on] expected at least one mode, got none");
}

// --- Steps of this machine ---

namespace {

const measure::DiagnoseOptions kQuick{
    .sampling = {.samples = 5, .sample_seconds = 2e-4, .budget_seconds = 0.01}};

bool has_doubt(const Diagnosis& d, const std::string& text) {
  return std::ranges::any_of(
      d.doubts, [&](const std::string& doubt) { return doubt.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("any callable is diagnosed on the CPU", "[diagnose]") {
  const Tensor a = rand({64, 64}), b = rand({64, 64});
  const Evidence e = measure::gather(
      cpu, [&] { relu(matmul(a, b) + 1.0); }, kQuick);
  CHECK(e.mode == Mode::eager);
  CHECK(e.cost.kernels == 3);
  CHECK(e.step.median > 0);
  REQUIRE(e.in_kernels);
  CHECK(e.in_kernels->median > 0);
  CHECK(e.further_problems.empty());
  // Whatever disturbed the timings, the shares add up.
  CHECK(measure::shares_of(e).sum() == Approx(1));
  const Diagnosis d = measure::judge(e);
  CHECK(d.flops.rate == Approx(static_cast<double>(e.cost.flops) / e.step.median));
  CHECK(d.flops.share > 0);
  CHECK(d.regime.has_value() == d.problems.empty());
  CHECK(has_doubt(d, "default ceilings") == !e.cost.calibrated);
}

// By whatever ceilings there are: only shares. Other work would share the cores.
TEST_CASE("shares of steps whose regime is known, on the CPU", "[diagnose][timing]") {
  const auto shares = [](const std::function<void()>& step) {
    const Shares found = measure::shares_of(measure::gather(cpu, step, kQuick));
    CHECK(found.sum() == Approx(1));
    return found;
  };
  const Tensor tiny = rand({4}), product = rand({512, 512}), large = rand({1 << 22});
  CHECK(shares([&] {
          Tensor y = tiny;
          for (int i = 0; i < 40; ++i) y = y + 1.0;
        }).overhead() > 0.5);
  CHECK(shares([&] { matmul(product, product); }).compute > 0.5);
  CHECK(shares([&] { large + 1.0; }).bandwidth > 0.5);
}

TEST_CASE("a compiled step is diagnosed by its entry", "[diagnose][compile]") {
  const Tensor a = rand({32, 32});
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    auto step = compile([&] { return mean(square(matmul(a, a) * 2.0 + 1.0), 1); }, {.mode = mode});
    const Diagnosis d = measure::diagnose(cpu, step, kQuick);
    CHECK(d.bytes.rate > 0);
    const CompiledEntry entry = step.report().entries.front();
    CHECK(entry.mode == mode);
    const Evidence e = measure::gather(
        cpu, [&] { step(); }, kQuick);
    CHECK(e.mode == mode);
    CHECK(e.cost.kernels == entry.nodes);
    CHECK(e.cost.predicted.ps() == entry.predicted.ps() + e.cost.user_ps);
    CHECK(e.cost.predicted_at_timed_speed.ps() == entry.predicted.ps() + e.cost.user_ps);
    CHECK(e.cost.roofline.bound.ps() > 0);
    CHECK(e.cost.roofline.growing.ps() <= e.cost.predicted.ps());
    CHECK(measure::shares_of(e).sum() == Approx(1));
  }
}

TEST_CASE("a step of several compiled ones and of eager calls costs what its parts cost",
          "[diagnose][compile]") {
  const Tensor a = rand({32, 32});
  auto first = compile([&] { return matmul(a, a) * 2.0; });
  auto second = compile([&] { return relu(a) + 1.0; }, {.mode = Mode::fused});
  const auto step = [&] {
    first();
    second();
    tanh(a);
    second();
  };
  const Evidence e = measure::gather(cpu, step, kQuick);
  const measure::StepCost eager = measure::cost_of_step(cpu, [&] { tanh(a); });
  const CompiledEntry of_first = first.report().entries.front(),
                      of_second = second.report().entries.front();
  CHECK(e.mode == Mode::graph);
  REQUIRE(e.cost.replayed.size() == 3);
  CHECK(e.cost.kernels == of_first.nodes + 2 * of_second.nodes + 1);
  CHECK(e.cost.eager.kernels == 1);
  CHECK(e.cost.predicted.ps() > of_first.predicted.ps() + 2 * of_second.predicted.ps());
  CHECK(e.cost.on_device.ps() > of_first.by_ceilings.ps() + 2 * of_second.by_ceilings.ps());
  CHECK(e.cost.roofline.bound.ps() > eager.roofline.bound.ps());
  CHECK(measure::shares_of(e).sum() == Approx(1));
  // Calls of a step that runs eagerly are eager ones.
  auto refused = compile([](const Tensor& x) { return exp(x); },
                         {.most_entries = 1, .fallback = OnFallback::ignore});
  refused(a);
  const measure::StepCost fallen = measure::cost_of_step(cpu, [&] { refused(reshape(a, {1024})); });
  CHECK(fallen.replayed.empty());
  CHECK(fallen.eager.kernels == 1);
}

TEST_CASE("a compiled step in eager mode is diagnosed as any callable", "[diagnose][compile]") {
  const Tensor a = rand({32, 32});
  auto step = compile([&] { return relu(a); }, {.mode = Mode::eager});
  CHECK(measure::diagnose(cpu, step, kQuick).bytes.rate > 0);
}

TEST_CASE("diagnose refuses what it cannot measure", "[diagnose]") {
  CHECK_THROWS_WITH(measure::diagnose(cpu, std::function<void()>()),
                    "[diagnose] expected a step, got an empty function");
  measure::Timeline timeline;
  timeline.device = cuda(0);
  measure::DiagnoseOptions options = kQuick;
  options.timeline = &timeline;
  const Tensor a = rand({4});
  CHECK_THROWS_WITH(measure::diagnose(
                        cpu, [&] { relu(a); }, options),
                    "[diagnose] expected a timeline of cpu, got one of cuda:0");
}

TEST_CASE("a timeline without spans is incomplete evidence", "[diagnose]") {
  measure::Timeline timeline;
  timeline.device = cpu;
  Evidence e{.device = cpu};
  measure::add_timeline(timeline, e);
  CHECK(e.missing == std::vector<std::string>{"it has no spans of the device"});
  timeline.missing = {"no CUPTI"};
  measure::add_timeline(timeline, e);
  CHECK(e.missing == std::vector<std::string>{"no CUPTI"});
}

// The example of docs/measuring.md.
TEST_CASE("a training step of one's own is diagnosed", "[diagnose][compile]") {
  nn::MLP model({16, 16, 16});
  optim::Optimizer optimizer(model, optim::adam(1e-3));
  const Tensor x = rand({8, 16}), y = rand({8, 16});
  auto step = compile([&] {
    optimizer.zero_grad();
    backward(nn::mse_loss(model(x), y));
    optimizer.step();
  });
  const Diagnosis found = measure::diagnose(cpu, step, kQuick);
  CHECK(found.regime);  // however busy the machine is
  CHECK_THAT(measure::to_string(found), Catch::Contains("% overhead"));
  CHECK_FALSE(found.advice.empty());
}
