// The advice that comes with a verdict.
#include "brrr/measure/diagnose.h"
#include "tests/harness/catch.h"
#include "tests/harness/evidence.h"

using namespace brrr;
using namespace brrr::testing;
using measure::Diagnosis;
using measure::Evidence;
using measure::Regime;

TEST_CASE("advice names a mode only where its prediction is shorter by itself", "[diagnose]") {
  // Both predictions are too short by a third: the other mode gains nothing.
  Evidence e = cuda_step(Mode::eager, 1000, 980, kMedium, kMediumGrowing);
  e.alternatives = {{"graph", time_of(34, 156, 474)}};
  CHECK(checked(e).advice.starts_with("use tensor cores"));
  // Predicted to be longer than what was measured: no gain either.
  e.cost.predicted_at_timed_speed = time_of(3000, 157, 475);
  e.alternatives = {{"graph", time_of(1000, 156, 474)}};
  CHECK(checked(e).advice.starts_with("use tensor cores"));
}

TEST_CASE("advice on compute and bandwidth follows the type of the products", "[diagnose]") {
  Evidence e = cuda_step(Mode::fused, 692, 680, kMedium, kMediumGrowing);
  const auto advice_for = [&](graph::ProductType type) {
    e.cost.product_flops = {};
    e.cost.product_flops[static_cast<std::size_t>(type)] = 1000;
    return checked(e).advice;
  };
  CHECK(advice_for(graph::ProductType::f32).starts_with("use tensor cores (TF32, bf16), or do"));
  CHECK(advice_for(graph::ProductType::tf32).starts_with("compute products in bf16, or do"));
  CHECK(advice_for(graph::ProductType::bf16).starts_with("do fewer FLOPs: arithmetic takes"));
  e = cuda_step(Mode::fused, 2000, 1990, time_of(3, 1900, 0), time_of(0, 1890, 0));
  CHECK(advice_for(graph::ProductType::f32).starts_with("move fewer bytes (bf16, remat"));
  CHECK(advice_for(graph::ProductType::bf16).starts_with("move fewer bytes (rematerialization):"));
}

TEST_CASE("advice on overhead gives a part of the overhead as its reason", "[diagnose]") {
  // Of 1000 us 46 % are overhead in three parts, 44 % compute.
  Evidence e = cuda_step(Mode::fused, 1000, 800, time_of(150, 110, 550), time_of(0, 100, 440));
  const Diagnosis d = checked(e);
  REQUIRE(d.regime == Regime::overhead);
  REQUIRE(d.shares->compute > d.shares->idle);
  CHECK(d.advice.starts_with("raise the batch: the device waits for the host 20 % of the step"));
}

TEST_CASE("a stale file of ceilings is named with the problem", "[diagnose]") {
  Evidence e = cuda_step(Mode::graph, 692, 680, kMedium, kMediumGrowing);
  e.cost.calibrated = false;
  e.cost.why_defaults = "/c.json is damaged";
  CHECK(only_doubt(e) ==
        "default ceilings (/c.json is damaged): brrr calibrate measures this machine's");
}

TEST_CASE("advice names no mode that was measured and is no faster", "[diagnose]") {
  Evidence e = cuda_step(Mode::eager, 92.8, 27, time_of(20, 0.2, 8.4), time_of(0, 0.2, 0.3));
  e.ruled_out = {Mode::graph};
  CHECK(checked(e).advice.starts_with("fuse the step (Mode::fused)"));
  e.ruled_out = {Mode::graph, Mode::fused};
  CHECK(checked(e).advice.starts_with("raise the batch"));
  e = cuda_step(Mode::eager, 2000, 1990, time_of(3, 1900, 0), time_of(0, 1890, 0));
  e.ruled_out = {Mode::fused};
  CHECK(checked(e).advice.starts_with("move fewer bytes"));
}
