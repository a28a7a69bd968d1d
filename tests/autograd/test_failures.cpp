// Errors of autograd and their texts; a failed backward changes no gradient.
#include <brrr/brrr.h>

#include <limits>

#include "brrr/dispatch/observe.h"
#include "brrr/ops/register_op.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/catch.h"
#include "tests/harness/doubles.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of, test::leaf, test::Numbers, test::numbers, test::wide;

namespace {

// Copies its input, and has no gradient.
Op ungraded() {
  static const Op op = [] {
    StructuredOp row;
    row.cost = cost_of_moving;
    row.name = "ungraded";
    row.infer = [](const Call& call, OutputSpec* out) {
      out[0] = {call.input(0).dtype(), call.input(0).device(), Dims(call.input(0).shape())};
    };
    row.cpu = [](const Call& call, Tensor* out) { copy_(out[0], call.input(0)); };
    return register_op(row);
  }();
  return op;
}

struct Misuse {
  std::function<void()> run;
  std::vector<const char*> texts;
};

// Each throws an error with these texts, and leaves no gradient.
void check_misuses(const Tensor& x, const std::vector<Misuse>& misuses) {
  for (std::size_t i = 0; i < misuses.size(); ++i) {
    const std::string text = error_of(misuses[i].run);
    for (const char* part : misuses[i].texts) {
      INFO("case " << i);
      CHECK_THAT(text, Catch::Contains(part));
    }
    CHECK_FALSE(grad(x).defined());
  }
}

}  // namespace

TEST_CASE("misuse of gradients throws errors that name it", "[autograd][bad-input]") {
  const Tensor x = leaf({1, 2}), constant = wide({1, 2});
  const Tensor y = x * 2, integers = arange(2);
  const Tensor undefined;
  const std::vector<Tensor> none, outputs = {y};
  check_misuses(
      x,
      {
          {[&] { backward(y); },
           {"[backward] expected an output of one element, or its gradient, got f64[2]"}},
          {[&] { backward(constant, constant); },
           {"[backward] expected a tensor that was computed from one that requires a gradient, got "
            "f64[2]"}},
          {[&] { backward(sum(constant)); },
           {"[backward] expected a tensor that was computed", "f64[]"}},
          {[&] { backward(integers, integers); },
           {"[backward] expected a tensor that was computed", "i64[2]"}},
          {[&] { backward(detach(sum(y))); }, {"[backward] expected a tensor that was computed"}},
          {[&] { backward(undefined); }, {"[backward] expected a tensor, got an undefined one"}},
          {[&] {
             backward(y, ones({3}, {f64, cpu}));
           },
           {"[backward] expected a gradient like the output f64[2], got f64[3]"}},
          {[&] {
             backward(y, ones({2, 1}, {f64, cpu}));
           },
           {"f64[2], got f64[2, 1]"}},
          {[&] { backward(y, ones({2})); },
           {"[backward] expected a gradient like the output f64[2], got f32[2]"}},
          {[&] { backward(y, integers); }, {"got i64[2]"}},
          {[&] { backward(outputs, none, {}); }, {"[backward] expected an output of one element"}},
          {[&] { backward(none, none, {}); },
           {"[backward] expected outputs and as many gradients or none, got 0 and 0"}},
          {[&] { backward(outputs, std::vector<Tensor>(2), {}); },
           {"[backward] expected outputs and as many gradients or none, got 1 and 2"}},
          {[&] { grad(y, x); },
           {"[grad] expected an output of one element, or its gradient, got f64[2]"}},
          {[&] { grad(sum(y), constant); },
           {"[grad] expected a tensor that was computed from one that requires a gradient",
            "f64[2]"}},
          {[&] { grad(sum(constant), x); },
           {"[grad] expected a tensor that was computed", "f64[]"}},
          {[&] { grad(undefined, x); }, {"[grad] expected a tensor, got an undefined one"}},
          {[&] { grad(sum(y), undefined); }, {"[grad] expected a tensor, got an undefined one"}},
          {[&] { grad(outputs, none); },
           {"[grad] expected outputs, inputs, and as many gradients as outputs or none, got 1, 0 "
            "and "
            "0"}},
          {[&] { grad(none, outputs); }, {"got 0, 1 and 0"}},
          {[&] {
             grad(y, x, {.gradients = {constant, constant}});
           },
           {"got 1, 1 and 2"}},
          {[&] { grad(y, x, {.gradients = {ones({3})}}); },
           {"[grad] expected a gradient like the output f64[2], got f32[3]"}},
      });
}

TEST_CASE("misuse of leaves and of the tape throws errors that name it", "[autograd][bad-input]") {
  const Tensor x = leaf({1, 2}), constant = wide({1, 2});
  const Tensor y = x * 2;
  const Tensor undefined;
  check_misuses(
      x,
      {
          {[&] {
             set_grad(x, ones({3}, {f64, cpu}));
           },
           {"[set_grad] expected a gradient like f64[2], got f64[3]"}},
          {[&] { set_grad(x, ones({2})); },
           {"[set_grad] expected a gradient like f64[2], got f32[2]"}},
          {[&] { set_grad(x, undefined); },
           {"[set_grad] expected a gradient like f64[2], got an undefined tensor"}},
          {[&] { set_grad(y, y); }, {"[set_grad] expected a leaf, got f64[2]"}},
          {[&] { set_grad(constant, constant); },
           {"[set_grad] expected a leaf that requires a gradient, got f64[2]"}},
          {[&] { zero_grad(y); }, {"[zero_grad] expected a leaf, got f64[2]"}},
          {[&] { zero_grad(constant); }, {"[zero_grad] expected a leaf that requires a gradient"}},
          {[&] { zero_grad(undefined); }, {"[zero_grad] expected a tensor, got an undefined one"}},
          {[&] { requires_grad_(Tensor(y), false); },
           {"[requires_grad_] expected a leaf, got f64[2]", "detach"}},
          {[&] { requires_grad_(Tensor()); },
           {"[requires_grad_] expected a tensor, got an undefined"}},
          {[&] { requires_grad(undefined); },
           {"[requires_grad] expected a tensor, got an undefined"}},
          {[&] { is_leaf(undefined); }, {"[is_leaf] expected a tensor, got an undefined"}},
          {[&] { grad_of(undefined); }, {"[grad_of] expected a tensor, got an undefined"}},
          {[&] { detach(undefined); }, {"[detach] expected a tensor, got an undefined"}},
          {[&] { saved_tensors(undefined); },
           {"[saved_tensors] expected a tensor, got an undefined"}},
          {[&] { checkpoint(Checkpointed(), {x}); },
           {"[checkpoint] expected a function, got none"}},
          {[&] { checkpoint(std::function<Tensor(const Tensor&)>(), x); },
           {"[checkpoint] expected a function, got none"}},
          {[&] { gradcheck(Differentiable(), {x}); },
           {"[gradcheck] expected a function, got none"}},
      });
  // And everything still works.
  backward(sum(y));
  CHECK(numbers(grad(x)) == Numbers{2, 2});
}

TEST_CASE("an op without a gradient is recorded, and refused when a gradient arrives",
          "[autograd][bad-input]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = call_op(ungraded(), {x * 2}, {})[0];
  CHECK(requires_grad(y));
  CHECK_THAT(error_of([&] { backward(sum(y)); }),
             Catch::Contains("[backward] ungraded has no gradient; register it with one"));
  CHECK_FALSE(grad(x).defined());
}

namespace {

// Two leaves that have gradients, and a graph over both whose middle fails.
struct Failing {
  Tensor x = leaf({1, 2}), w = leaf({3, 4});
  Tensor inner;

  Failing() {
    backward(sum(x * w));
    inner = x * 1;
    retain_grad(inner);
    backward(sum(inner * 5));
  }
  // What a failed backward must leave as it was.
  void check_untouched() const {
    CHECK(numbers(grad(x)) == Numbers{8, 9});
    CHECK(numbers(grad(w)) == Numbers{1, 2});
    CHECK(numbers(grad(inner)) == Numbers{5, 5});
    CHECK(grad_enabled());
  }
  // That a graph made afresh gives what it should.
  void check_works() const {
    backward(sum(x * x) + sum(w * 10));
    CHECK(numbers(grad(x)) == Numbers{10, 13});
    CHECK(numbers(grad(w)) == Numbers{11, 12});
  }
};

}  // namespace

TEST_CASE("a backward that fails at an op changes no gradient", "[autograd][failures]") {
  const Failing state;
  // w's gradient is complete when the op in the middle of x's way refuses.
  const Tensor y = sum(call_op(ungraded(), {state.x * 2}, {})[0] * state.w);
  for (const bool retain : {true, false}) {
    CHECK_THAT(error_of([&] { backward(y, {.retain_graph = retain}); }),
               Catch::Contains("ungraded has no gradient"));
    state.check_untouched();
  }
  state.check_works();
}

TEST_CASE("a backward that fails in a hook changes no gradient", "[autograd][failures]") {
  struct Thrown : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  const auto throws = [](const Tensor&) -> Tensor { throw Thrown("from a hook"); };
  SECTION("of an inner value") {
    const Failing state;
    const Tensor middle = state.x * 3;
    register_hook(middle, throws);
    const Tensor again = state.x * 7;
    retain_grad(again);
    CHECK_THROWS_AS(backward(sum(middle * state.w) + sum(again)), Thrown);
    state.check_untouched();
    CHECK_FALSE(grad(again).defined());
    state.check_works();
  }
  SECTION("of a leaf, whose turn comes last") {
    const Failing state;
    Tensor last = leaf({1, 1});
    register_hook(last, throws);
    CHECK_THROWS_AS(backward(sum(state.x * state.w) + sum(last)), Thrown);
    CHECK_THROWS_AS(backward(sum(last) + sum(state.x * state.w)), Thrown);
    state.check_untouched();
    CHECK_FALSE(grad(last).defined());
    state.check_works();
  }
  SECTION("under grad") {
    const Failing state;
    const Tensor middle = state.x * 3;
    register_hook(middle, throws);
    CHECK_THROWS_AS(grad(sum(middle * state.w), {state.x, state.w}), Thrown);
    state.check_untouched();
    state.check_works();
  }
}

TEST_CASE("a backward that fails while it runs a checkpoint again changes no gradient",
          "[autograd][failures]") {
  const Failing state;
  int runs = 0;
  const auto fn = [&](const Tensor& x) {
    if (++runs == 2) throw std::runtime_error("the second time");
    return exp(x);
  };
  const Tensor y = sum(checkpoint(fn, state.x) * state.w);
  CHECK_THROWS_WITH(backward(y), Catch::Contains("the second time"));
  state.check_untouched();
  state.check_works();
}

namespace {

// Throws at the k-th call from now on.
class FailingCall final : public Observer {
 public:
  explicit FailingCall(int k) : left_(k) {}
  void before(const Call&) override {
    if (--left_ == 0) throw std::runtime_error("planted");
  }
  bool done() const { return left_ <= 0; }

 private:
  int left_;
};

struct Step {
  Tensor loss, inner;
};

Step recorded(const Tensor& w, const Tensor& b, const Tensor& x, const Tensor& other) {
  manual_seed(5);
  const Tensor inner = linear(x, w, b);
  retain_grad(inner);
  const Tensor y =
      checkpoint([&](const Tensor& v) { return dropout(gelu(v * other), 0.3); }, inner);
  return {mean(square(softmax(y + x, 1)) + exp(y)) + sum(cat({y, x}, 1)), inner};
}

using Floats = std::vector<float>;

// Empty where a leaf has none.
std::vector<Floats> gradients_of(std::span<const Tensor> leaves) {
  std::vector<Floats> values;
  for (const Tensor& leaf : leaves)
    values.push_back(grad(leaf).defined() ? to_vector<float>(grad(leaf)) : Floats{});
  return values;
}

}  // namespace

TEST_CASE("a backward that fails at its k-th call changes no gradient, for every k",
          "[autograd][failures]") {
  manual_seed(4);
  const Tensor w = requires_grad_(randn({3, 3})), b = requires_grad_(randn({3})),
               x = requires_grad_(randn({2, 3})), other = requires_grad_(randn({3}));
  const std::vector<Tensor> leaves = {w, b, x, other};
  GradientGroup group({w, b});
  const auto record = [&] { return recorded(w, b, x, other); };
  const auto state = [&] { return gradients_of(leaves); };
  for (const bool create_graph : {false, true}) {
    // Each leaf has a gradient already, so that accumulation may fail too.
    backward(record().loss);
    const auto before = state();
    std::vector<Floats> after;
    const std::int64_t live = memory_stats(cpu).live;
    int k = 1;
    for (bool failed = true; failed; ++k) {
      const Step step = record();
      FailingCall fails(k);
      {
        const Observing observing(fails);
        try {
          backward(step.loss, {.create_graph = create_graph});
          failed = false;
        } catch (const std::runtime_error& error) {
          CHECK(std::string(error.what()) == "planted");
        }
      }
      if (!failed) {
        after = state();
        CHECK(grad(step.inner).defined());
        // The kept gradient and its tape own each other: a gradient without a tape breaks the
        // cycle.
        if (create_graph) backward(step.loss);
        break;
      }
      INFO("call " << k);
      REQUIRE(state() == before);
      CHECK_FALSE(grad(step.inner).defined());
      CHECK(grad_enabled());
    }
    CHECK(k > 40);
    CHECK(after != before);
    if (!create_graph) CHECK(memory_stats(cpu).live == live);  // new gradients in place of old ones
    // One more of the same: what failed in between has added nothing.
    const float times = create_graph ? 4.f / 3 : 2;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      for (std::size_t e = 0; e < after[i].size(); ++e)
        CHECK(after[i][e] == Approx(times * before[i][e]));
    }
  }
  // With create_graph they hold the tape that made them, and so the leaves that hold them.
  group.clear();
  zero_grad(x), zero_grad(other);
}

TEST_CASE("a call that fails while it is recorded keeps nothing", "[autograd][failures]") {
  struct NoViews final : Observer {
    void before(const Call& call) override {
      if (call.op == Op::view) throw Error("no views");
    }
  } no_views;
  const Tensor w = requires_grad_(ones({2}));
  {
    const Observing observing(no_views);
    CHECK(error_of([&] { exp(w); }) == "no views");  // kept as a view of the result
  }
  CHECK(TensorImpl::of(w)->refs.load() == 1);
}

TEST_CASE("a failed backward of a retained graph can be tried again", "[autograd][failures]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = exp(x * 2);
  bool armed = true;
  register_hook(y, [&](const Tensor&) -> Tensor {
    if (armed) throw std::runtime_error("armed");
    return {};
  });
  const Tensor top = sum(y * y);
  CHECK_THROWS(backward(top, {.retain_graph = true}));
  CHECK_FALSE(grad(x).defined());
  armed = false;
  backward(top);
  CHECK(numbers(grad(x))[0] == Approx(4 * std::exp(4.0)));
}

TEST_CASE("anomaly mode names the op whose gradient is not finite", "[autograd][anomaly]") {
  const Tensor x = leaf({0, 4}), w = leaf({1, 1});
  const auto loss = [&] { return sum(sqrt(x * w) * 2); };
  backward(loss());  // silent: inf, and at the product inf * 0
  CHECK(std::isinf(numbers(grad(x))[0]));
  zero_grad(x);
  zero_grad(w);
  {
    const DetectAnomaly anomaly;
    CHECK_THAT(error_of([&] { backward(loss()); }),
               Catch::Contains("[backward] sqrt made a gradient that is not finite for operand 0, "
                               "f64[2]"));
    CHECK_FALSE(grad(x).defined());
    { const DetectAnomaly nested; }
    CHECK_THAT(error_of([&] { grad(sum(log(x)), x); }),
               Catch::Contains("[backward] log made a gradient that is not finite"));
    backward(sum(x * 2));
    CHECK(numbers(grad(x)) == Numbers{2, 2});
  }
  backward(loss());
  CHECK(std::isinf(numbers(grad(x))[0]));
}
