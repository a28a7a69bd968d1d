// The order of calls with effects: of unknown effect, and of channels.
#include <algorithm>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/flow_dependences.h"
#include "brrr/graph/passes.h"
#include "brrr/graph/trace.h"
#include "brrr/ops/register_op.h"
#include "tests/harness/body_interpreter.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_plan.h"
#include "tests/harness/environment.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;
using graph::CallDependences;
using graph::Graph;

namespace {

using Function = std::function<Tensors(const Tensors& arguments)>;

// What ops with effects see, in the order of their calls; that of a channel of its own apart.
using Events = std::vector<std::pair<std::string, float>>;
Events events, events_aside;
// A tensor that kernels reach without an operand.
float* hidden = nullptr;

using Kernel = std::function<void(float* operand)>;

// An op that copies its operand, after `effect`.
Op effect_op(const std::string& name, const Kernel& effect, const std::string& channel = "") {
  return register_op(StructuredOp{.name = name,
                                  .infer =
                                      [](const Call& call, OutputSpec* outputs) {
                                        outputs[0] = {call.input(0).dtype(), call.input(0).device(),
                                                      Dims(call.input(0).shape())};
                                      },
                                  .cpu =
                                      [effect](const Call& call, Tensor* outputs) {
                                        effect(static_cast<float*>(call.input(0).data()));
                                        copy_(outputs[0], call.input(0));
                                      },
                                  .channel = channel,
                                  .cost = cost_of_moving});
}

Op listing_op(const std::string& name, const std::string& channel = "", Events& list = events) {
  return effect_op(
      "test_effects_" + name, [name, &list](const float* x) { list.emplace_back(name, *x); },
      channel);
}

// Append to one list: `one` and `two` by any means, the others as members of channels.
const Op& one() {
  static const Op op = listing_op("one");
  return op;
}
const Op& two() {
  static const Op op = listing_op("two");
  return op;
}
const Op& left() {
  static const Op op = listing_op("left", "test list");
  return op;
}
const Op& right() {
  static const Op op = listing_op("right", "test list");
  return op;
}
const Op& aside() {
  static const Op op = listing_op("aside", "another test list", events_aside);
  return op;
}
const Op& peek() {
  static const Op op =
      effect_op("test_effects_peek", [](const float*) { events.emplace_back("peek", *hidden); });
  return op;
}
const Op& bump() {
  static const Op op = effect_op("test_effects_bump", [](const float*) { *hidden += 1; });
  return op;
}
const Op& scribble() {
  static const Op op = effect_op("test_effects_scribble", [](float* x) { *x += 1; });
  return op;
}

Tensor with(Op op, const Tensor& x) { return call_op(op, Tensors{x}, {})[0]; }

// A function that the seed draws. `state` is captured, and what `hidden` points to.
Tensors random_calls(std::uint64_t seed, const Tensors& in, Tensor state) {
  Random random(seed);
  const Op effects[] = {one(), two(), left(), right(), aside(), peek(), bump(), scribble()};
  Tensors values = {in[0], in[1], state};
  const auto any = [&] {
    return values[static_cast<std::size_t>(random.below(std::ssize(values)))];
  };
  for (std::int64_t i = 0; i < 14; ++i) {
    switch (random.below(8)) {
      case 0: add_(state, any() * 0.5); break;
      case 1: copy_(state, any() * any()); break;
      case 2: values.push_back(any() * 0.75); break;
      case 3: values.push_back(any() + any()); break;
      case 4: values.push_back(square(any()) - 1); break;
      default: {
        const Tensor y = with(effects[random.below(std::ssize(effects))], any());
        if (random.below(3) > 0) values.push_back(y);  // else nobody reads it
      }
    }
  }
  return {values.back() + 0, values[values.size() / 2] + 0};
}

// What ops see, results, and what tensors from outside have in the end. `run` is called with a
// function of the arguments and captured state.
template <class Run>
std::vector<std::string> outcome_of(std::uint64_t seed, Run run) {
  const Tensors in = {noise({5}, seed), noise({5}, seed + 1)};
  const Tensor state = noise({5}, seed + 2);
  hidden = state.data<float>();
  events.clear();
  events_aside.clear();
  const Tensors results = run([=](const Tensors& x) { return random_calls(seed, x, state); }, in);
  std::vector<std::string> lines;
  for (const Events* list : {&events, &events_aside}) {
    for (const auto& [name, value] : *list) lines.push_back(name + " " + std::to_string(value));
  }
  for (const std::string& bits : bits_of(results)) lines.push_back(bits);
  for (const Tensor& x : {in[0], in[1], state}) lines.push_back(bits_of(x));
  return lines;
}

Tensors twice(const Function& step, const Tensors& in) {
  Tensors results = step(in);
  for (const Tensor& result : step(in)) results.push_back(result);
  return results;
}

Tensors compiled_twice(const Function& function, const Tensors& in, Mode mode) {
  auto step = compile(function, {.mode = mode, .fallback = OnFallback::refuse});
  return twice([&](const Tensors& x) { return step(x); }, in);
}

Graph traced(const Function& function, const Tensors& arguments) {
  graph::Trace trace("traced", arguments);
  Graph graph = trace.finish(function(trace.inputs()));
  remove_dead(graph);
  return graph;
}

bool precedes(const CallDependences& dependences, int before, int call) {
  return std::ranges::any_of(
      dependences.predecessors[static_cast<std::size_t>(call)],
      [&](int each) { return each == before || precedes(dependences, before, each); });
}

}  // namespace

TEST_CASE("effects: random programs have eager's order", "[compile][effects]") {
  // Compiling the kernels of so many programs takes minutes.
  const Interpreted uncompiled;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("seed " << seed);
    const auto eager =
        outcome_of(seed, [](const Function& f, const Tensors& in) { return twice(f, in); });
    CHECK(outcome_of(seed, [](const Function& f, const Tensors& in) {
            return compiled_twice(f, in, Mode::graph);
          }) == eager);
    CHECK(outcome_of(seed, [](const Function& f, const Tensors& in) {
            return compiled_twice(f, in, Mode::fused);
          }) == eager);
    const auto once = outcome_of(seed, [](const Function& f, const Tensors& in) { return f(in); });
    // Calls in an order drawn among those that lanes allow.
    CHECK(outcome_of(seed, [&](const Function& f, const Tensors& in) {
            Graph graph = traced(f, in);
            for (const graph::Pass& pass : graph::kPasses) {
              if (pass.in_graph_mode) pass.run(graph);
            }
            const graph::PlanOptions options{.lanes = true};
            Random random(seed);
            return run_planned(graph, options, make_plan(graph, options), in, random);
          }) == once);
  }
}

TEST_CASE("effects: fused steps run compiled kernels in eager's order", "[compile][effects]") {
  for (std::uint64_t seed = 2001; seed <= 2004; ++seed) {
    INFO("seed " << seed);
    CHECK(outcome_of(seed, [](const Function& f,
                              const Tensors& in) { return compiled_twice(f, in, Mode::fused); }) ==
          outcome_of(seed, [](const Function& f, const Tensors& in) { return twice(f, in); }));
  }
}

TEST_CASE("effects: calls of unknown effect depend on one another and on what may alias",
          "[compile][effects]") {
  const Tensor w = noise({4}, 1), v = noise({4}, 2);
  const Graph graph = traced(
      [&](const Tensors& in) {
        const Tensor a = in[0] * w;       // 0
        const Tensor b = with(one(), a);  // 1
        const Tensor c = exp(a);          // 2: reads an operand of call 1
        const Tensor d = exp(b) + 1;      // 3, 4
        const Tensor e = with(two(), d);  // 5
        Tensor state = v;
        add_(state, 1);                     // 6: memory from outside
        const Tensor f = with(left(), c);   // 7
        const Tensor g = with(aside(), c);  // 8
        const Tensor h = with(right(), c);  // 9
        const Tensor i = square(c);         // 10
        return Tensors{e, f, g, h, i};
      },
      {noise({4}, 3)});
  REQUIRE(graph.nodes.size() == 11);
  const CallDependences dependences(graph);
  for (const auto& [before, call] :
       std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {1, 5}, {5, 6}, {5, 7}, {5, 8}, {7, 9}}) {
    INFO(before << " before " << call);
    CHECK(precedes(dependences, before, call));
  }
  // Other channels, and values inside of the step, are not ordered.
  for (const auto& [before, call] :
       std::vector<std::pair<int, int>>{{2, 3}, {2, 5}, {5, 10}, {7, 8}, {8, 9}, {9, 10}}) {
    INFO(before << " and " << call);
    CHECK_FALSE(precedes(dependences, before, call));
  }
}

TEST_CASE("effects: the plan of lanes has edges of effects", "[compile][effects][plan]") {
  const graph::PlanOptions options{.lanes = true};
  const auto is_ordered = [&](const Op& first, const Op& second) {
    const Graph graph = traced(
        [&](const Tensors& in) {
          return Tensors{with(first, exp(in[0])), with(second, square(in[1]))};
        },
        {noise({4}, 1), noise({4}, 2)});
    const graph::Plan plan = make_plan(graph, options);
    const int last = static_cast<int>(graph.nodes.size()) - 1;
    return all_predecessors(plan)[static_cast<std::size_t>(last)].has(1);
  };
  CHECK(is_ordered(one(), two()));
  CHECK(is_ordered(one(), left()));
  CHECK(is_ordered(left(), right()));
  CHECK_FALSE(is_ordered(left(), aside()));
}

TEST_CASE("effects: passes keep what may have changed", "[compile][effects]") {
  const Tensor w = noise({4}, 1);
  const std::vector<std::pair<const char*, Function>> cases = {
      {"a captured tensor is read again",
       [&](const Tensors& in) {
         const Tensor before = exp(w), y = with(one(), in[0]), after = exp(w);
         return Tensors{before + y + after};
       }},
      {"an operand is read again",
       [](const Tensors& in) {
         const Tensor x = in[0] * 2, before = exp(x), y = with(one(), x), after = exp(x);
         return Tensors{before + y + after};
       }},
      {"one of two equal operands",
       [](const Tensors& in) {
         const Tensor x = in[0] * 2, y = in[0] * 2;
         return Tensors{with(one(), x) + y};
       }},
      {"calls of a channel",
       [](const Tensors& in) { return Tensors{with(left(), in[0]) + with(left(), in[0])}; }},
  };
  for (const auto& [name, function] : cases) {
    INFO(name);
    Graph graph = traced(function, {noise({4}, 2)});
    CHECK(merge_equal(graph) == 0);
  }
  Graph constant = traced([](const Tensors& in) { return Tensors{with(one(), ones({4})) + in[0]}; },
                          {noise({4}, 2)});
  CHECK(hoist_constants(constant) == 0);
  Graph unread = traced(
      [](const Tensors& in) {
        with(left(), in[0]);
        return Tensors{in[0] * 2};
      },
      {noise({4}, 2)});
  CHECK(unread.nodes.size() == 2);
}

TEST_CASE("effects: verify demands the order of the trace", "[compile][effects]") {
  const Tensor w = noise({4}, 1);
  const auto swapped = [&](const Function& function) {
    Graph graph = traced(function, {noise({4}, 2)});
    graph::verify(graph, "trace");
    std::swap(graph.nodes[0], graph.nodes[1]);
    return error_of([&] { graph::verify(graph, "swap"); });
  };
  const auto both = [](Op first, Op second) {
    return [=](const Tensors& in) { return Tensors{with(first, in[0]), with(second, in[0])}; };
  };
  CHECK_THAT(swapped(both(one(), two())),
             Catch::Contains("[verify] after swap: in call 1, test_effects_one, expected call 1 of "
                             "the trace, test_effects_two, not to come before it"));
  CHECK_THAT(swapped(both(left(), right())), Catch::Contains("[verify] after swap"));
  CHECK(swapped(both(left(), aside())) == "");
  CHECK_THAT(swapped([&](const Tensors& in) {
               const Tensor x = with(one(), in[0]);
               return Tensors{x, exp(w)};
             }),
             Catch::Contains("[verify] after swap"));
}

TEST_CASE("effects: an op is pure or has a channel", "[effects]") {
  CHECK_THAT(error_of([] {
               register_op(StructuredOp{.name = "test_effects_both",
                                        .infer = [](const Call&, OutputSpec*) {},
                                        .pure = true,
                                        .channel = "a list",
                                        .cost = cost_of_moving});
             }),
             Catch::Contains("[register_op] expected test_effects_both to be pure or to have a "
                             "channel, got both"));
}
