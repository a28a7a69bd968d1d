// Checks of values of options, and guesses of what was meant.
#include "brrr/measure/checks.h"

#include <limits>

#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::measure;

TEST_CASE("a mistyped name is guessed, another one is not", "[checks]") {
  const std::vector<std::string> names = {"compare", "explain", "trace", "profile"};
  CHECK(did_you_mean(names, "comapre") == "; did you mean compare?");
  CHECK(did_you_mean(names, "compar") == "; did you mean compare?");
  CHECK(did_you_mean(names, "tarce") == "; did you mean trace?");
  CHECK(did_you_mean(names, "explains") == "; did you mean explain?");
  CHECK(did_you_mean(names, "Profile") == "; did you mean profile?");
  for (const char* other : {"", "x", "benchmark", "com", "bench"})
    CHECK(did_you_mean(names, other).empty());
  CHECK(expected_one_of({"a", "b"}, "c") == "expected one of a, b, got c");
  std::vector<std::string> many(12, "other");
  many.emplace_back("growth");
  CHECK(expected_one_of(many, "grwth") ==
        "expected one of other, other, other, other, ..., got grwth; did you mean growth?");
  CHECK_THAT(expected_one_of(many, "else"), Catch::Contains("other, growth, got else"));
  // A letter away, and not what is meant.
  CHECK_THAT(device_name().complaint("gpu"), Catch::EndsWith("did you mean cuda?"));
  CHECK_THAT(device_name().complaint("cud"), Catch::EndsWith("did you mean cuda?"));
  CHECK(device_name().complaint("cpu").empty());
}

TEST_CASE("values of options are checked", "[checks]") {
  const auto takes = [](const Check& check, const char* text) {
    return check.complaint(text).empty();
  };
  CHECK(takes(whole_number(1, 8), "8"));
  CHECK_FALSE(takes(whole_number(1, 8), "9"));
  CHECK_FALSE(takes(whole_number(1, 8), "2.5"));
  CHECK_FALSE(takes(whole_number(1, 8), "2x"));
  CHECK(whole_number(1, 8).complaint("0") == "expected a whole number from 1 to 8, got 0");
  CHECK_FALSE(takes(number_above(0), "0"));
  CHECK_FALSE(takes(number_above(0), "inf"));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CHECK(takes(number_from(-kInfinity, kInfinity), "-2.5"));
  CHECK(number_from(-kInfinity, kInfinity).complaint("nan") == "expected a finite number, got nan");
  CHECK(number_from(0, kInfinity).complaint("-1") ==
        "expected a finite number of at least 0, got -1");
  CHECK(takes(remat_policy(), "budget=0.5"));
  CHECK_FALSE(takes(remat_policy(), "all"));
  CHECK(takes(remat_policy({"all"}), "all"));
  CHECK_FALSE(takes(remat_policy(), "budget=0"));
  CHECK_FALSE(takes(remat_policy(), "budget=F"));
  CHECK(remat_of("budget=0.25").kind() == Remat::budget(0.25).kind());
  CHECK(remat_of("full").kind() == Remat::Kind::full);
  CHECK(one_of({"on", "off"}).choices == std::vector<std::string>{"on", "off"});
}
