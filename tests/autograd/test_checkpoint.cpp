// checkpoint: the same gradients to the last bit, for the memory of the inputs alone.
#include <brrr/brrr.h>

#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of;

namespace {

using Floats = std::vector<float>;
Floats floats(const Tensor& x) { return to_vector<float>(x); }
Tensor leaf(const Dims& shape) { return requires_grad_(randn(shape)); }

struct Block {
  Tensor weight = leaf({8, 8}), bias = leaf({8});

  Tensor operator()(const Tensor& x) const {
    return dropout(gelu(linear(x, weight, bias)), 0.3) + x;
  }
};

}  // namespace

TEST_CASE("a checkpoint gives the same bits", "[autograd][checkpoint]") {
  manual_seed(7);
  const Tensor x = leaf({5, 8});
  const Block first, second;
  const std::vector<Tensor> leaves = {x, first.weight, first.bias, second.weight, second.bias};
  const auto gradients_of = [&](int how) {
    manual_seed(11);
    const auto run = [&](const Block& block, const Tensor& v) {
      const std::function<Tensor(const Tensor&)> plain = [&block](const Tensor& u) {
        return block(u);
      };
      if (how == 0) return plain(v);
      if (how == 1) return checkpoint(plain, v);
      // Nested.
      return checkpoint([plain](const Tensor& u) { return checkpoint(plain, u * 1.0); }, v);
    };
    // Random numbers before, between and after, which must come out alike as well.
    Tensor y = run(second, dropout(run(first, dropout(x, 0.1)), 0.2));
    y = dropout(y, 0.1);
    std::vector<Floats> result = {floats(y)};
    for (const Tensor& g : grad(std::vector{sum(square(y))}, leaves)) result.push_back(floats(g));
    result.push_back(floats(rand({4})));  // backward leaves the generator where it was
    return result;
  };
  const auto want = gradients_of(0);
  CHECK(gradients_of(1) == want);
  CHECK(gradients_of(2) == want);
  // And by backward, into the leaves.
  manual_seed(11);
  const Tensor y = checkpoint([&](const Tensor& v) { return first(v); }, x);
  backward(sum(y));
  manual_seed(11);
  CHECK(floats(grad(first.weight)) == floats(grad(sum(first(x)), first.weight)));
}

TEST_CASE("a checkpoint keeps its inputs alone", "[autograd][checkpoint]") {
  manual_seed(7);
  const Tensor x = leaf({5, 8});
  const Block block;
  const Tensor inner = x * 2;
  const std::int64_t before = memory_stats(cpu).live;
  const Tensor y = checkpoint([&](const Tensor& v) { return block(v); }, inner);
  CHECK(memory_stats(cpu).live - before == static_cast<std::int64_t>(y.bytes()));
  const auto saved = saved_tensors(y);
  REQUIRE(saved.size() == 1);  // the multiplication by a number keeps nothing
  CHECK(saved[0].op == "checkpoint");
  CHECK(saved[0].which == "input 0");
  CHECK(saved[0].tensor.shares_storage_with(inner));
}

TEST_CASE("a checkpoint of several inputs and outputs", "[autograd][checkpoint]") {
  manual_seed(7);
  const Tensor a = leaf({3}), b = leaf({3}), constant = randn({3}), index = arange(3);
  const Checkpointed fn = [](std::span<const Tensor> in) {
    const Tensor sum_ab = in[0] + in[1] * in[2];
    return std::vector<Tensor>{exp(sum_ab), in[0],  argmax(sum_ab), in[2],
                               sum_ab,      sum_ab, in[0] * in[1],  index_select(in[1], 0, in[3]),
                               in[3]};
  };
  const std::vector<Tensor> inputs = {a, b, constant, index};
  const auto total = [](const std::vector<Tensor>& y) {
    return sum(y[0] * y[1] + y[3] * y[4] + y[5] * 0.3 + y[6] * y[7]);
  };
  const auto got = checkpoint(fn, inputs), want = fn(inputs);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("output " << i);
    CHECK(floats(got[i]) == floats(want[i]));
  }
  CHECK_FALSE(requires_grad(got[2]));
  CHECK_FALSE(requires_grad(got[8]));
  CHECK(floats(a) == floats(got[1]));
  CHECK(is_leaf(a));
  const auto gradients = grad(total(got), {a, b}), expected = grad(total(want), {a, b});
  CHECK(floats(gradients[0]) == floats(expected[0]));
  CHECK(floats(gradients[1]) == floats(expected[1]));
  // Some outputs alone.
  CHECK(floats(grad(sum(checkpoint(fn, inputs)[6]), a)) == floats(b));
  CHECK(floats(grad(sum(checkpoint(fn, inputs)[1]), a)) == Floats{1, 1, 1});
}

TEST_CASE("a checkpoint of constants is nothing", "[autograd][checkpoint]") {
  const Tensor x = ones({3});
  const Tensor y = checkpoint([](const Tensor& v) { return exp(v); }, x);
  CHECK_FALSE(requires_grad(y));
  CHECK(saved_tensors(y).empty());
  const Tensor w = leaf({3});
  CHECK_FALSE(requires_grad(
      no_grad([&] { return checkpoint([&](const Tensor& v) { return v * w; }, x); })));
  // The parameters of a function are reason enough.
  const Tensor z = checkpoint([&](const Tensor& v) { return v * w; }, x);
  CHECK(requires_grad(z));
  backward(sum(z));
  CHECK(floats(grad(w)) == Floats{1, 1, 1});
}

TEST_CASE("grad through a checkpoint, of inner values and of parameters",
          "[autograd][checkpoint]") {
  manual_seed(7);
  const Tensor x = leaf({5, 8}), unused = leaf({2});
  const Block block;
  const auto run = [&](bool rematerialized) {
    manual_seed(3);
    const Tensor inner = tanh(x);
    const Tensor y = rematerialized ? checkpoint([&](const Tensor& v) { return block(v); }, inner)
                                    : block(inner);
    std::vector<Floats> result;
    for (const Tensor& g : grad(sum(y * y), {inner, block.bias, y, x})) result.push_back(floats(g));
    return result;
  };
  CHECK(run(true) == run(false));
  CHECK_FALSE(grad(block.bias).defined());
  CHECK_FALSE(grad(x).defined());
  const Tensor y = checkpoint([](const Tensor& v) { return exp(v); }, x);
  CHECK_FALSE(grad(sum(y), unused, {.allow_unused = true}).defined());
}

TEST_CASE("what a checkpoint records in a backward is not taken for what was freed",
          "[autograd][checkpoint]") {
  const Tensor x = leaf({3}), w = leaf({3});
  const auto link = [](const Tensor& v) {
    return checkpoint([](const Tensor& u) { return exp(sin(u) * 2) - u; }, v);
  };
  const Floats want = floats(grad(sum(exp(sin(x) * 2) - x), x));
  for (int dead = 1; dead <= 12; ++dead) {
    // A branch of several nodes that x has no part in ends when its product has been run.
    const Tensor y = link(x);
    Tensor branch = w;
    for (int i = 0; i < dead; ++i) branch = tanh(branch);
    const Tensor top = sum(y * (branch * 0.0 + 1.0));
    branch = Tensor();
    INFO(dead << " nodes");
    CHECK(floats(grad(top, x)) == want);
  }
}

TEST_CASE("second order through a checkpoint", "[autograd][checkpoint]") {
  manual_seed(7);
  const Options wide{f64, cpu};
  const Tensor x = requires_grad_(randn({4}, wide)), w = requires_grad_(randn({4}, wide));
  const auto network = [](std::span<const Tensor> in) {
    const Tensor parameter = in[1];
    return std::vector<Tensor>{checkpoint(
        [parameter](const Tensor& v) {
          return checkpoint([&](const Tensor& u) { return dropout(sin(u * parameter), 0.2); },
                            v * v);
        },
        tanh(in[0]))};
  };
  const GradcheckResult result = gradcheck(network, {x, w}, {.second_order = true});
  INFO(result.message);
  CHECK(result);
}

TEST_CASE("a checkpoint whose world has changed is refused", "[autograd][checkpoint]") {
  manual_seed(7);
  Tensor x = leaf({3});
  const auto fn = [](const Tensor& v) { return dropout(exp(v), 0.5); };
  SECTION("an input was written") {
    const Tensor y = sum(checkpoint(fn, x));
    no_grad([&] { add_(x, 1.0); });
    CHECK_THAT(error_of([&] { backward(y); }),
               Catch::Contains("[checkpoint] input 0, f32[3], was written to in place since: it is "
                               "at version"));
    CHECK_FALSE(grad(x).defined());
  }
  SECTION("the random step was changed") {
    const Tensor y = sum(checkpoint(fn, x));
    next_random_step();
    CHECK_THAT(error_of([&] { backward(y); }), Catch::Contains("seed") && Catch::Contains("step"));
    CHECK_FALSE(grad(x).defined());
  }
  SECTION("the seed was changed") {
    const Tensor y = sum(checkpoint(fn, x));
    manual_seed(8);
    CHECK_THAT(error_of([&] { backward(y); }), Catch::Contains("seed"));
  }
  SECTION("it gives another number of outputs") {
    int runs = 0;
    const Checkpointed fickle = [&](std::span<const Tensor> in) {
      return ++runs == 1 ? std::vector<Tensor>{in[0] * 2, in[0] * 3}
                         : std::vector<Tensor>{in[0] * 2};
    };
    const Tensor y = sum(checkpoint(fickle, {x})[0]);
    CHECK_THAT(
        error_of([&] { backward(y); }),
        Catch::Contains("[checkpoint] expected as many outputs as the first time, 2, got 1"));
  }
  SECTION("it was run and not retained") {
    const Tensor y = checkpoint(fn, x);
    backward(sum(y));
    CHECK_THAT(error_of([&] { backward(sum(y)); }),
               Catch::Contains("[backward] checkpoint has been run by an earlier backward"));
  }
  // Everything works as before.
  zero_grad(x);
  backward(sum(checkpoint([](const Tensor& v) { return v * 2; }, x)));
  CHECK(floats(grad(x)) == Floats{2, 2, 2});
}

TEST_CASE("a checkpoint counts up to 255 outputs", "[autograd][checkpoint]") {
  Tensor x = leaf({3});
  for (const std::size_t count : {254u, 255u, 256u}) {
    const Checkpointed many = [count](std::span<const Tensor> in) {
      return std::vector<Tensor>(count, in[0] * 2);
    };
    const auto run = [&] {
      const std::vector<Tensor> y = checkpoint(many, {x});
      zero_grad(x);
      backward(sum(y.front() + y.back()));
    };
    if (count > 255) {
      CHECK_THAT(error_of(run),
                 Catch::Contains("[checkpoint] expected at most 255 outputs, got 256"));
    } else {
      run();
      CHECK(floats(grad(x)) == Floats{4, 4, 4});
    }
  }
}

TEST_CASE("a retained checkpoint runs as often as it is asked to", "[autograd][checkpoint]") {
  manual_seed(7);
  const Tensor x = leaf({3});
  int runs = 0;
  const Tensor y = sum(checkpoint(
      [&](const Tensor& v) {
        ++runs;
        return dropout(exp(v), 0.5);
      },
      x));
  const Floats first = floats(grad(y, x, {.retain_graph = true}));
  CHECK(floats(grad(y, x, {.retain_graph = true})) == first);
  CHECK(floats(grad(y, x)) == first);
  CHECK(runs == 4);
}
