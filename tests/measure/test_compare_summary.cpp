// The lines of brrr compare.
#include "brrr/measure/diagnose.h"
#include "tests/harness/catch.h"

using namespace brrr;

TEST_CASE("percentages of shares add up", "[compare][diagnose]") {
  const auto of = [](double overhead, double bandwidth, double compute) {
    measure::Shares shares{.idle = overhead};
    shares.bandwidth = bandwidth;
    shares.compute = compute;
    return measure::percentages_of(shares);
  };
  CHECK(of(0.084, 0.264, 0.652) == measure::Percentages{8, 27, 65, 0, 0});
  CHECK(of(1 / 3.0, 1 / 3.0, 1 / 3.0) == measure::Percentages{34, 33, 33, 0, 0});
  CHECK(of(0.5, 0.5, 0) == measure::Percentages{50, 50, 0, 0, 0});
  CHECK(of(1, 0, 0) == measure::Percentages{100, 0, 0, 0, 0});
}
