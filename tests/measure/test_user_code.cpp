// The part of a step that is the user's own code.
#include "brrr/measure/compare.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/thread_sampler.h"
#include "brrr/tensor/sanitizers.h"
#include "tests/harness/catch.h"
#include "tests/harness/evidence.h"
#include "tests/harness/own_code.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::testing;
using Catch::Contains;
using measure::Regime;
using own_code::prepare_batch;
using own_code::wait_for_batch;

#if !BRRR_TSAN  // which calls handlers of signals later

TEST_CASE("a step's own code is found, working and waiting", "[diagnose]") {
  const Tensor a = rand({4});
  const auto call = [&] {
    prepare_batch();
    (void)(a + 1.0);
    wait_for_batch();
  };
  const measure::UserCode code = measure::user_code_in(call, 0.3);
  REQUIRE(code.problem.empty());
  CHECK(code.share > 0.95);
  REQUIRE(code.lines.size() >= 2);
  CHECK(code.lines[0].waits);
  CHECK_THAT(code.lines[0].place, Contains("wait_for_batch"));
  CHECK(code.lines[0].share > 0.5);
  CHECK_FALSE(code.lines[1].waits);
  CHECK_THAT(code.lines[1].place, Contains("prepare_batch"));
}

TEST_CASE("calls of brrr are no code of the step's own", "[diagnose]") {
  const Tensor a = rand({64, 64});
  auto replayed = compile([&] { return matmul(a, a) + 1.0; });
  const measure::UserCode code = measure::user_code_in(
      [&] {
        for (int i = 0; i < 100; ++i) (void)(matmul(replayed(), a) + 1.0);
      },
      0.2);
  REQUIRE(code.problem.empty());
  CHECK(code.share < 0.2);
}

TEST_CASE("a step that prepares its data is bound by its own code in every mode",
          "[compare][diagnose]") {
  const auto make = [](Mode mode, Remat) -> measure::Step {
    const Tensor w = rand({16, 16});
    const auto step = std::make_shared<Compiled<std::function<Tensor()>>>(
        compile(std::function<Tensor()>([w] { return mean(matmul(w, w)); }), {.mode = mode}));
    return [step] {
      prepare_batch();
      return (*step)();
    };
  };
  const measure::Comparison found =
      measure::compare("loader", make, {.steps = 4, .seconds = 0.05, .tries = false});
  for (const measure::Side& side : found.sides) {
    INFO(side.name);
    REQUIRE(side.diagnosis.regime == Regime::user);
    CHECK(side.diagnosis.shares->user > 0.9);
    CHECK(side.diagnosis.shares->sum() == Approx(1));
    CHECK_THAT(side.diagnosis.advice, Contains("prepare_batch"));
    // Predictions have what was measured of it.
    CHECK(side.cost->predicted.seconds() == Approx(side.step->median).epsilon(0.3));
  }
  CHECK_THAT(measure::to_text(found), Contains("eager is bound by your own code: ") &&
                                          Contains("uuuuuuuuuu") && Contains("prepare_batch") &&
                                          Contains("your own code, since nothing tried helps"));
  CHECK_THAT(measure::to_json(found, {}), Contains("\"regime\": \"user\"") &&
                                              Contains("\"place\": ") && Contains("prepare_batch"));
}

#endif

TEST_CASE("verdict: own code counts while the device has nothing to do", "[diagnose]") {
  measure::Evidence e = cuda_step(Mode::graph, 100, 30, time_of(5, 0.2, 25), time_of(0, 0.2, 24));
  e.user = {.share = 0.6,
            .lines = {{.place = "train.cpp:31 in load", .share = 0.6, .samples = 60}}};
  const measure::Diagnosis d = checked(e);
  CHECK(d.regime == Regime::user);
  CHECK(d.shares->user == Approx(0.6));
  CHECK(d.shares->idle == Approx(0.1));
  CHECK(d.advice ==
        "look at train.cpp:31 in load: the step's own code takes 60 % of it, so at most 2.5 times "
        "as fast without");
  CHECK(measure::regime_text(d) == "bound by your own code (60 %)");
  CHECK(d.code.size() == 1);
  // Behind the device's work it costs nothing.
  e.queued = timing(95);
  CHECK(checked(e).shares->user == Approx(0.05));
  CHECK(checked(e).regime != Regime::user);
  e.user = {.problem = "SIGPROF is in use"};
  CHECK(checked(e).shares->user == 0);
  CHECK(checked(e).not_checked.back() == "the step's own code: SIGPROF is in use");
}
