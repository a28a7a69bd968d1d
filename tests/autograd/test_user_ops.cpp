// Gradients of registered ops: several outputs, wrong gradients, gradients that throw.
#include <brrr/brrr.h>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/register_op.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of;

namespace {

using Numbers = std::vector<double>;
Numbers numbers(const Tensor& x) { return to_vector<double>(x); }
Tensor leaf(std::vector<double> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return requires_grad_(tensor<double>(values, {n}));
}

void as_the_input(const Call& call, OutputSpec* out) {
  for (int i = 0; i < op_info(call.op).n_outputs; ++i)
    out[i] = {call.input(0).dtype(), call.input(0).device(), Dims(call.input(0).shape())};
}

// sin and cos of one input, each the other's derivative.
Op sin_and_cos() {
  static const Op op = [] {
    StructuredOp row;
    row.cost = cost_of_moving;
    row.name = "sin_and_cos";
    row.outputs = 2;
    row.infer = as_the_input;
    row.cpu = [](const Call& call, Tensor* out) {
      copy_(out[0], sin(call.input(0)));
      copy_(out[1], cos(call.input(0)));
    };
    row.gradient = [](Gradient& r) {
      Tensor by_input;
      if (r.g(0).defined()) by_input = r.g(0) * r.result(1);
      if (r.g(1).defined()) {
        const Tensor part = r.g(1) * r.result(0);
        by_input = by_input.defined() ? by_input - part : -part;
      }
      r.set(0, by_input);
    };
    row.needs = "y0 y1";
    return register_op(row);
  }();
  return op;
}

// A copy whose gradient rule is a parameter.
std::function<void(Gradient&)> rule_of_copy;
Op told_copy() {
  static const Op op = [] {
    StructuredOp row;
    row.cost = cost_of_moving;
    row.name = "told_copy";
    row.infer = as_the_input;
    row.cpu = [](const Call& call, Tensor* out) { copy_(out[0], call.input(0)); };
    row.gradient = [](Gradient& r) { rule_of_copy(r); };
    return register_op(row);
  }();
  return op;
}

}  // namespace

TEST_CASE("an op of several outputs, of which some have a gradient", "[autograd][user-ops]") {
  const Tensor x = leaf({0.3, -1.2});
  const auto both = [&] { return call_op(sin_and_cos(), {x}, {}); };
  CHECK(numbers(grad(sum(both()[0]), x)) == numbers(cos(detach(x))));
  CHECK(numbers(grad(sum(both()[1]), x)) == numbers(-sin(detach(x))));
  const auto outputs = both();
  CHECK(numbers(grad(sum(outputs[0] + outputs[1]), x)) == numbers(cos(detach(x)) - sin(detach(x))));
  // An output as an input, and hooks on one of them.
  const auto again = both();
  int calls = 0;
  register_hook(again[1], [&](const Tensor& g) {
    ++calls;
    return g * 2;
  });
  retain_grad(again[0]);
  backward(sum(again[1] * 3 + again[0]));
  CHECK(calls == 1);
  CHECK(numbers(grad(again[0])) == Numbers{1, 1});
  CHECK(numbers(grad(x)) == numbers(cos(detach(x)) - sin(detach(x)) * 6));
  const auto third = both();
  CHECK(numbers(grad(sum(third[1] * 5), third[1])) == Numbers{5, 5});
  for (const int which : {0, 1, 2}) {
    const GradcheckResult result = gradcheck(
        [which](std::span<const Tensor> in) {
          const auto y = call_op(sin_and_cos(), {in[0]}, {});
          return which == 2 ? std::vector<Tensor>{y[0] * y[1], y[1]}
                            : std::vector<Tensor>{y[static_cast<std::size_t>(which)]};
        },
        {x}, {.second_order = true});
    INFO(result.message);
    CHECK(result);
  }
}

TEST_CASE("a user's gradient that throws, or is of another form, changes nothing",
          "[autograd][user-ops]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const auto loss = [&] { return sum(call_op(told_copy(), {x}, {})[0] * w) + sum(w); };
  rule_of_copy = [](Gradient& r) { r.set(0, r.g()); };
  backward(loss());
  const auto fails = [&](std::function<void(Gradient&)> rule, const char* text) {
    rule_of_copy = std::move(rule);
    try {
      backward(loss());
      FAIL("nothing was thrown");
    } catch (const std::exception& error) {
      CHECK_THAT(error.what(), Catch::Contains(text));
    }
    CHECK(numbers(grad(x)) == Numbers{3, 4});
    CHECK(numbers(grad(w)) == Numbers{2, 3});
  };
  fails([](Gradient&) { throw std::runtime_error("the user's own"); }, "the user's own");
  fails([](Gradient& r) { matmul(r.g(), ones({3, 3}, {f64, cpu})); }, "[matmul] expected");
  fails([](Gradient& r) { r.set(0, sum(r.g())); }, "[told_copy] expected its gradient rule");
  fails([](Gradient& r) { r.set(0, cast(r.g(), f32)); }, "f64[2], got f32[2]");
  for (const int i : {-1, 1, 3, 4, 1000}) {
    fails([i](Gradient& r) { r.set(i, r.g()); }, "[told_copy] expected its gradient rule to name");
  }
  for (const int i : {-1, 4}) {
    fails([i](Gradient& r) { r.operand(i); }, "to name an operand of the call, got number");
    fails([i](Gradient& r) { r.wants(i); }, "to name an operand of the call, got number");
    fails([i](Gradient& r) { r.like(i); }, "to name an operand of the call, got number");
    fails([i](Gradient& r) { r.g(i); }, "to name one of 1 outputs, got number");
    fails([i](Gradient& r) { r.result(i); }, "to name one of 1 outputs, got number");
  }
  rule_of_copy = [](Gradient& r) { r.set(0, r.g() * 10); };
  backward(loss());
  CHECK(numbers(grad(x)) == Numbers{33, 44});
  // Nothing given is zero.
  rule_of_copy = [](Gradient&) {};
  CHECK(numbers(grad(loss(), x)) == Numbers{0, 0});
}
