// What explain() says of numbers that replays repeat.
#include <string>

#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "tests/catch.h"

using namespace brrr;

TEST_CASE("a number that a loop repeats is listed once, with how often", "[compile]") {
  int rounds = 6;
  auto step = compile([&](const Tensor& x) {
    Tensor y = x + 3.0;
    for (int i = 0; i < rounds; ++i) y = y * 0.5;
    return y;
  });
  step(ones({4}));
  const std::string text = step.explain();
  const std::size_t half = text.find("operand 1 of mul is 0.5 (at ");
  REQUIRE(half != std::string::npos);
  CHECK(text.find("operand 1 of mul", half + 1) == std::string::npos);
  CHECK(text.substr(half, text.find('\n', half) - half).ends_with("), 6 times"));
  const std::size_t three = text.find("operand 1 of add is 3 (at ");
  REQUIRE(three != std::string::npos);
  CHECK(text.substr(three, text.find('\n', three) - three).ends_with(")"));
}
