// What a first call shows while it takes long.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "brrr/graph/compile.h"
#include "brrr/graph/first_call_progress.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"

using namespace std::chrono_literals;
using brrr::graph::FirstCallProgress;

namespace {

// What is written during `wait`, with a line due after `delay`.
std::string shown(std::chrono::milliseconds delay, std::chrono::milliseconds wait) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file);
  {
    FirstCallProgress progress("train", file, delay);
    progress.phase("compiles kernels and measures products");
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

TEST_CASE("a trace that takes long shows a line on a terminal", "[compile]") {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(::grantpt(terminal) == 0);
  REQUIRE(::unlockpt(terminal) == 0);
  const int end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY), before = ::dup(STDERR_FILENO);
  REQUIRE(end >= 0);
  ::dup2(end, STDERR_FILENO);
  auto step = brrr::compile(
      [](const brrr::Tensor& x) {
        std::this_thread::sleep_for(1300ms);
        return brrr::exp(x);
      },
      {.name = "train"});
  step(brrr::ones({4}));
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(end);
  ::fcntl(terminal, F_SETFL, O_NONBLOCK);
  char text[512] = {};
  const auto size = ::read(terminal, text, sizeof text - 1);
  ::close(terminal);
  CHECK(size > 0);
  CHECK_THAT(std::string(text), Catch::Contains("[train] first call: traces the function, 1 s"));
}
