// Agreement of losses in `brrr compare`.
#include <limits>
#include <vector>

#include "cli/compare.h"
#include "cli/train.h"
#include "tests/harness/catch.h"

using brrr::measure::agreement_of;
using brrr::measure::first_difference;

TEST_CASE("losses agree when all their bits do", "[cli]") {
  const std::vector<double> losses = {1, 0.5, 0.25};
  CHECK_FALSE(first_difference(losses, losses));
  CHECK_FALSE(first_difference({}, {}));
  CHECK(first_difference(losses, std::vector<double>{1, 0.5, 0.25000000000000006}) == 2);
  CHECK(first_difference(losses, std::vector<double>{1, 0.5}) == 2);
  CHECK(first_difference(std::vector<double>{1}, losses) == 1);
  CHECK(first_difference(std::vector<double>{0.0}, std::vector<double>{-0.0}) == 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(first_difference(std::vector<double>{nan}, std::vector<double>{nan}));
}

TEST_CASE("losses of fused steps may differ by a bound where sums have another order", "[cli]") {
  const std::vector<double> eager = {4, 2, 1};
  const auto near = agreement_of(eager, std::vector<double>{4, 2.001, 1}, 1e-3);
  CHECK_FALSE(near.broken_at);
  CHECK(near.largest == Approx(0.001 / 4));
  CHECK_FALSE(near.is_of_bits());
  // The same losses are not the same bits, and a larger difference is one.
  CHECK(agreement_of(eager, std::vector<double>{4, 2.001, 1}, 0).broken_at == 1);
  CHECK(agreement_of(eager, std::vector<double>{4, 2, 1.005}, 1e-3).broken_at == 2);
  CHECK_FALSE(agreement_of(eager, eager, 0).broken_at);
  CHECK(agreement_of(eager, eager, 0).is_of_bits());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(agreement_of(eager, std::vector<double>{4, nan, 1}, 1e-3).broken_at == 1);
  CHECK(agreement_of(eager, std::vector<double>{4, 2}, 1e-3).broken_at == 2);
  CHECK_FALSE(agreement_of({}, {}, 1e-3).broken_at);
}

TEST_CASE("steps are timed for as long as --time says", "[cli]") {
  for (const double seconds : {0.001, 0.5, 2.0, 3600.0}) {
    brrr::cli::TrainOptions o;
    o.time_seconds = seconds;
    const brrr::measure::Sampling sampling = sampling_of(o);
    CHECK(sampling.budget_seconds == seconds);
    CHECK(sampling.samples * sampling.sample_seconds >= 0.99 * seconds);
  }
}

TEST_CASE("only fused steps on CUDA have a bound", "[cli]") {
  using namespace brrr;
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    for (const Device device : {cpu, cuda()}) {
      CHECK((measure::loss_bound(device, f32, mode, Rounding::eager) > 0) ==
            (mode == Mode::fused && device.is_cuda()));
    }
  }
}
