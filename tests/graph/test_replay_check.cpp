// CompileOptions::verify: replays beside eager calls.
#include <optional>

#include "brrr/nn/dropout.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/nn/parameters.h"
#include "brrr/ops/register_op.h"
#include "tests/harness/compile_stories.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// A training step: dropout, gradients, an optimizer with state, a counter written in place.
struct Training {
  nn::MLP model{{3, 8, 2}};
  std::optional<nn::Parameters> packed;
  std::optional<optim::Optimizer> optimizer;
  Tensor count = zeros({1});
  int runs = 0;

  explicit Training(bool pack) {
    if (pack) packed.emplace(model);
    std::vector<Tensor> leaves;
    for (const auto& [name, leaf] : model.named_parameters()) leaves.push_back(leaf);
    if (pack) {
      optimizer.emplace(*packed, optim::adam(0.01));
    } else {
      optimizer.emplace(leaves, optim::adam(0.01));
    }
  }
  Tensor operator()(const Tensor& x, Tensor written) {
    ++runs;
    optimizer->zero_grad();
    const Tensor loss = sum(square(dropout(model(x), 0.3) + rand({2, 2}) * 0.1));
    backward(loss);
    optimizer->step();
    add_(count, 1);
    mul_(written, 0.5);
    return loss;
  }
};

// What some calls give, and the numbers that are drawn after them.
Lines lines_of(bool pack, const CompileOptions& options, int& runs) {
  manual_seed(5);
  Training training(pack);
  Lines lines;
  {
    auto step = compile([&](const Tensor& x, const Tensor& y) { return training(x, y); }, options);
    for (int i = 0; i < 5; ++i) {
      const Tensor written = noise({4}, 9);
      lines.push_back(bits_of(step(noise({2, 3}, static_cast<std::uint64_t>(i + 1)), written)));
      lines.push_back(bits_of(written) + bits_of(training.count));
      for (const auto& [name, leaf] : training.model.named_parameters())
        lines.push_back(bits_of(leaf) + bits_of(grad(leaf)));
    }
  }
  lines.push_back(bits_of(rand({4})));
  runs = training.runs;
  return lines;
}

// The VerifyError that f throws.
template <class F>
std::optional<VerifyError> verify_error_of(F f) {
  try {
    f();
  } catch (const VerifyError& error) {
    return error;
  }
  return {};
}

const std::string kHere = "test_replay_check.cpp:";

}  // namespace

TEST_CASE("verify: a step without a difference gives what it gives unverified", "[verify]") {
  for (const bool pack : {false, true}) {
    for (const Mode mode : {Mode::graph, Mode::fused}) {
      for (const Rounding rounding : {Rounding::eager, Rounding::fast}) {
        INFO("packed " << pack << ", mode " << static_cast<int>(mode) << ", rounding "
                       << static_cast<int>(rounding));
        CompileOptions options{.mode = mode, .rounding = rounding, .fallback = OnFallback::refuse};
        int plain = 0, verified = 0;
        const Lines expected = lines_of(pack, options, plain);
        CHECK(plain == 1);
        options.verify = 3;
        CHECK(lines_of(pack, options, verified) == expected);
        CHECK(verified == 1 + 3);  // its side effects occur again
      }
    }
  }
}

TEST_CASE("verify: gradients that a step adds to are as in unverified calls", "[verify]") {
  const auto run = [](int verify) {
    const Tensor w = leaf(1), v = leaf(2);
    auto a = compile([&](const Tensor& x) { backward(sum(square(w * x) + v)); },
                     {.fallback = OnFallback::refuse, .verify = verify});
    auto b = compile(
        [&](const Tensor& x) {
          zero_grad(w);
          backward(sum(exp(w) * x));
          return grad(w);
        },
        {.fallback = OnFallback::refuse, .verify = verify});
    Lines lines;
    Tensor kept;
    for (int i = 0; i < 8; ++i) {
      if (i % 3 == 2) zero_grad(v);
      a(input(i));
      if (i == 4) kept = grad(w);
      lines.push_back(bits_of(b(input(i))[0]) + bits_of(grad(w)) + bits_of(grad(v)));
      if (kept.defined()) lines.push_back(bits_of(kept));
    }
    return lines;
  };
  CHECK(run(5) == run(0));
}

TEST_CASE("verify: a number that changes is found", "[verify]") {
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    double weight = 0.75;
    Tensor state = noise({4}, 1);
    const Tensor w = leaf(2, {4});
    auto step = compile(
        [&](const Tensor& x) {
          add_(state, 1);
          backward(sum(w));
          return exp(x) * weight + state;
        },
        {.mode = mode, .verify = 4});
    const Tensor x = ones({4});
    step(x);
    step(x);  // has a gradient before it, so another entry
    const std::string before = bits_of(state), gradient = bits_of(grad(w));
    weight = 0.5;
    const auto error = verify_error_of([&] { step(x); });
    REQUIRE(error);
    CHECK(error->op() == "mul");
    CHECK_THAT(error->where(), Catch::Contains(kHere));
    CHECK_THAT(error->what(),
               Catch::StartsWith("[step] verify expected the replay to give what the function "
                                 "gives, got result 0 with ") &&
                   Catch::Contains("; the first call that differs is mul(f32[4], 0.5) (at ") &&
                   Catch::Contains("which every replay calls as mul(f32[4], 0.75)"));
    CHECK(bits_of(state) == before);  // as if the call had not been
    CHECK(bits_of(grad(w)) == gradient);
    weight = 0.75;
    step(x);
    CHECK(bits_of(state) == bits_of(noise({4}, 1) + 1 + 1 + 1));
  }
}

TEST_CASE("verify: state of the host that the function changes is found", "[verify]") {
  const std::vector<float> data = {1, 2, 3, 4, 5, 6, 7, 8};
  std::size_t k = 0;
  auto element = compile([&](const Tensor& x) { return x + data[k++]; }, {.verify = 1});
  const auto number = verify_error_of([&] { element(ones({2})); });
  REQUIRE(number);
  CHECK(number->op() == "add");
  CHECK_THAT(number->what(), Catch::Contains("add(f32[2], 2)") &&
                                 Catch::Contains("every replay calls as add(f32[2], 1)"));

  int calls = 0;
  auto branch = compile([&](const Tensor& x) { return calls++ % 2 ? tanh(x) : exp(x); },
                        {.name = "branch", .verify = 1});
  const auto other = verify_error_of([&] { branch(ones({2})); });
  REQUIRE(other);
  CHECK(other->op() == "tanh");
  CHECK_THAT(other->what(), Catch::StartsWith("[branch] verify expected") &&
                                Catch::Contains("which every replay calls as exp(f32[2])"));

  std::size_t more = 1;
  auto longer =
      compile([&](const Tensor& x) { return std::vector<Tensor>(more++, x + 0.5); }, {.verify = 1});
  CHECK_THAT(error_of([&] { longer(ones({2})); }),
             Catch::Contains("got 1 result where the function gives 2"));

  // Values of the host, in a tensor.
  auto made = compile(
      [&](const Tensor& x) {
        return x * tensor({data[k++], 1.0f});
      },
      {.verify = 1});
  const auto values = verify_error_of([&] { made(ones({2})); });
  REQUIRE(values);
  CHECK(values->op() == "mul");
  CHECK_THAT(values->what(), Catch::Contains("operand 1 is another tensor in every replay"));
}

TEST_CASE("verify: a tensor that is assigned anew is found", "[verify]") {
  const Tensor w = noise({3}, 1);
  Tensor h = noise({3}, 2);
  auto inside = compile(
      [&](const Tensor& x) {
        h = tanh(h * w + x);
        return h;
      },
      {.verify = 2});
  const auto error = verify_error_of([&] { inside(ones({3})); });
  REQUIRE(error);
  CHECK(error->op() == "mul");
  CHECK_THAT(error->where(), Catch::Contains(kHere));
  CHECK_THAT(error->what(), Catch::Contains("the function throws: [mul] expected a tensor with "
                                            "values, got f32[3] of a step that was traced") &&
                                Catch::Contains("(at ") && Catch::Contains(kHere));

  Tensor given = noise({3}, 3);
  auto outside = compile([&](const Tensor& x) { return exp(given) + x; }, {.verify = 2});
  outside(ones({3}));
  given = noise({3}, 4);
  const auto other = verify_error_of([&] { outside(ones({3})); });
  REQUIRE(other);
  CHECK(other->op() == "exp");
  CHECK_THAT(other->where(), Catch::Contains(kHere));
  CHECK_THAT(other->what(), Catch::Contains("operand 0 is another tensor in every replay"));
}

TEST_CASE("verify: state and gradients are compared", "[verify]") {
  double rate = 0.5;
  Tensor state = noise({4}, 1);
  auto writes = compile([&] { mul_(state, rate); }, {.verify = 2});
  writes();
  rate = 0.25;
  const auto written = verify_error_of([&] { writes(); });
  REQUIRE(written);
  CHECK(written->op() == "mul_");
  CHECK_THAT(written->what(), Catch::Contains("got captured0 f32[4] with "));
  CHECK(bits_of(state) == bits_of(noise({4}, 1) * 0.5));

  const Tensor w = leaf(2, {4});
  auto differentiates = compile(
      [&] {
        zero_grad(w);
        backward(sum(w * rate));
      },
      {.verify = 2});
  differentiates();
  rate = 2;
  const auto gradient = verify_error_of([&] { differentiates(); });
  REQUIRE(gradient);
  CHECK_THAT(gradient->what(), Catch::Contains("got the gradient of ") &&
                                   Catch::Contains("with 2 at [0] from the function, and 0.25"));
}

TEST_CASE("verify: a number that changes a little is found where rounding may differ", "[verify]") {
  double rate = 0.01;
  Tensor w = noise({64}, 1);
  auto step =
      compile([&](const Tensor& x) { sub_(w, x * rate); }, {.mode = Mode::fused,
                                                            .rounding = Rounding::fast,
                                                            .frozen_rate = OnFrozenRate::ignore,
                                                            .verify = 2});
  const Tensor x = noise({64}, 2);
  step(x);
  rate *= 0.999;
  const std::string before = bits_of(w);
  const auto error = verify_error_of([&] { step(x); });
  REQUIRE(error);
  CHECK(error->op() == "mul");
  CHECK(bits_of(w) == before);
}

TEST_CASE("verify: as many calls of each entry as asked for", "[verify]") {
  int runs = 0;
  auto step = compile(
      [&](const Tensor& x) {
        ++runs;
        return x * 2;
      },
      {.verify = 2});
  for (int i = 0; i < 4; ++i) step(ones({2}));
  CHECK(runs == 1 + 2);
  for (int i = 0; i < 4; ++i) step(ones({3}));
  CHECK(runs == 2 * (1 + 2));
  CHECK_THROWS_WITH(compile([] {}, {.verify = -1}),
                    Catch::Contains("[compile] expected a number of calls to verify, got -1"));
}

TEST_CASE("verify: steps that the function calls are part of it", "[verify]") {
  auto inner = compile([](const Tensor& x) { return square(x) + rand({3}); });
  auto outer = compile([&](const Tensor& x) { return sum(inner(x) * 2); }, {.verify = 3});
  manual_seed(2);
  Lines lines;
  for (int i = 0; i < 4; ++i) lines.push_back(bits_of(outer(input(i))));
  manual_seed(2);
  for (int i = 0; i < 4; ++i)
    CHECK(bits_of(sum((square(input(i)) + rand({3})) * 2)) == lines[static_cast<std::size_t>(i)]);
  CHECK(inner.report().entries.empty());
}

TEST_CASE("verify: an op with effects runs once more for each verified call", "[verify]") {
  static int count = 0;
  static const Op counts = register_op(
      StructuredOp{.name = "test_verify_counts",
                   .infer =
                       [](const Call& call, OutputSpec* outputs) {
                         outputs[0] = {f32, call.input(0).device(), Dims(call.input(0).shape())};
                       },
                   .cpu =
                       [](const Call& call, Tensor* outputs) {
                         ++count;
                         copy_(outputs[0], call.input(0));
                       },
                   .cost = cost_of_moving});
  auto step = compile([](const Tensor& x) { return call_op(counts, Tensors{exp(x)}, {})[0]; },
                      {.verify = 2});
  for (int i = 0; i < 4; ++i) step(ones({2}));
  CHECK(count == 4 + 2);
}

TEST_CASE("verify: an error of the function is the replay's", "[verify]") {
  const Tensor table = noise({3, 2}, 1);
  auto step = compile([&](const Tensor& rows) { return embedding(table, rows); }, {.verify = 2});
  step(cast(tensor({0, 2}), i64));
  CHECK_THAT(error_of([&] {
               step(cast(tensor({0, 7}), i64));
             }),
             !Catch::Contains("verify") && Catch::Contains("7"));
  CHECK(bits_of(step(cast(tensor({1, 2}), i64))) == bits_of(slice(table, 0, 1, 3)));
}
