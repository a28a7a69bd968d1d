// Ops registered at run time: they broadcast, promote, compute and fail like built-in ones.
#include <cmath>
#include <limits>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/expression.h"
#include "brrr/ops/pointwise.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"
#include <brrr/brrr.h>

using namespace brrr;

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
  CHECK(call_op(mish, {zeros({0, 3})}).numel() == 0);
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
    return test::error_of([&] { checked_expression(expression, arity); });
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
  CHECK(checked_expression("a*0.5 + K(2)", 1).text() == "a * K(0.5) + K(2)");
  CHECK(checked_expression("-(a--b) < 010 ? 1e-3 : +a", 2).text() ==
        "where(-(a - -b) < K(10), K(1e-3), a)");
  CHECK(checked_expression("maximum(a > b, 1) * !(a == b && b != 2)", 2).text() ==
        "maximum(where(a > b, K(1), K(0)), K(1)) * where(!(a == b && b != K(2)), K(1), K(0))");
  CHECK(checked_expression("a - b - a * (b / a) / b", 2).text() == "a - b - a * (b / a) / b");
  CHECK(checked_expression("99999999999999999999", 1).text() == "K(99999999999999999999.0)");
  const auto place = [&](const std::string& expression, const std::string& what, int at) {
    INFO(expression);
    CHECK(refuse(expression, 2) == "[register_op] expected " + what + " at character " +
                                       std::to_string(at) + " of \"" + expression + "\"");
  };
  place("a +", "an operand", 4);
  place("a 2", "an operator instead of \"2\"", 3);
  place("a, a", "an operator instead of \",\"", 2);
  place("()", "an operand instead of \")\"", 2);
  place("a)", "balanced parentheses", 2);
  place("exp", "\"(\"", 4);
  place("exp(a, b)", "1 operand of exp", 1);
  place("pow(a)", "2 operands of pow", 1);
  place("a ? b", "\":\"", 6);
  place("1.2.3", "a number", 1);
  place("2x", "a number", 1);
  place("1e999", "a number that f64 holds", 1);
  place("K(a)", "a number in K()", 3);
  place("a = b", "an operator instead of \"=\"", 3);
  place("a % b",
        "remainder(a, b) or fmod(a, b) instead of \"%\", as the op computes in floating types", 3);
  place("a & b", "comparisons on both sides instead of \"&\", as the op computes in floating types",
        3);
  CHECK(
      refuse(std::string(100000, '('), 1).starts_with("[register_op] expected an expression that"));
  CHECK(refuse(std::string(100000, '-') + "a", 1)
            .starts_with("[register_op] expected an expression that"));
  CHECK_NOTHROW(checked_expression(std::string(100, '(') + "a" + std::string(100, ')'), 1));
  CHECK(Expression("K(0.5) * a * (K(1) + erf(a * K(0.7)))").flops() == 5);
}

TEST_CASE("a user's integer expression never stops the program", "[register]") {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const auto op = [](const char* name, const char* expression) {
    return register_op(PointwiseOp{.name = name,
                                   .arity = 2,
                                   .expression = expression,
                                   .rule = DTypeRule::same,
                                   .types = dtype_sets::integral});
  };
  static const Op divide = op("test_divide", "a / b"), rest = op("test_rest", "a % b"),
                  left = op("test_left", "a << b"), right = op("test_right", "a >> b");
  using I64 = std::vector<std::int64_t>;
  const Tensor a = tensor(I64{7, -7, 7, least, -7}, {5}), b = tensor(I64{2, 2, 0, -1, -2}, {5});
  CHECK(to_vector<std::int64_t>(call_op(divide, {a, b})) == I64{3, -3, 0, least, 3});
  CHECK(to_vector<std::int64_t>(call_op(rest, {a, b})) == I64{1, -1, 0, 0, -1});
  CHECK(to_vector<std::int64_t>(call_op(left, {a, b})) == I64{28, -28, 7, 0, 0});
  CHECK(to_vector<std::int64_t>(call_op(right, {a, b})) == I64{1, -2, 7, 0, 0});
  CHECK(to_vector<std::int64_t>(call_op(left, {a, 64})) == I64(5, 0));
  CHECK(to_vector<std::int32_t>(call_op(left, {cast(b, i32), 31})) ==
        std::vector<std::int32_t>{0, 0, 0, std::numeric_limits<std::int32_t>::min(), 0});

  const auto refuse = [](const char* expression) {
    return test::error_of([&] { checked_expression(expression, 2, dtype_sets::numbers); });
  };
  CHECK(refuse("a * 0.5").find("an integer instead of \"0.5\"") != std::string::npos);
  CHECK(refuse("a + 3000000000").find("an integer that i32 holds") != std::string::npos);
  CHECK(refuse("exp(a)").find("floating types alone for \"exp\"") != std::string::npos);
  CHECK(checked_expression("a / 2 - b", 2, dtype_sets::numbers).text() == "quotient(a, K(2)) - b");
  CHECK(checked_expression("-2147483648 - a", 1, set_of(i32)).text() == "K(-2147483648) - a");
  CHECK(checked_expression("a + K(-9223372036854775808)", 1, set_of(i64)).text() ==
        "a + K(-9223372036854775807 - 1)");
}

TEST_CASE("truth values in expressions are numbers of the type computed in", "[register]") {
  const auto op = [](const char* name, const char* expression, DTypeRule rule, DTypeSet types) {
    return register_op(PointwiseOp{
        .name = name, .arity = 3, .expression = expression, .rule = rule, .types = types});
  };
  using enum DTypeRule;
  const Tensor a = tensor({1, 2, 3}), b = tensor({3, 2, 1}), c = tensor({0, 5, 9});
  const auto floats = [&](const char* name, const char* expression) {
    return to_vector<float>(
        call_op(op(name, expression, float_like, dtype_sets::floats), {a, b, c}));
  };
  using F = std::vector<float>;
  CHECK(floats("test_flag_sum", "((a < b) + (b < c) + 1) / (1 + (a > b) + (a > c))") == F{1, 2, 1});
  const F quotients = floats("test_flag_quotient", "(a < b) / (c < c)");
  CHECK((std::isinf(quotients[0]) && std::isnan(quotients[1])));
  CHECK(floats("test_flag_max", "maximum((a < b) + (b < c), 1) + exp(-(a < b)) * 0") == F{1, 1, 1});
  CHECK(floats("test_flag_choice", "a > b ? (a > c) - (a < c) : -(a < b)") == F{-1, 0, -1});
  CHECK(floats("test_flag_not", "!a / !b + sqrt((a > 0) + (b > 0)) * 0 == 0 ? 1 : 2") ==
        F{2, 2, 2});
  static const Op chosen =
      op("test_flag_select", "maximum(b, c) + a * b", select, dtype_sets::floats);
  CHECK(to_vector<float>(call_op(chosen, {lt(a, b), b, c})) == F{6, 5, 9});

  const Tensor t = tensor<bool>({true, true, false, false}),
               f = tensor<bool>({true, false, true, false});
  const auto bits = [&](const char* name, const char* expression) {
    return to_vector<bool>(call_op(op(name, expression, same, dtype_sets::all), {t, f, f}));
  };
  using B = std::vector<bool>;
  CHECK(bits("test_bits_max", "maximum(a + b, b) - minimum(floor(a), pow(b, a))") ==
        B{false, true, true, false});
  static const Op inverse = op("test_bits_not", "~(a & b) | ~(a + c)", same, set_of(boolean));
  CHECK(to_vector<bool>(call_op(inverse, {t, f, f})) == B{false, true, true, true});
  static const Op whole =
      op("test_flags_of_integers", "((a < b) + (b < c)) / (a - b) + ((a < b) + (b < c)) % 2", same,
         dtype_sets::integral);
  using I = std::vector<std::int64_t>;
  CHECK(to_vector<std::int64_t>(call_op(whole, {cast(a, i64), cast(b, i64), cast(c, i64)})) ==
        I{1, 1, 1});
}

TEST_CASE("a gradient that reads what its op does not need is refused by letter", "[register]") {
  using Rule = std::function<void(Gradient&)>;
  auto says = [count = 0](const std::string& needs, const Rule& rule) mutable {
    const std::string name = "test_needs_" + std::to_string(count++);
    const Op op = register_op(
        {.name = name, .arity = 2, .expression = "a * b", .gradient = rule, .needs = needs});
    const Tensor x = requires_grad_(ones({2})), y = requires_grad_(ones({2}));
    const std::string text = test::error_of([&] { backward(sum(call_op(op, {x, y}))); });
    return text.starts_with("[" + name + "] ") ? text.substr(name.size() + 3) : text;
  };
  const auto missing = [](const std::string& letter) {
    return "expected its gradient rule to read values that `needs` names, got " + letter +
           "; add \"" + letter + "\" to `needs`";
  };
  CHECK(says("a", [](Gradient& r) { r.set(0, r.g() * r.operand(1)); }) == missing("b"));
  CHECK(says("b", [](Gradient& r) { r.set(1, r.g() * r.operand(0)); }) == missing("a"));
  CHECK(says("", [](Gradient& r) { r.set(0, r.g() * r.result()); }) == missing("y"));
  CHECK(says("b", [](Gradient& r) { r.set(0, r.g() * r.operand(1)); }) == "");
  CHECK(says("y", [](Gradient& r) { r.set(0, r.g() * r.result()); }) == "");

  StructuredOp pair;
  pair.name = "test_needs_pair";
  pair.outputs = 2;
  pair.infer = [](const Call& call, OutputSpec* outputs) {
    for (int i = 0; i < 2; ++i) outputs[i] = {f32, call.input(0).device(), call.input(0).shape()};
  };
  pair.cpu = [](const Call& call, Tensor* outputs) {
    for (int i = 0; i < 2; ++i) copy_(outputs[i], call.input(0));
  };
  pair.cost = cost_of_moving;
  pair.gradient = [](Gradient& r) { r.set(0, r.g() * r.result(1)); };
  pair.needs = "a y0";
  const Op op = register_op(pair);
  const Tensor x = requires_grad_(ones({2}));
  CHECK(test::error_of([&] { backward(sum(call_op(op, {x}, {})[0])); }) ==
        "[test_needs_pair] " + missing("y1"));
}

TEST_CASE("names are taken once", "[register]") {
  register_op(PointwiseOp{.name = "test_once", .expression = "a"});
  CHECK(test::error_of([] { register_op(PointwiseOp{.name = "test_once", .expression = "a"}); }) ==
        "[register_op] expected a new name, got \"test_once\", which exists");
  CHECK(test::error_of([] { register_op(PointwiseOp{.name = "add", .expression = "a"}); }) ==
        "[register_op] expected a new name, got \"add\", which exists");
  CHECK(test::error_of([] {
          register_op(PointwiseOp{.name = "a b", .expression = "a"});
        }).find("letters") != std::string::npos);
}

TEST_CASE("a registered structured op runs its functions", "[register]") {
  StructuredOp definition;
  definition.cost = cost_of_moving;
  definition.name = "test_outer";
  definition.inputs = 2;
  definition.outputs = 2;
  definition.attributes = "factor:double";
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
  const auto results = call_op(outer, {tensor({1, 2}), tensor({3, 4, 5})}, {2});
  CHECK(to_vector<float>(results[0]) == std::vector<float>{6, 8, 10, 12, 16, 20});
  CHECK(item(results[1]) == 6);
  CHECK(test::error_of([&] {
          call_op(outer, {zeros({2, 2}), zeros({2})}, {1.0});
        }) == "[test_outer] expected two vectors");
  CHECK(test::error_of([&] { call_op(outer, {zeros({2})}, {1.0}); }) ==
        "[test_outer] expected 2 tensors, got 1");
  CHECK(test::error_of([&] {
          call_op(outer, {zeros({2}), zeros({2})}, {});
        }) == "[test_outer] expected 1 attributes (factor:double), got 0");
  CHECK(test::error_of([&] { call_op(Op::view, {zeros({3})}, {1000000}); }).find("built-in") !=
        std::string::npos);
}

TEST_CASE("registered ops have as many operands, attributes and outputs as a call", "[register]") {
  const Tensor x = tensor({1, 2, 3});
  for (const int arity : {kMaxPointwiseArity - 1, kMaxPointwiseArity, kMaxPointwiseArity + 1}) {
    std::string expression = "a";
    for (int i = 1; i < arity; ++i) expression += std::string(" + ") + static_cast<char>('a' + i);
    const PointwiseOp definition{
        .name = "test_arity_" + std::to_string(arity), .arity = arity, .expression = expression};
    if (arity > kMaxPointwiseArity) {
      CHECK(test::error_of([&] { register_op(definition); }) ==
            "[register_op] expected test_arity_4 to have 1 to 3 operands, got 4");
    } else {
      const std::vector<Operand> operands(static_cast<std::size_t>(arity), Operand(x));
      CHECK(item(select(call_op(register_op(definition), operands), 0, 1)) == 2 * arity);
    }
  }
  // Output k is the sum of k and all attributes.
  const auto structured = [](int attributes, int outputs) {
    StructuredOp definition;
    definition.cost = cost_of_moving;
    definition.name = "test_call_" + std::to_string(attributes) + "_" + std::to_string(outputs);
    definition.outputs = outputs;
    for (int i = 0; i < attributes; ++i)
      definition.attributes += (i ? " n" : "n") + std::string(1, static_cast<char>('a' + i));
    definition.infer = [outputs](const Call&, OutputSpec* specs) {
      for (int k = 0; k < outputs; ++k) specs[k] = {i64, cpu, Dims{}};
    };
    definition.cpu = [attributes, outputs](const Call& call, Tensor* results) {
      for (int k = 0; k < outputs; ++k) {
        results[k].data<std::int64_t>()[0] = k;
        for (int i = 0; i < attributes; ++i)
          results[k].data<std::int64_t>()[0] += call.attrs[i].i();
      }
    };
    return definition;
  };
  for (const auto& [attributes, outputs] :
       {std::pair{kMaxAttrs - 1, kMaxOutputs - 1}, {kMaxAttrs, kMaxOutputs}}) {
    std::vector<Scalar> numbers;
    for (int i = 0; i < attributes; ++i) numbers.emplace_back(100 + i);
    const std::vector<Tensor> inputs = {x};
    const auto results = call_op(register_op(structured(attributes, outputs)), inputs, numbers);
    CHECK(item(results[static_cast<std::size_t>(outputs - 1)]) ==
          outputs - 1 + 100 * attributes + attributes * (attributes - 1) / 2);
  }
  CHECK(test::error_of([&] { register_op(structured(kMaxAttrs + 1, 1)); }) ==
        "[register_op] expected test_call_11_1 to have at most 10 attributes, got "
        "\"na nb nc nd ne nf ng nh ni nj nk\"");
  CHECK(test::error_of([&] { register_op(structured(1, kMaxOutputs + 1)); }) ==
        "[register_op] expected test_call_1_5 to have 1 to 4 outputs, got 5");
}

TEST_CASE("definitions name the members that they need", "[register]") {
  // Without a default for each of the others -Wextra warns here, which fails the build.
  static const Op twice =
      register_op(PointwiseOp{.name = "test_named_members", .expression = "a * 2"});
  static const Op same = register_op(
      StructuredOp{.name = "test_named_functions",
                   .infer =
                       [](const Call& call, OutputSpec* out) {
                         out[0] = {f32, cpu, Dims(call.input(0).shape())};
                       },
                   .cpu = [](const Call& call, Tensor* out) { copy_(out[0], call.input(0)); },
                   .cost = cost_of_moving});
  CHECK(to_vector<float>(call_op(same, {call_op(twice, {tensor({1, 2})})})) ==
        std::vector<float>{2, 4});
  CHECK(test::error_of([] {
          register_op(StructuredOp{.name = "test_named_kernel", .cuda_kernel = {.source = "text"}});
        }).find("[register_op]") == 0);
}

TEST_CASE("a rule knows its operands when the first output has no gradient",
          "[register][autograd]") {
  StructuredOp definition;
  definition.cost = cost_of_moving;
  definition.name = "test_once_and_twice";
  definition.inputs = 1;
  definition.outputs = 2;
  definition.infer = [](const Call& call, OutputSpec* outputs) {
    for (int i = 0; i < 2; ++i) outputs[i] = {f32, cpu, Dims(call.input(0).shape())};
  };
  definition.cpu = [](const Call& call, Tensor* outputs) {
    for (int i = 0; i < 2; ++i) {
      for (std::int64_t at = 0; at < call.input(0).numel(); ++at)
        outputs[i].data<float>()[at] = call.input(0).data<float>()[at] * static_cast<float>(i + 1);
    }
  };
  definition.gradient = [](Gradient& r) {
    const Like x = r.like(0);
    Tensor sum = zeros(x.shape, {x.dtype, x.device});
    if (r.g(0).defined()) sum = sum + r.g(0);
    if (r.g(1).defined()) sum = sum + r.g(1) * 2;
    r.set(0, sum);
  };
  static const Op op = register_op(definition);
  const Tensor x = requires_grad_(tensor({1.0f, 2.0f}));
  const auto gradient_of = [&](int output) {
    return to_vector<float>(grad(sum(call_op(op, {x}, {})[output]), x));
  };
  CHECK(gradient_of(0) == std::vector<float>{1, 1});
  CHECK(gradient_of(1) == std::vector<float>{2, 2});
}

TEST_CASE("call_op takes what the attributes' names say", "[register]") {
  static const Op described =
      register_op(StructuredOp{.name = "test_described",
                               .attributes = "axis scale:double",
                               .infer =
                                   [](const Call& call, OutputSpec* outputs) {
                                     outputs[0] = {f64, cpu, Dims{2}};
                                     (void)call;
                                   },
                               .cpu =
                                   [](const Call& call, Tensor* outputs) {
                                     outputs[0].data<double>()[0] =
                                         static_cast<double>(call.attrs[0].i());
                                     outputs[0].data<double>()[1] = call.attrs[1].d();
                                   },
                               .cuda = {},
                               .cuda_kernel = {},
                               .cost = cost_of_moving});
  const Tensor x = zeros({1});
  const auto values = [&](Scalar axis, Scalar scale) {
    return to_vector<double>(call_op(described, {x}, {axis, scale})[0]);
  };
  CHECK(values(3, 0.25) == std::vector<double>{3, 0.25});
  CHECK(values(true, 2) == std::vector<double>{1, 2});
  CHECK(
      test::error_of([&] { values(0.5, 1); }) ==
      "[test_described] expected an integer for attribute axis, got 0.5: \"axis:double\" takes it");
  const std::vector<Tensor> inputs{x};
  const std::vector<Scalar> attributes{7, 8};
  CHECK(to_vector<double>(call_op(described, inputs, attributes)[0]) == std::vector<double>{7, 8});
  CHECK(test::error_of([&] { call_op(described, {x}); }) ==
        "[test_described] expected 2 attributes (axis scale:double), got 0");
  CHECK(test::error_of([] {
          register_op(StructuredOp{.name = "test_kind",
                                   .attributes = "scale:float",
                                   .infer = [](const Call&, OutputSpec*) {},
                                   .cpu = {},
                                   .cuda = {},
                                   .cuda_kernel = {}});
        }) == "[register_op] expected attributes as \"axis\" or \"scale:double\", got scale:float");
  static_assert(!std::is_constructible_v<Attr, double> && !std::is_convertible_v<float, Attr>);
}

TEST_CASE("operands alone call a structured op of one output", "[register]") {
  static const Op twice =
      register_op(StructuredOp{.name = "test_twice",
                               .attributes = "",
                               .infer =
                                   [](const Call& call, OutputSpec* outputs) {
                                     outputs[0] = {f32, cpu, Dims(call.input(0).shape())};
                                   },
                               .cpu =
                                   [](const Call& call, Tensor* outputs) {
                                     for (std::int64_t i = 0; i < call.input(0).numel(); ++i)
                                       outputs[0].data<float>()[i] =
                                           2 * call.input(0).data<float>()[i];
                                   },
                               .cuda = {},
                               .cuda_kernel = {},
                               .cost = cost_of_moving});
  CHECK(to_vector<float>(call_op(twice, {tensor({1, 2})})) == std::vector<float>{2, 4});
  CHECK(test::error_of([] { call_op(twice, {1.5}); }) ==
        "[test_twice] expected tensors, got a number");
  CHECK(test::error_of([] {
          call_op(twice, {zeros({1}), zeros({1})});
        }) == "[test_twice] expected 1 tensors, got 2");
  CHECK(test::error_of([] { call_op(Op::add, {zeros({1})}); }) ==
        "[add] expected 2 tensors or numbers, got 1");
  const std::vector<Operand> operands{1, 2.5};
  CHECK(test::error_of([&] { call_op(Op::add, operands); }).find("numbers only") !=
        std::string::npos);
  const Tensor x = tensor({1, 2});
  const std::vector<Operand> mixed{x, 2};
  CHECK(to_vector<float>(call_op(Op::mul, mixed)) == std::vector<float>{2, 4});
}

TEST_CASE("calls are described with their attributes' values", "[observe]") {
  struct Last : Observer {
    std::string text;
    void before(const Call& call) override { text = describe(call); }
  } last;
  static const Op scaled = register_op(
      StructuredOp{.name = "test_scaled",
                   .attributes = "axis scale:double",
                   .infer =
                       [](const Call&, OutputSpec* outputs) {
                         outputs[0] = {f32, cpu, Dims{}};
                       },
                   .cpu = [](const Call&, Tensor* outputs) { outputs[0].data<float>()[0] = 0; },
                   .cuda = {},
                   .cuda_kernel = {},
                   .cost = cost_of_moving});
  Observing observing(last);
  full({2}, 2.5);
  CHECK(last.text == "full(value=2.5, shape=[2])");
  full({2}, 7, {.dtype = i64});
  CHECK(last.text == "full(value=7, shape=[2])");
  arange(0.5, 3, 0.25);
  CHECK(last.text == "arange(start=0.5, step=0.25, length=10)");
  arange(1, 7, 2);
  CHECK(last.text == "arange(start=1, step=2, length=3)");
  call_op(scaled, {zeros({2})}, {1, 0.125});
  CHECK(last.text == "test_scaled(f32[2], axis=1, scale=0.125)");
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
