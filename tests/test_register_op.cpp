// Ops registered at run time: they broadcast, promote, compute and fail like built-in ones.
#include <cmath>

#include "brrr/brrr.h"
#include "dispatch/dispatch.h"
#include "dispatch/expression.h"
#include "tests/catch.h"

using namespace brrr;

namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("a registered pointwise op computes its expression in every layout and type",
          "[register]") {
  static const Op mish =
      register_op(PointwiseOp{.name = "test_mish", .expression = "a * tanh(log1p(exp(a)))"});
  manual_seed(1);
  const Tensor x = randn({33, 65});
  const Tensor y = call_op(mish, {x});
  const std::vector<float> in = to_vector<float>(x), out = to_vector<float>(y);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double expected = in[i] * std::tanh(std::log1p(std::exp(static_cast<double>(in[i]))));
    REQUIRE(std::abs(out[i] - expected) < 1e-5);
  }
  CHECK(to_vector<float>(call_op(mish, {transpose(x, 0, 1)})) ==
        to_vector<float>(transpose(y, 0, 1)));
  CHECK(call_op(mish, {cast(x, bf16)}).dtype() == bf16);
  CHECK(call_op(mish, {arange(4)}).dtype() == f32);
}

TEST_CASE("registered pointwise ops take numbers and broadcast", "[register]") {
  static const Op blend = register_op(PointwiseOp{.name = "test_blend",
                                                  .arity = 3,
                                                  .expression = "a * 0.25 + b * 0.75 - c",
                                                  .rule = DTypeRule::float_like});
  const Tensor a = tensor({0, 4, 8}), b = tensor<float>(std::vector<float>{4, 8}, {2, 1});
  const Tensor y = call_op(blend, {a, b, 1});
  CHECK(to_vector<float>(y) == std::vector<float>{2, 3, 4, 5, 6, 7});
}

TEST_CASE("expressions are checked before anything is compiled", "[register]") {
  const auto refuse = [](const std::string& expression, int arity) {
    return message_of([&] { checked_expression(expression, arity); });
  };
  CHECK(refuse("a + b", 1) ==
        "[register_op] expected one of the 1 operands at character 5 of \"a + b\"");
  CHECK(refuse("system(a)", 1) ==
        "[register_op] expected an operand or a known function instead of \"system\" at character "
        "1 of \"system(a)\"");
  CHECK(refuse("a; a", 1) ==
        "[register_op] expected an operator instead of \";\" at character 2 of \"a; a\"");
  CHECK(refuse("(a", 1) == "[register_op] expected balanced parentheses at character 3 of \"(a\"");
  CHECK(refuse("", 1) == "[register_op] expected an expression at character 1 of \"\"");
  CHECK(checked_expression("a*0.5 + K(2)", 1) == "a*K(0.5) + K(2)");
  CHECK(flops_of("K(0.5) * a * (K(1) + erf(a * K(0.7)))") == 5);
}

TEST_CASE("names are taken once", "[register]") {
  register_op(PointwiseOp{.name = "test_once", .expression = "a"});
  CHECK(message_of([] { register_op(PointwiseOp{.name = "test_once", .expression = "a"}); }) ==
        "[register_op] expected a new name, got \"test_once\", which exists");
  CHECK(message_of([] { register_op(PointwiseOp{.name = "add", .expression = "a"}); }) ==
        "[register_op] expected a new name, got \"add\", which exists");
  CHECK(message_of([] {
          register_op(PointwiseOp{.name = "a b", .expression = "a"});
        }).find("letters") != std::string::npos);
}

TEST_CASE("a registered structured op runs its functions", "[register]") {
  StructuredOp definition;
  definition.name = "test_outer";
  definition.inputs = 2;
  definition.outputs = 2;
  definition.attributes = "factor";
  definition.infer = [](const Call& call, OutputSpec* outputs) {
    if (call.input(0).rank() != 1 || call.input(1).rank() != 1)
      fail("[test_outer] expected two vectors");
    outputs[0] = {f32, cpu, Dims{call.input(0).numel(), call.input(1).numel()}};
    outputs[1] = {f32, cpu, Dims{}};
  };
  definition.cpu = [](const Call& call, Tensor* outputs) {
    const float *a = call.input(0).data<float>(), *b = call.input(1).data<float>();
    const auto n = call.input(0).numel(), m = call.input(1).numel();
    for (std::int64_t i = 0; i < n * m; ++i)
      outputs[0].data<float>()[i] = a[i / m] * b[i % m] * float(call.attrs[0].d());
    outputs[1].data<float>()[0] = float(n * m);
  };
  static const Op outer = register_op(definition);
  const auto results = call_op(outer, {tensor({1, 2}), tensor({3, 4, 5})}, {Attr::of(2.0)});
  CHECK(to_vector<float>(results[0]) == std::vector<float>{6, 8, 10, 12, 16, 20});
  CHECK(item(results[1]) == 6);
  CHECK(message_of([&] {
          call_op(outer, {zeros({2, 2}), zeros({2})}, {Attr::of(1.0)});
        }) == "[test_outer] expected two vectors");
  CHECK(message_of([&] { call_op(outer, {zeros({2})}, {Attr::of(1.0)}); }) ==
        "[test_outer] expected 2 tensors, got 1");
  CHECK(message_of([&] {
          call_op(outer, {zeros({2}), zeros({2})}, {});
        }) == "[test_outer] expected 1 attributes (factor), got 0");
  CHECK(message_of([&] { call_op(Op::view, {zeros({3})}, {1000000}); }).find("built-in") !=
        std::string::npos);
}

TEST_CASE("observers see every call, and none when they have gone", "[observe]") {
  struct Counter : Observer {
    int before_count = 0, after_count = 0;
    std::string last;
    void before(const Call& call) override {
      ++before_count;
      last = describe(call);
    }
    void after(const Call&, std::span<const Tensor> outputs) override {
      after_count += outputs[0].defined();
    }
  } counter;
  const Tensor x = zeros({2, 3});
  {
    Observing observing(counter);
    const Tensor y = (x + 2) * x;
    CHECK(counter.before_count == 2);
    CHECK(counter.last == "mul(f32[2, 3], f32[2, 3])");
    view(x, {6});
    CHECK(counter.last == "view(f32[2, 3], shape=[6])");
  }
  const Tensor z = x + x;
  CHECK(counter.before_count == 3);
  CHECK(counter.after_count == 3);
}
