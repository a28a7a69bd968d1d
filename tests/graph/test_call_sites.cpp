// Call sites in messages and printed graphs.
#include "brrr/graph/call_site.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// Of the line before.
#define PLACE(function) \
  ("test_call_sites.cpp:" + std::to_string(__LINE__ - 1) + " in " + (function))

std::string expected;

[[gnu::noinline]] Tensor in_a_namespace(const Tensor& x) {
  Tensor y = exp(x);
  expected = PLACE("in_a_namespace");
  return y * 2;
}

struct Layer {
  [[gnu::noinline]] Tensor forward(const Tensor& x) const {
    Tensor y = x + x;  // operator+ is inlined
    expected = PLACE("forward");
    return y * 2;
  }
};

// The place of the first call in the text of the graph.
template <class F>
std::string place_of_first(F&& f) {
  auto step = compile(f);
  step(ones({3}));
  const std::string text = step.graph_text();
  const std::size_t from = text.find("  # ") + 4;
  return text.substr(from, text.find('\n', from) - from);
}

void check_end(const std::string& text, const std::string& end) {
  INFO(text << " should end with " << end);
  CHECK(text.ends_with(end));
}

}  // namespace

[[gnu::noinline]] Tensor out_of_a_namespace(const Tensor& x) {
  Tensor y = tanh(x);
  expected = PLACE("out_of_a_namespace");
  return y * 2;
}

TEST_CASE("compile: a call is named by the user's function and line", "[compile]") {
  check_end(place_of_first([](const Tensor& x) { return in_a_namespace(x); }), expected);
  check_end(place_of_first([](const Tensor& x) { return Layer().forward(x); }), expected);
  check_end(place_of_first([](const Tensor& x) { return out_of_a_namespace(x); }), expected);
  const std::function<Tensor(const Tensor&)> function = [](const Tensor& x) {
    Tensor y = x - 1;
    expected = PLACE("a lambda");
    return y;
  };
  check_end(place_of_first(function), expected);
  // A module's own calls count for who called it.
  nn::MLP model({3, 2});
  check_end(place_of_first([&](const Tensor& x) {
              Tensor y = model(x);
              expected = PLACE("a lambda");
              return y;
            }),
            expected);
}

TEST_CASE("compile: a refusal names the user's function and line", "[compile]") {
  auto step = compile([](const Tensor& x) { item(x); });
  const std::string place = PLACE("a lambda)");
  check_end(error_of([&] { step(ones({1})); }), place);
}

TEST_CASE("compile: many call sites are described at once, equal ones alike", "[compile]") {
  std::vector<graph::CallSite> sites;
  for (int i = 0; i < 3; ++i) sites.push_back(graph::CallSite::here());
  const std::vector<std::string> places = graph::describe(sites);
  REQUIRE(places.size() == 3);
  CHECK(places[0] == places[1]);
  CHECK(places[0] == places[2]);
  CHECK_THAT(places[0], Catch::Contains("test_call_sites.cpp:"));
  CHECK(graph::describe(graph::CallSite()) == "an unknown place");
}
