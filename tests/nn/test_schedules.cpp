// Schedules against their formulas, and the counters that drive them.
#include <cmath>
#include <functional>
#include <numbers>

#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::optim;
using interchange::error_of;

namespace {

void check(const Schedule& schedule, const std::function<double(double)>& expected) {
  for (int step = 0; step < 40; ++step) {
    const Tensor value = schedule(full({}, static_cast<float>(step)));
    CHECK(value.rank() == 0);
    CHECK(item(value) == Approx(expected(step)).epsilon(1e-6).margin(1e-7));
  }
}

double cosine(double step, double init, double steps, double alpha) {
  const double part = 0.5 * (1 + std::cos(std::numbers::pi * std::min(step, steps) / steps));
  return init * ((1 - alpha) * part + alpha);
}

double line(double step, double from, double to, double steps) {
  return from + (to - from) * std::min(1.0, std::max(0.0, step / steps));
}

}  // namespace

TEST_CASE("schedules have optax's values", "[optim]") {
  check(constant_schedule(-0.25), [](double) { return -0.25; });
  check(linear_schedule(1, 0.1, 10), [](double t) { return line(t, 1, 0.1, 10); });
  check(linear_schedule(-1, 1e-5, 10, 5), [](double t) { return line(t - 5, -1, 1e-5, 10); });
  check(cosine_decay_schedule(0.3, 20, 0.1), [](double t) { return cosine(t, 0.3, 20, 0.1); });
  check(warmup_cosine_decay_schedule(0.1, 1, 8, 30, 0.05),
        [](double t) { return t < 8 ? line(t, 0.1, 1, 8) : cosine(t - 8, 1, 22, 0.05); });
  check(piecewise_constant_schedule(2, {{5, 0.5}, {12, 0.1}}), [](double t) {
    return t < 5 ? 2 : t < 12 ? 1 : 0.1;
  });
  check(piecewise_linear_schedule(2, {{5, 0.5}, {12, 0.1}}),
        [](double t) { return t < 5 ? line(t, 2, 1, 5) : line(t - 5, 1, 0.1, 7); });
  check(join_schedules(
            {constant_schedule(3), linear_schedule(0, 1, 4), cosine_decay_schedule(1, 6)}, {7, 20}),
        [](double t) {
          return t < 7 ? 3 : t < 20 ? line(t - 7, 0, 1, 4) : cosine(t - 20, 1, 6, 0);
        });
  // A schedule of schedules counts from its own beginning.
  check(join_schedules({constant_schedule(1), piecewise_constant_schedule(2, {{3, 2}})}, {10}),
        [](double t) { return t < 10   ? 1
                              : t < 13 ? 2
                                       : 4; });
  const auto slower = [](double t) { return 0.5 / std::sqrt(t + 1); };
  check(Schedule("0.5 / sqrt(a + 1)"), slower);
  const Schedule function([](const Tensor& count) { return 0.5 * rsqrt(count + 1); });
  check(function, slower);
  check(join_schedules({constant_schedule(2), function, Schedule("a * 0.25")}, {4, 9}),
        [&](double t) { return t < 4   ? 2
                               : t < 9 ? slower(t - 4)
                                       : (t - 9) / 4; });
}

TEST_CASE("a schedule starts at 0 steps done and counts on the device", "[optim]") {
  const Schedule schedule = piecewise_constant_schedule(1, {{1, 2}, {2, 2}});
  std::vector<Tensor> params = {zeros({2})};
  for (const Transformation& t :
       {scale_by_schedule(schedule), chain(scale(-1), scale_by_learning_rate(schedule)),
        inject_hyperparams({{"factor", schedule}},
                           [](const auto& h) { return scale(h["factor"]); })}) {
    State state = t.init(params);
    for (float expected : {1, 2, 4, 4}) {
      CHECK(to_vector<float>(t.update({ones({2})}, state, params)[0]) ==
            std::vector<float>{expected, expected});
    }
  }
}

TEST_CASE("schedules refuse invalid arguments", "[optim]") {
  CHECK(error_of([] { linear_schedule(0, 1, 0); }) ==
        "[linear_schedule] expected steps of at least 1, got 0");
  CHECK(error_of([] { linear_schedule(0, 1, 5, -1); }) ==
        "[linear_schedule] expected begin of at least 0, got -1");
  CHECK(error_of([] { constant_schedule(NAN); }) ==
        "[constant_schedule] expected finite values, got nan");
  CHECK(error_of([] { warmup_cosine_decay_schedule(0, 1, 10, 10); }) ==
        "[warmup_cosine_decay_schedule] expected steps of at least 11, got 10");
  CHECK(
      error_of([] {
        piecewise_linear_schedule(1, {{5, 2}, {5, 2}});
      }) ==
      "[piecewise_linear_schedule] expected positive boundaries in ascending order, got 5 after 5");
  CHECK(error_of([] { join_schedules({constant_schedule(1)}, {3}); }) ==
        "[join_schedules] expected one schedule more than boundaries, got 1 and 1");
  CHECK(error_of([] { Schedule("1 +"); }) ==
        "[Schedule] expected an operand at character 4 of \"1 +\"");
  CHECK(error_of([] { Schedule("0.1 * step"); }) ==
        "[Schedule] expected an operand or a known function instead of \"step\" at character 7 "
        "of \"0.1 * step\"");
}

TEST_CASE("a schedule of many boundaries", "[optim]") {
  Factors factors;
  for (int i = 1; i <= 120; ++i) factors.emplace_back(i, 1 + 1.0 / i);
  const Schedule schedule = piecewise_constant_schedule(0.5, factors);
  double rate = 0.5;
  for (int step = 0; step <= 120; step += 40) {
    rate = 0.5;
    for (const auto& [boundary, factor] : factors) rate *= boundary <= step ? factor : 1;
    CHECK(item(schedule(full({}, step))) == Approx(rate));
  }
}
