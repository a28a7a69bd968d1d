// Batch doubling as a check of a verdict, on prepared costs.
#include "brrr/measure/batch_doubling.h"

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
  CHECK(
      d.text.starts_with("twice the batch takes 1.04 times as long, as the verdict expects (1.08"));
}

TEST_CASE("a doubled time agrees with compute, and with bandwidth of activations", "[diagnose]") {
  CHECK(judged(kCompute, layer(8192, 1024), layer(16384, 1024), 1000, 1930).judgement ==
        Doubling::agrees);
  CHECK(judged(kBandwidth, cost(5, 1000, 100), cost(5, 2000, 200), 1000, 1950).judgement ==
        Doubling::agrees);
}

TEST_CASE("a doubled time disagrees with overhead", "[diagnose]") {
  const BatchDoubling d = judged(kOverhead, layer(512, 128), layer(1024, 128), 100, 190);
  CHECK(d.judgement == Doubling::disagrees);
  CHECK(d.text ==
        "twice the batch takes 1.90 times as long, where the verdict expects 1.08: that is "
        "bandwidth or compute (overhead alone expects 1.00, bandwidth 1.67, compute 2.00)");
}

TEST_CASE("a flat time disagrees with compute, and with bandwidth of activations", "[diagnose]") {
  const BatchDoubling d = judged(kCompute, layer(8192, 1024), layer(16384, 1024), 1000, 1050);
  CHECK(d.judgement == Doubling::disagrees);
  CHECK(d.text.find("that is overhead (") != std::string::npos);
  CHECK(judged(kBandwidth, cost(5, 1000, 100), cost(5, 2000, 200), 1000, 1100).judgement ==
        Doubling::disagrees);
}

TEST_CASE("below the width a flat time does not tell overhead from bandwidth", "[diagnose]") {
  // The third footnote: at batch 1 of width 128 nearly all bytes are weights.
  for (const Diagnosis& d : {kOverhead, kBandwidth}) {
    const BatchDoubling found = judged(d, layer(1, 128), layer(2, 128), 50, 51);
    CHECK(found.expected[1] < 1.01);
    CHECK(found.expected[2] == 2);
    CHECK(found.judgement == Doubling::undecided);
    CHECK(found.text ==
          "twice the batch takes 1.02 times as long, as the verdict expects; but the bytes grow "
          "only 1.00 times, most being weights: this does not tell overhead from bandwidth");
  }
  // But it speaks against compute, and a doubled time against all that is flat.
  CHECK(judged(kCompute, layer(1, 128), layer(2, 128), 50, 51).judgement == Doubling::disagrees);
  CHECK(judged(kBandwidth, layer(1, 128), layer(2, 128), 50, 98).judgement == Doubling::disagrees);
  CHECK(judged(kCompute, layer(1, 128), layer(2, 128), 50, 95).judgement == Doubling::agrees);
}

TEST_CASE("a time that grows beyond all work is explained by no regime", "[diagnose]") {
  const BatchDoubling d = judged(kBandwidth, cost(5, 1000, 100), cost(5, 2000, 200), 100, 400);
  CHECK(d.judgement == Doubling::disagrees);
  CHECK(d.text.find("a working set that left a cache") != std::string::npos);
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
  CHECK(
      none.text.starts_with("twice the batch takes 1.04 times as long, which looks like overhead"));
  const BatchDoubling any = judged({}, cost(5, 1000, 100), cost(5, 1010, 120), 100, 110);
  CHECK(any.text.find("looks like any regime") != std::string::npos);
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
