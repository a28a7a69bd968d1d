// Details of the calls of a timeline.
#include "brrr/measure/trace_details.h"

#include <set>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/measure/chrome_trace.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::measure;
using Catch::Contains;

namespace {

// The timeline of two recorded steps with details.
Timeline detailed(const std::function<void()>& step) {
  Timeline timeline = record_timeline(cpu, step, {.steps = 2, .untraced_steps = 6});
  add_details(timeline, step);
  return timeline;
}

}  // namespace

TEST_CASE("calls of a timeline have shapes, FLOPs and bytes", "[timeline]") {
  const Tensor a = randn({6, 4}), b = randn({4, 5});
  const std::function<void()> eager = [&] { relu(matmul(a, b)); };
  auto compiled = compile([&] { return relu(matmul(a, b)); });
  for (const std::function<void()>& step : {eager, std::function<void()>([&] { compiled(); })}) {
    const Timeline timeline = detailed(step);
    int products = 0;
    for (const HostSpan& span : timeline.host) {
      if (span.work != HostWork::op || span.name != "matmul") continue;
      REQUIRE(span.call);
      const CallDetails& call = timeline.calls.at(*span.call);
      CHECK(call.result == "f32[6, 5]");
      CHECK(call.flops == 2 * 6 * 4 * 5);
      CHECK(call.bytes == 4 * (24 + 20 + 30));
      ++products;
    }
    CHECK(products == 2);
    CHECK_THAT(chrome_trace(timeline, "t"),
               Contains("\"result\":\"f32[6, 5]\",\"flops\":240,\"bytes\":296"));
  }
  CHECK(detailed([&] { compiled(); }).launches.size() == 2);
}

TEST_CASE("calls of a timeline have their phase and line", "[timeline]") {
  const Tensor x = randn({6, 4});
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    nn::MLP model({4, 8, 1});
    optim::Optimizer optimizer(model, optim::sgd(1e-3));
    auto step = compile(
        [&] {
          optimizer.zero_grad();
          const Tensor loss = mean(square(model(x)));
          backward(loss);
          optimizer.step();
        },
        {.mode = mode});
    const Timeline timeline = detailed([&] { step(); });
    std::set<std::string> phases;
    for (const CallDetails& call : timeline.calls) {
      phases.insert(call.phase);
      INFO(call.line);
      CHECK((call.bytes == 0 || call.line.find("test_trace_details.cpp:") != std::string::npos));
    }
    INFO(static_cast<int>(mode));
    CHECK(phases == std::set<std::string>{"forward", "backward", "update"});
    CHECK_THAT(chrome_trace(timeline, "t"),
               Contains("\"phase\":\"update\"") && Contains("test_trace_details.cpp:"));
  }
}

TEST_CASE("a step that calls other ops than it was recorded with stays without details",
          "[timeline]") {
  int count = 0;
  const Tensor x = randn({3});
  const Timeline timeline = detailed([&] {
    for (int i = 0; i < count; ++i) exp(x);
    ++count;
  });
  for (const HostSpan& span : timeline.host) CHECK_FALSE(span.call);
}
