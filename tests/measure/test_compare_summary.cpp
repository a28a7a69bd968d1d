// The lines of brrr compare: what they are of a comparison in each regime, and that they fit.
#include <set>
#include <sstream>

#include "brrr/measure/compare_text.h"
#include "brrr/measure/text.h"
#include "tests/harness/catch.h"
#include "tests/harness/comparisons.h"
#include "tests/harness/golden_file.h"

using namespace brrr;
using Catch::Contains;

TEST_CASE("the lines of a comparison are those of their file, in each regime",
          "[compare][golden_summaries]") {
  std::set<std::string> files;
  for (const auto& [name, comparison] : testing::prepared_comparisons()) {
    testing::check_golden("summaries/" + name, measure::to_text(comparison), "golden_summaries");
    files.insert(name + ".txt");
  }
  CHECK(testing::golden_files_in("summaries") == files);
}

TEST_CASE("the lines of a comparison are at most eleven of 80 columns", "[compare]") {
  for (const auto& [name, comparison] : testing::prepared_comparisons()) {
    INFO(name);
    const std::string text = measure::to_text(comparison);
    CHECK(text.ends_with('\n'));
    std::istringstream lines(text);
    std::string line;
    int count = 0;  // the program adds one, of its other commands
    for (; std::getline(lines, line); ++count) {
      INFO(line);
      CHECK(measure::columns_in(line) <= 80);
      CHECK(line.find_last_not_of(' ') + 1 == line.size());
    }
    CHECK(count <= 11);
    CHECK_THAT(text, !Contains("nan") && !Contains("inf"));
  }
}

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

TEST_CASE("a text is cut between characters, a sentence between clauses", "[compare]") {
  CHECK(measure::columns_in("34 µs") == 5);
  CHECK(measure::clipped("34 µs", 5) == "34 µs");
  CHECK(measure::clipped("größer", 5) == "gr...");
  CHECK(measure::clipped("größer als", 6) == "grö...");
  CHECK(measure::shortened("ceilings (not calibrated): measure them", 39) ==
        "ceilings (not calibrated): measure them");
  CHECK(measure::shortened("ceilings (not calibrated): measure them", 38) ==
        "ceilings: measure them");
  CHECK(measure::shortened("spread by 11 %, the least counts", 20) == "spread by 11 %");
  CHECK(measure::shortened("samples without any clause", 20) == "samples without a...");
}
