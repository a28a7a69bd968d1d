// The graph of a step: how it is printed, what verify demands, what the passes do.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/passes.h"
#include "brrr/graph/trace.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;
using graph::Buffer;
using graph::Graph;

namespace {

using Function = std::function<Tensors(const Tensors& arguments)>;

Graph traced(const Function& function, const Tensors& arguments = {noise({3, 4}, 1)}) {
  graph::Trace trace("traced", arguments);
  return trace.finish(function(trace.inputs()));
}

std::vector<std::string> ops_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes) names.emplace_back(op_info(node.call.op).name);
  return names;
}

using Names = std::vector<std::string>;

// The text without the places of calls.
std::string text_of(const Graph& graph) {
  std::string text = to_string(graph);
  for (std::size_t at; (at = text.find("  # ")) != std::string::npos;)
    text.erase(at, text.find('\n', at) - at);
  return text;
}

// A step with something of everything.
Graph everything(const Tensor& w, const Tensor& state) {
  return traced([=](const Tensors& in) {
    zero_grad(w);
    const Tensor loss = sum(square(transpose(in[0], 0, 1) * w));
    backward(loss);
    Tensor part = slice(state, 0, 1, 3);
    add_(part, 0.5);
    return Tensors{loss, Tensor(), state, in[0]};
  });
}

}  // namespace

TEST_CASE("compile: a graph prints as text that a person reads", "[compile]") {
  const Tensor w = requires_grad_(ones({3})), state = ones({4});
  const Graph graph = everything(w, state);
  CHECK("\n" + text_of(graph) == R"(
step on cpu: 9 calls, 11 buffers, 676 bytes read and written
input0: 48 bytes
captured2: 12 bytes
captured10: 16 bytes
forward:
  %1 f32[4, 3] = mul(input0 f32[4, 3] by [1, 4], captured2 f32[3])
  %3 f32[4, 3] = square(%1 f32[4, 3])
  %4 f32[] = sum(%3 f32[4, 3], dims={0, 1}, keepdim=0)
backward:
  %5 f32[] = full(value=1)
  %6 f32[4, 3] = mul(%1 f32[4, 3], 2)
  %7 f32[4, 3] = mul(%5 f32[4, 3] by [0, 0], %6 f32[4, 3])
  %8 f32[4, 3] = mul(%7 f32[4, 3], input0 f32[4, 3] by [1, 4])
  %9 f32[3] = sum(%8 f32[4, 3], dims={0}, keepdim=0)
update:
  captured10 f32[2] at 1 <- add_(captured10 f32[2] at 1, 0.5)
return %4 f32[]
return nothing
return f32[4]
return input0 f32[3, 4]
gradient of f32[3]: %9 f32[3]
)");
  CHECK_THAT(to_string(graph), Catch::Contains("test_ir.cpp:"));
}

TEST_CASE("compile: a graph prints for dot", "[compile]") {
  const Graph graph = traced([](const Tensors& in) {
    const Tensor y = exp(in[0]);
    return Tensors{y + y * 2};
  });
  CHECK("\n" + to_string(graph, graph::GraphFormat::dot) == R"(
digraph step {
  node [shape=box, fontname=monospace];
  n0 [label="exp\n%1 f32[3, 4]"];
  "input0" -> n0;
  n1 [label="mul\n%2 f32[3, 4]"];
  n0 -> n1;
  n2 [label="add\n%3 f32[3, 4]"];
  n0 -> n2;
  n1 -> n2;
}
)");
}

TEST_CASE("compile: a graph prints as JSON", "[compile]") {
  const Tensor w = requires_grad_(ones({3})), state = ones({4});
  const Graph graph = everything(w, state);
  const nlohmann::json json = nlohmann::json::parse(to_string(graph, graph::GraphFormat::json));
  CHECK(json["device"] == "cpu");
  REQUIRE(json["buffers"].size() == graph.buffers.size());
  REQUIRE(json["nodes"].size() == graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const graph::Node& node = graph.nodes[i];
    const nlohmann::json& of = json["nodes"][i];
    CHECK(of["op"] == op_info(node.call.op).name);
    CHECK(of["in_place"] == node.call.in_place);
    REQUIRE(of["inputs"].size() == node.inputs.size());
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      CHECK(of["inputs"][k]["buffer"] == node.inputs[k].buffer);
      CHECK(of["inputs"][k]["offset"] == node.inputs[k].offset);
      CHECK(of["inputs"][k]["shape"].size() ==
            static_cast<std::size_t>(node.inputs[k].shape.size()));
      CHECK(of["inputs"][k]["strides"].size() ==
            static_cast<std::size_t>(node.inputs[k].shape.size()));
    }
    REQUIRE(of["outputs"].size() == node.outputs.size());
    CHECK(of["outputs"][0]["dtype"] == name_of(node.outputs[0].dtype));
    CHECK_THAT(of["where"].get<std::string>(), Catch::Contains("test_ir.cpp:"));
  }
  CHECK(json["nodes"][0]["role"] == "forward");
  CHECK(json["buffers"][0]["kind"] == "input");
  CHECK(json["buffers"][0]["bytes"] == 48);
  REQUIRE(json["outputs"].size() == 4);
  CHECK(json["outputs"][1].is_null());
  CHECK(json["outputs"][3]["buffer"] == 0);
}

TEST_CASE("compile: roles distinguish forward, backward and update", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 2));
  const Graph graph = traced(
      [&](const Tensors& in) {
        zero_grad(w);
        backward(sum(w * in[0]));
        const NoGrad constant;
        Tensor to = w;
        sub_(to, grad(w) * 0.5);
        return Tensors{};
      },
      {noise({3}, 1)});
  std::vector<graph::Role> roles;
  for (const graph::Node& node : graph.nodes) roles.push_back(node.role);
  CHECK(roles.front() == graph::Role::forward);
  CHECK(roles.back() == graph::Role::update);
  CHECK(std::ranges::is_sorted(roles));
  CHECK(std::ranges::find(roles, graph::Role::backward) != roles.end());
}

namespace {

struct Damage {
  const char* rule;
  std::function<void(Graph&)> does;
};

// exp, mul and add in place, with a captured factor.
Graph three_calls(const Tensor& outside) {
  return traced([&](const Tensors& in) {
    const Tensor first = exp(in[0]);
    Tensor second = first * outside;
    add_(second, first);
    return Tensors{second};
  });
}

void check_refused(std::initializer_list<Damage> damages) {
  const Tensor outside = noise({3, 4}, 2);
  const Graph good = three_calls(outside);
  REQUIRE(ops_of(good) == Names{"exp", "mul", "add"});
  verify(good, "nothing");
  for (const Damage& damage : damages) {
    INFO(damage.rule);
    Graph bad = three_calls(outside);
    damage.does(bad);
    const std::string text = error_of([&] { verify(bad, "a pass"); });
    CHECK_THAT(text, Catch::StartsWith("[verify] after a pass: in "));
    CHECK_THAT(text, Catch::Contains(damage.rule));
  }
}

}  // namespace

TEST_CASE("compile: damaged buffers and values are refused by verify, with the rule", "[compile]") {
  check_refused({
      {"in the graph expected a captured buffer, and no other, to be a tensor's",
       [](Graph& g) { g.buffers[0].captured = ones({3}); }},
      {"in the graph expected a captured buffer, and no other, to be a tensor's",
       [](Graph& g) {
         for (Buffer& b : g.buffers) b.captured = Tensor();
       }},
      {"in the graph expected an argument, and no other buffer, to start up to 15 bytes past",
       [](Graph& g) { g.buffers[0].misalignment = 16; }},
      {"in the graph expected an argument, and no other buffer, to start up to 15 bytes past",
       [](Graph& g) { g.buffers.back().misalignment = 4; }},
      {"in call 0, exp, expected a buffer that is there",
       [](Graph& g) { g.nodes[0].inputs[0].buffer = 99; }},
      {"in call 1, mul, expected a buffer that is there",
       [](Graph& g) { g.nodes[1].outputs[0].buffer = -1; }},
      {"in call 0, exp, expected a stride for each dimension",
       [](Graph& g) { g.nodes[0].inputs[0].strides = {1}; }},
      {"in call 0, exp, expected input0 f32[3, 4] at 1 within 48 bytes",
       [](Graph& g) { g.nodes[0].inputs[0].offset = 1; }},
      {"in call 0, exp, expected input0 f32[3, 4] at -1 within 48 bytes",
       [](Graph& g) { g.nodes[0].inputs[0].offset = -1; }},
      {"in call 0, exp, expected one device", [](Graph& g) { g.buffers[0].device = cuda(0); }},
  });
}

TEST_CASE("compile: damaged calls are refused by verify, with the rule", "[compile]") {
  check_refused({
      {"to be written before it is read", [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }},
      {"to be written before it is read", [](Graph& g) { g.nodes.clear(); }},
      {"in call 0, exp, expected the inputs that the call counts",
       [](Graph& g) { g.nodes[0].inputs.clear(); }},
      {"in call 0, exp, expected the outputs that the op has",
       [](Graph& g) { g.nodes[0].outputs.push_back(g.nodes[0].outputs[0]); }},
      {"in call 0, permute, expected no view among the calls",
       [](Graph& g) { g.nodes[0].call.op = Op::permute; }},
      {"in call 2, add, expected outputs of distinct elements",
       [](Graph& g) {
         g.nodes[2].outputs[0].strides = {0, 1};
       }},
      {"in call 1, mul, expected a result to be the first that is written to its buffer",
       [](Graph& g) { g.nodes[1].outputs[0].buffer = g.nodes[0].outputs[0].buffer; }},
      {"in call 0, exp, expected a result to be the first that is written to its buffer",
       [](Graph& g) { g.nodes[0].outputs[0].buffer = 0; }},
      {"in call 1, mul, expected a result without gaps",
       [](Graph& g) {
         g.nodes[1].outputs[0].strides = {1, 3};
       }},
      {"in call 2, add, expected inputs that do not overlap an output",
       [](Graph& g) {
         g.nodes[2].inputs[1] = g.nodes[2].outputs[0];
         g.nodes[2].inputs[1].shape = {1, 4};
       }},
      {"in call 0, exp, expected f32[3, 4] by the op's rule, got",
       [](Graph& g) {
         g.nodes[0].outputs[0].shape = {4, 3}, g.nodes[0].outputs[0].strides = {3, 1};
       }},
      {"in call 0, exp, expected f32[3, 4] by the op's rule, got",
       [](Graph& g) { g.nodes[0].outputs[0].dtype = i32; }},
  });
}

TEST_CASE("compile: verify accepts a write over the same elements with other strides",
          "[compile]") {
  const Graph graph = traced(
      [](const Tensors& in) {
        Tensor to = unsqueeze(in[0], 0);
        add_(to, expand(in[0], {1, 4}));
        return Tensors{};
      },
      {noise({4}, 1)});
  REQUIRE(graph.nodes.size() == 1);
  CHECK(graph.nodes[0].inputs[1].strides != graph.nodes[0].outputs[0].strides);
  verify(graph, "trace");
}

TEST_CASE("compile: of equal calls one stays", "[compile]") {
  Graph graph = traced([](const Tensors& in) {
    const Tensor x = in[0];
    const Tensor a = exp(x), b = exp(x), c = x * 2, d = x * 2;
    const Tensor e = sum(a, {0}), f = sum(b, {0}), g = c + d;  // equal when their operands are
    return Tensors{e * f * g};
  });
  CHECK(merge_equal(graph) == 3);
  CHECK(ops_of(graph) == Names{"exp", "mul", "sum", "add", "mul", "mul"});
  const graph::Node& product = graph.nodes[4];
  CHECK(product.inputs[0] == product.inputs[1]);
  verify(graph, "merge_equal");
  CHECK(merge_equal(graph) == 0);
}

namespace {

Op counted_op() {
  // Without a promise that it is pure.
  static const Op op = register_op(StructuredOp{
      .name = "test_compile_counted",
      .infer =
          [](const Call& call, OutputSpec* outputs) {
            outputs[0] = {call.input(0).dtype(), call.input(0).device(),
                          Dims(call.input(0).shape())};
          },
      .cpu = [](const Call& call, Tensor* outputs) { copy_(outputs[0], call.input(0)); },
      .cost = cost_of_moving});
  return op;
}

}  // namespace

TEST_CASE("compile: calls that differ in effect or version are not merged", "[compile]") {
  static const Op counted = counted_op();
  const Tensor state = noise({3, 4}, 5);
  const std::vector<std::pair<const char*, Function>> cases = {
      {"other numbers", [](auto& in) { return Tensors{in[0] * 2 + in[0] * 3}; }},
      {"other types",
       [](auto& in) { return Tensors{cast(in[0], f64) + cast(cast(in[0], i32), f64)}; }},
      {"other views",
       [](auto& in) { return Tensors{exp(select(in[0], 0, 0)) + exp(select(in[0], 0, 1))}; }},
      {"other strides",
       [](auto& in) {
         const Tensor t = slice(in[0], 1, 0, 3);
         return Tensors{exp(t) + exp(transpose(t, 0, 1))};
       }},
      {"a write between",
       [&](auto& in) {
         Tensor to = state;
         const Tensor before = exp(to);
         add_(to, in[0]);
         return Tensors{before + exp(to)};
       }},
      {"a write through a view between",
       [&](auto&) {
         Tensor row = select(state, 0, 0);
         const Tensor before = exp(state);
         zero_(row);
         return Tensors{before + exp(state)};
       }},
      {"results, which the caller may write to",
       [](auto& in) {
         return Tensors{exp(in[0]), exp(in[0])};
       }},
      {"temporaries that are written to",
       [](auto& in) {
         Tensor a = exp(in[0]), b = exp(in[0]);
         add_(a, 1);
         return Tensors{a + b};
       }},
      {"draws", [](auto&) { return Tensors{rand({3}) + rand({3})}; }},
      {"draws of other steps",
       [](auto&) {
         const Tensor first = rand({3});
         next_random_step();
         return Tensors{first + rand({3})};
       }},
      {"ops of users, which may do more",
       [](auto& in) {
         return Tensors{call_op(counted, Tensors{in[0]}, {})[0] +
                        call_op(counted, Tensors{in[0]}, {})[0]};
       }},
  };
  for (const auto& [name, function] : cases) {
    INFO(name);
    Graph graph = traced(function);
    CHECK(merge_equal(graph) == 0);
  }
}

TEST_CASE("compile: calls whose results nobody reads are removed", "[compile]") {
  const Tensor state = noise({3, 4}, 5);
  Graph graph = traced([&](const Tensors& in) {
    const Tensor unused = exp(exp(in[0]));
    Tensor temporary = in[0] * 2;
    const Tensor used = sum(temporary);
    add_(temporary, 1);  // after the last read
    Tensor to = state;
    add_(to, 1);
    Tensor argument = in[0];
    neg_(argument);
    return Tensors{used};
  });
  CHECK(remove_dead(graph) == 3);
  CHECK(ops_of(graph) == Names{"mul", "sum", "add", "neg"});
  verify(graph, "remove_dead");
  CHECK(remove_dead(graph) == 0);
}

TEST_CASE("compile: calls that a gradient, a draw or a later part needs are kept", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 5));
  Graph graph = traced(
      [&](const Tensors& in) {
        zero_grad(w);
        backward(sum(w * in[0]));
        dropout(in[0], 0.5);
        Tensor whole = zeros({3});
        Tensor part = slice(whole, 0, 0, 1);
        copy_(part, slice(in[0], 0, 1, 2));
        return Tensors{whole};
      },
      {noise({3}, 1)});
  remove_dead(graph);
  verify(graph, "remove_dead");
  const Names ops = ops_of(graph);
  CHECK(std::ranges::count(ops, "uniform") == 0);  // the generator still moves on:
  REQUIRE(graph.draws.size() == 1);
  CHECK(graph.draws[0].draws == 1);
  CHECK(std::ranges::count(ops, "full") >= 1);
  CHECK(std::ranges::count(ops, "copy") == 1);
  REQUIRE(graph.gradients.size() == 1);
  CHECK(graph.owns_gradient(graph.gradients[0]));
}

TEST_CASE("compile: calls that change nothing go", "[compile]") {
  Graph graph = traced([](const Tensors& in) {
    const Tensor x = exp(in[0]);
    return Tensors{clone(x) * 1 + 1 * x, clone(x * 1) * 2};
  });
  CHECK(simplify(graph) == 5);
  CHECK(ops_of(graph) == Names{"exp", "add", "mul"});
  verify(graph, "simplify");

  const Tensor outside = noise({3, 4}, 3);
  Graph kept = traced([&](const Tensors& in) {
    const Tensor x = exp(in[0]);
    Tensor written = clone(x);
    add_(written, 1);
    const Tensor of_argument = clone(in[0]) + clone(outside);  // which may be written later
    const Tensor transposed = clone(transpose(x, 0, 1)), part = clone(select(x, 0, 1));
    const Tensor other = cast(x, f64);
    return Tensors{clone(x),  written + of_argument,   transposed + 1, part + 1,
                   other + 1, cast(x * 3, i32) * 1 + 1};
  });
  const std::size_t before = kept.nodes.size();
  CHECK(simplify(kept) == 0);
  CHECK(kept.nodes.size() == before);
}

TEST_CASE("compile: every number of the host is listed", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 5));
  const Graph graph = traced(
      [&](const Tensors& in) {
        zero_grad(w);
        const Tensor loss =
            sum(w * in[0] * 0.5 + tensor({1, 2, 3}) + full({3}, 7) + arange(0.0, 1.5, 0.5));
        backward(loss);
        const NoGrad constant;
        Tensor to = w;
        sub_(to, grad(w) * 0.25);
        mul_(to, 0.125);
        add_(to, cast(ones({3}, {.dtype = i32}) * 4, f32));
        return Tensors{};
      },
      {noise({3}, 1)});
  std::vector<std::string> found;
  for (const graph::HostConstant& each : host_constants(graph)) {
    found.push_back(each.what + (each.value ? " " + std::to_string(*each.value) : "") +
                    (each.updates_parameter ? " updates" : ""));
  }
  std::ranges::sort(found);
  Names expected = {"start of arange 0.000000",
                    "step of arange 0.500000",
                    "value of full 7.000000",
                    "operand 1 of mul 0.500000",
                    "value of full 1.000000",  // the loss's own gradient
                    "operand 1 of mul 0.500000",
                    "operand 1 of mul 0.250000 updates",
                    "operand 1 of mul 0.125000 updates",
                    "value of full 1.000000",
                    "operand 1 of mul 4.000000 updates",
                    "tensor f32[3]"};
  std::ranges::sort(expected);
  CHECK(found == expected);
}

TEST_CASE("compile: buffers know what they are", "[compile]") {
  const Tensor outside = ones({6});
  const Graph graph = traced(
      [&](const Tensors& in) {
        return Tensors{in[1] + slice(outside, 0, 2, 5) + in[0] + slice(outside, 0, 3, 6)};
      },
      {noise({3}, 1), slice(noise({8}, 3), 0, 1, 7, 2)});
  REQUIRE(graph.buffers.size() == 6);
  CHECK(graph.buffers[0].kind == Buffer::Kind::input);
  CHECK(graph.buffers[0].bytes == 12);
  CHECK(graph.buffers[1].input == 1);
  CHECK(graph.buffers[1].bytes == 20);  // from its first to its last element
  const auto captured = std::ranges::find(graph.buffers, Buffer::Kind::captured, &Buffer::kind);
  REQUIRE(captured != graph.buffers.end());
  CHECK(captured->bytes == 24);
  CHECK(captured->captured.shares_storage_with(outside));
  CHECK(std::ranges::count(graph.buffers, Buffer::Kind::captured, &Buffer::kind) == 1);
  CHECK(std::ranges::count(graph.buffers, Buffer::Kind::temporary, &Buffer::kind) == 3);
}
