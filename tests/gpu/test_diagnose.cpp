// Regimes of steps whose regime is known, on a GPU. Shares are checked by whatever ceilings there
// are; a verdict needs calibrated ones and undisturbed timings. [timing]: ctest runs nothing else
// on the card meanwhile.
#include "brrr/measure/batch_doubling.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::Evidence;
using measure::Regime;

namespace {

measure::Shares shares_of(const std::function<void()>& step) {
  const Evidence e = measure::gather(testing::kGpu, step);
  const measure::Diagnosis d = measure::judge(e);
  INFO(measure::to_string(d));
  CHECK(e.host);
  REQUIRE(e.queued);
  const measure::Shares shares = measure::shares_of(e);
  CHECK(shares.sum() == Approx(1));
  CHECK(d.regime.has_value() == d.problems.empty());
  if (d.regime) CHECK(*d.regime == shares.largest());
  return shares;
}

}  // namespace

TEST_CASE("regimes of steps that have one on a GPU", "[diagnose][timing]") {
  const Options here{.device = testing::kGpu}, half{.dtype = bf16, .device = testing::kGpu};
  SECTION("tiny ops are bound by the host") {
    const Tensor x = rand({16}, here);
    const measure::Shares shares = shares_of([&] {
      Tensor y = x;
      for (int i = 0; i < 40; ++i) y = y + 1.0;
    });
    CHECK(shares.largest() == Regime::overhead);
    CHECK(shares.bandwidth + shares.compute < 0.2);
  }
  SECTION("large sums are bound by bandwidth") {
    const Tensor x = rand({1 << 27}, here);
    const measure::Shares shares = shares_of([&] { x + 1.0; });
    CHECK(shares.largest() == Regime::bandwidth);
    CHECK(shares.bandwidth > 0.8);
  }
  SECTION("large products are bound by compute") {
    const Tensor a = rand({8192, 8192}, half);
    const measure::Shares shares = shares_of([&] { matmul(a, a); });
    CHECK(shares.largest() == Regime::compute);
    CHECK(shares.compute > 0.8);
  }
}

TEST_CASE("a replayed step of tiny kernels waits less for the host than an eager one",
          "[diagnose][timing]") {
  const Tensor x = rand({16}, {.device = testing::kGpu});
  const auto chain = [&] {
    Tensor y = x;
    for (int i = 0; i < 40; ++i) y = sin(y);
    return y;
  };
  auto step = compile(chain);
  for (int i = 0; i < 2; ++i) step();
  const Evidence eager = measure::gather(testing::kGpu, [&] { chain(); }),
                 replayed = measure::gather(testing::kGpu, [&] { step(); });
  CHECK(replayed.further_problems.empty());
  CHECK(measure::shares_of(replayed).idle < measure::shares_of(eager).idle);
  CHECK(measure::shares_of(replayed).largest() == Regime::overhead);
}
