// What a first call shows while it takes long.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "brrr/graph/first_call_progress.h"
#include "tests/harness/catch.h"

using namespace std::chrono_literals;
using brrr::graph::FirstCallProgress;

namespace {

// What is written during `wait`, with a line due after `delay`.
std::string shown(std::chrono::milliseconds delay, std::chrono::milliseconds wait) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file);
  {
    const FirstCallProgress progress("train", file, delay);
    std::this_thread::sleep_for(wait);
  }
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a first call that takes long shows a line, and erases it", "[compile]") {
  const std::string text = shown(5ms, 200ms);
  CHECK_THAT(text, Catch::StartsWith("\r\x1b[K[train] first call: compiles kernels and measures "
                                     "products, 0 s\r"));
  CHECK(text.ends_with("0 s\r\x1b[K"));
}

TEST_CASE("a first call that takes no time shows nothing", "[compile]") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(shown(10s, 1ms).empty());
  CHECK(std::chrono::steady_clock::now() - start < 5s);
}

TEST_CASE("without a terminal nothing is shown", "[compile]") {
  const FirstCallProgress progress("train", nullptr, 1ms);
  std::this_thread::sleep_for(20ms);
  SUCCEED();
}
