// Batch doubling as a check of a verdict, on prepared costs.
#include "brrr/measure/batch_doubling.h"

#include <fmt/format.h>

#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::BatchDoubling;
using measure::Diagnosis;
using measure::Doubling;
using measure::Regime;
using measure::Shares;
using measure::StepCost;

namespace {

measure::Timing timing(double us, double spread = 0.01) {
  return {.median = us * 1e-6, .spread = spread, .samples = 21};
}

Diagnosis bound_by(Regime regime, const Shares& shares) {
  Diagnosis d;
  d.regime = regime;
  d.shares = shares;
  return d;
}
const Diagnosis kOverhead =
                    bound_by(Regime::overhead, {.idle = 0.9, .bandwidth = 0.06, .compute = 0.04}),
                kBandwidth =
                    bound_by(Regime::bandwidth, {.idle = 0.05, .bandwidth = 0.85, .compute = 0.1}),
                kCompute =
                    bound_by(Regime::compute, {.idle = 0.02, .bandwidth = 0.13, .compute = 0.85});

StepCost cost(std::int64_t kernels, std::int64_t bytes, std::int64_t flops) {
  StepCost c;
  c.kernels = kernels;
  c.bytes = bytes;
  c.flops = flops;
  return c;
}
// A layer b x d by d x d, forward, and Adam: at b = d twice the batch moves half more bytes, at b
// far below d hardly more.
StepCost layer(std::int64_t b, std::int64_t d) {
  return cost(10, 4 * (4 * b * d + 8 * d * d), 6 * b * d * d);
}
BatchDoubling judged(const Diagnosis& d, const StepCost& once, const StepCost& twice, double us,
                     double us_twice) {
  return measure::judge_doubling(d, once, twice, timing(us), timing(us_twice));
}

}  // namespace

TEST_CASE("a flat time agrees with overhead where bytes would have grown", "[diagnose]") {
  const BatchDoubling d = judged(kOverhead, layer(512, 128), layer(1024, 128), 100, 104);
  CHECK(d.judgement == Doubling::agrees);
  CHECK(d.ratio == Approx(1.04));
  CHECK(d.expected[0] == 1);
  CHECK(d.expected[1] == Approx(1 + 2.0 / 3));
  CHECK(d.expected[2] == 2);
  CHECK(*d.expected_here == Approx(0.9 + 0.06 * 5 / 3 + 0.08));
  CHECK(d.fits == std::vector{Regime::overhead});
  CHECK(d.text ==
        "twice the batch takes 1.04 times as long, which fits overhead (overhead alone expects "
        "1.00, bandwidth 1.67, compute 2.00, the verdict's shares 1.08)");
}

TEST_CASE("a doubled time agrees with compute where bytes grow less", "[diagnose]") {
  CHECK(judged(kCompute, layer(256, 128), layer(512, 128), 1000, 1990).judgement ==
        Doubling::agrees);
  CHECK(judged(kBandwidth, layer(256, 128), layer(512, 128), 1000, 1500).judgement ==
        Doubling::agrees);
}

TEST_CASE("a ratio that several regimes expect decides nothing", "[diagnose]") {
  // Of activations, bytes and FLOPs both double.
  for (const Diagnosis& d : {kCompute, kBandwidth}) {
    const BatchDoubling found = judged(d, cost(5, 1000, 100), cost(5, 2000, 200), 1000, 1950);
    CHECK(found.judgement == Doubling::undecided);
    CHECK(measure::judgement_text(found) == "undecided between bandwidth and compute");
    CHECK(found.text.find("which fits bandwidth or compute (") != std::string::npos);
  }
  // Expectations of 1.67 and 2 are apart, but 1.85 is near both.
  const BatchDoubling between = judged(kCompute, layer(512, 128), layer(1024, 128), 100, 185);
  CHECK(between.judgement == Doubling::undecided);
  // Nearer to one than to the other, but not by more than the samples spread.
  CHECK(judged(kCompute, layer(512, 128), layer(1024, 128), 100, 198).judgement ==
        Doubling::agrees);
  CHECK(measure::judge_doubling(kCompute, layer(512, 128), layer(1024, 128), timing(100, 0.1),
                                timing(198, 0.1))
            .judgement == Doubling::undecided);
}

TEST_CASE("a mixture that looks like a regime of its own does not disagree", "[diagnose]") {
  // Of an MLP on an H200: the shares expect 1.60, as bandwidth alone would.
  const Diagnosis mixed =
      bound_by(Regime::compute, {.idle = 0.38, .bandwidth = 0.23, .compute = 0.39});
  const BatchDoubling d = judged(mixed, cost(100, 100, 100), cost(114, 168, 200), 764, 764 * 1.57);
  CHECK(d.fits == std::vector{Regime::bandwidth});
  CHECK(d.judgement == Doubling::undecided);
  CHECK(d.text.find("which fits bandwidth or the verdict's shares (") != std::string::npos);
}

TEST_CASE("a doubled time disagrees with overhead", "[diagnose]") {
  const BatchDoubling d = judged(kOverhead, layer(512, 128), layer(1024, 128), 100, 190);
  CHECK(d.judgement == Doubling::disagrees);
  CHECK(measure::judgement_text(d) == "disagrees");
  CHECK(d.text ==
        "twice the batch takes 1.90 times as long, which fits bandwidth or compute (overhead "
        "alone expects 1.00, bandwidth 1.67, compute 2.00, the verdict's shares 1.08), at 530 "
        "GFLOP/s in place of 503");
}

TEST_CASE("a flat time disagrees with compute, and with bandwidth of activations", "[diagnose]") {
  const BatchDoubling d = judged(kCompute, layer(8192, 1024), layer(16384, 1024), 1000, 1050);
  CHECK(d.judgement == Doubling::disagrees);
  CHECK(d.text.find("which fits overhead (") != std::string::npos);
  CHECK(judged(kBandwidth, cost(5, 1000, 100), cost(5, 2000, 200), 1000, 1100).judgement ==
        Doubling::disagrees);
}

TEST_CASE("a disagreement qualifies the verdict", "[diagnose]") {
  Diagnosis d = kOverhead;
  measure::qualify(d, judged(d, layer(512, 128), layer(1024, 128), 100, 104));
  CHECK(d.caveats.empty());
  measure::qualify(d, judged(d, layer(512, 128), layer(1024, 128), 100, 190));
  CHECK(measure::regime_text(d) ==
        "overhead-bound (90 %; twice the batch disagrees, at 530 GFLOP/s in place of 503)");
  CHECK(measure::to_string(d).ends_with(
      "; twice the batch disagrees, at 530 GFLOP/s in place of 503"));
}

TEST_CASE("below the width a flat time does not tell overhead from bandwidth", "[diagnose]") {
  // The third footnote: at batch 1 of width 128 nearly all bytes are weights.
  for (const Diagnosis& d : {kOverhead, kBandwidth}) {
    const BatchDoubling found = judged(d, layer(1, 128), layer(2, 128), 50, 51);
    CHECK(found.expected[1] < 1.01);
    CHECK(found.expected[2] == 2);
    CHECK(found.judgement == Doubling::undecided);
    CHECK(
        found.text ==
        fmt::format("twice the batch takes 1.02 times as long, which fits overhead or "
                    "bandwidth (overhead alone expects 1.00, bandwidth 1.00, compute 2.00, the "
                    "verdict's shares {:.2f}); the bytes grow only 1.00 times, most being weights",
                    *found.expected_here));
  }
  // But it speaks against compute, and a doubled time against all that is flat.
  CHECK(judged(kCompute, layer(1, 128), layer(2, 128), 50, 51).judgement == Doubling::disagrees);
  CHECK(judged(kBandwidth, layer(1, 128), layer(2, 128), 50, 98).judgement == Doubling::disagrees);
  CHECK(judged(kCompute, layer(1, 128), layer(2, 128), 50, 95).judgement == Doubling::agrees);
}

TEST_CASE("a time that grows beyond all work is explained by no regime", "[diagnose]") {
  const BatchDoubling d = judged(kBandwidth, cost(5, 1000, 100), cost(5, 2000, 200), 100, 400);
  CHECK(d.judgement == Doubling::undecided);
  CHECK(measure::judgement_text(d) == "undecided");
  CHECK(d.text.find("no regime alone: a mixture, or a working set that left a cache") !=
        std::string::npos);
}

TEST_CASE("doubling is undecided where timings are disturbed or there is no verdict",
          "[diagnose]") {
  const BatchDoubling disturbed = measure::judge_doubling(
      kOverhead, layer(512, 128), layer(1024, 128), timing(100), timing(104, 0.2));
  CHECK(disturbed.judgement == Doubling::undecided);
  CHECK(disturbed.text == "samples spread by 20 %");
  const BatchDoubling none = judged({}, layer(512, 128), layer(1024, 128), 100, 104);
  CHECK(none.judgement == Doubling::undecided);
  CHECK_FALSE(none.expected_here);
  CHECK_THAT(none.text, Catch::StartsWith("twice the batch takes 1.04 times as long, which fits "
                                          "overhead (overhead"));
  const BatchDoubling any = judged({}, cost(5, 1000, 100), cost(5, 1010, 120), 100, 110);
  CHECK(any.text.find("which fits overhead or bandwidth or compute") != std::string::npos);
  CHECK_THROWS_WITH(measure::judge_doubling({}, {}, {}, timing(0), timing(1)),
                    "[judge_doubling] expected times of two steps, got 0 and 1e-06 s");
}

TEST_CASE("two steps are timed and judged", "[diagnose]") {
  const Tensor w = rand({64, 64}), x = rand({32, 64}), y = rand({64, 64});
  const auto once = [&] { matmul(x, w); };
  const auto twice = [&] { matmul(y, w); };
  const BatchDoubling d = measure::double_batch(
      cpu, {}, once, measure::cost_of_step(cpu, once), twice, measure::cost_of_step(cpu, twice),
      {.samples = 5, .sample_seconds = 2e-4, .budget_seconds = 0.01});
  CHECK(d.ratio > 0);
  CHECK(d.expected == std::array<double, 3>{1, 1.5, 2});
}
