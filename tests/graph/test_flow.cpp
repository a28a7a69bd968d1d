// graph/flow: writers and readers of buffers, and equal values.
#include "brrr/graph/flow.h"

#include <algorithm>

#include "brrr/graph/passes.h"
#include "brrr/graph/trace.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

using namespace brrr;
using namespace brrr::test;
using graph::Flow;
using graph::Graph;

namespace {

using Function = std::function<Tensors(const Tensors& arguments)>;

Graph traced(const Function& function, const Tensors& arguments) {
  graph::Trace trace("traced", arguments);
  return trace.finish(function(trace.inputs()));
}

int result_of(const Graph& graph, std::size_t call) { return graph.nodes[call].outputs[0].buffer; }

std::vector<int> listed(std::span<const int> calls) { return {calls.begin(), calls.end()}; }

}  // namespace

TEST_CASE("flow: writers, readers and versions of a buffer", "[compile]") {
  const Graph graph = traced(
      [](const Tensors& in) {
        Tensor a = exp(in[0]);   // 0
        const Tensor b = a + a;  // 1
        Tensor row = select(a, 0, 1);
        mul_(row, 2);            // 2
        const Tensor c = a * b;  // 3
        return Tensors{c};
      },
      {noise({2, 3}, 1)});
  const Flow flow(graph);
  const int a = result_of(graph, 0), b = result_of(graph, 1), c = result_of(graph, 3);
  CHECK(listed(flow.writers(a)) == std::vector{0, 2});
  CHECK(listed(flow.readers(a)) == std::vector{1, 2, 3});
  CHECK(flow.producer(a) == Flow::kNone);
  CHECK(flow.producer(b) == 1);
  CHECK(flow.producer(0) == Flow::kNone);  // an argument's
  CHECK(flow.last_use(a) == 3);
  CHECK(flow.last_use(0) == 0);
  CHECK(flow.version(a, 0) == 0);
  CHECK(flow.version(a, 1) == 1);
  CHECK(flow.version(a, 2) == 1);
  CHECK(flow.version(a, 3) == 2);
  const graph::Value whole = graph.nodes[0].outputs[0], written = graph.nodes[2].outputs[0];
  graph::Value other_row = written;
  other_row.offset = 0;
  CHECK(flow.writer(whole, 4) == 2);
  CHECK(flow.writer(whole, 2) == 0);
  CHECK(flow.writer(whole, 0) == Flow::kNone);
  CHECK(flow.writer(written, 4) == 2);
  CHECK(flow.writer(other_row, 4) == 0);
  CHECK(!flow.is_intermediate(a));
  CHECK(flow.is_intermediate(b));
  CHECK(flow.escapes(c));
  CHECK(!flow.is_intermediate(c));
}

TEST_CASE("flow: what a leaf gets escapes", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 2));
  const Graph graph = traced(
      [&](const Tensors& in) {
        zero_grad(w);
        backward(sum(w * in[0]));
        return Tensors{};
      },
      {noise({3}, 1)});
  REQUIRE(graph.gradients.size() == 1);
  CHECK(Flow(graph).escapes(graph.gradients[0].after->value.buffer));
}

TEST_CASE("flow: bytes of a call count what a broadcast repeats once", "[compile]") {
  const Graph graph = traced([](const Tensors& in) { return Tensors{in[0] + in[1]}; },
                             {noise({5, 4}, 1), noise({4}, 2)});
  CHECK(graph::bytes_moved(graph.nodes[0]) == (20 + 4 + 20) * 4);
}

TEST_CASE("compile: calls that depend on nothing run once", "[compile]") {
  Graph graph = traced(
      [](const Tensors& in) {
        const Tensor mask = tril(ones({4, 4})), scaled = mask * 2;
        Tensor written = zeros({4, 4});
        add_(written, 1);
        return Tensors{in[0] * scaled + in[0] * mask, written + in[0], ones({2})};
      },
      {noise({4, 4}, 1)});
  const std::size_t before = graph.nodes.size();
  CHECK(hoist_constants(graph) == 3);
  verify(graph, "hoist_constants");
  CHECK(graph.constants.size() == 3);
  CHECK(graph.nodes.size() == before - 3);
  // The mask and its multiple are read by replays, the ones that they are made of are not.
  CHECK(std::ranges::count(graph.buffers, graph::Buffer::Kind::constant, &graph::Buffer::kind) ==
        2);
  CHECK(hoist_constants(graph) == 0);
}

TEST_CASE("compile: constants keep their bits from replay to replay", "[compile]") {
  const Function function = [](const Tensors& in) {
    const Tensor mask = tril(ones({4, 4}));
    return Tensors{where(eq(mask, 0), full({}, -1e9), in[0]), in[0] + arange(4)};
  };
  auto step = compile([&](const Tensor& x) { return function({x}); });
  for (int i = 0; i < 4; ++i) {
    const Tensors in = {noise({4, 4}, i)};
    CHECK(bits_of(step(in[0])) == bits_of(function(in)));
  }
  CHECK(step.report().entries[0].nodes == 2);
}

TEST_CASE("compile: recomputation of a checkpoint is not merged with the original", "[compile]") {
  const Tensor w = requires_grad_(noise({8}, 2));
  const auto exps_of = [&](bool again) {
    auto step = compile([&](const Tensor& x) {
      zero_grad(w);
      const auto inner = [&](const Tensor& h) { return exp(exp(h * w)); };
      const Tensor loss = sum(again ? checkpoint(inner, x) : inner(x));
      backward(loss);
      return loss;
    });
    step(noise({8}, 1));
    struct Exps final : Observer {
      int count = 0;
      void before(const Call& call) override { count += call.op == Op::exp; }
    } exps;
    const Observing observing(exps);
    step(noise({8}, 1));
    return exps.count;
  };
  CHECK(exps_of(false) == 2);
  CHECK(exps_of(true) == 4);
}

TEST_CASE("compile: observers see the kernels of a replay", "[compile]") {
  struct Counter final : Observer {
    int before_calls = 0, after_calls = 0;
    void before(const Call&) override { ++before_calls; }
    void after(const Call&, std::span<const Tensor> outputs) override {
      after_calls += !outputs.empty();
    }
  } counter;
  auto step = compile([](const Tensor& x) { return sum(exp(x) * 2 + x); });
  const Tensor x = noise({8}, 1);
  step(x);
  {
    const Observing observing(counter);
    step(x);
  }
  CHECK(counter.before_calls == step.report().entries[0].nodes);
  CHECK(counter.after_calls == counter.before_calls);
}
