// Agreement of losses in `brrr compare`.
#include <limits>
#include <vector>

#include "cli/compare.h"
#include "tests/harness/catch.h"

using brrr::cli::first_difference;

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
