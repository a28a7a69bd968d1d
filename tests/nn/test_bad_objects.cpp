// Misuse of modules, optimizers, data and function objects: each throws one Error that names the
// callee, and changes nothing.
#include <climits>
#include <cmath>
#include <functional>
#include <string>

#include "brrr/nn/data/batcher.h"
#include "brrr/nn/data/synthetic.h"
#include "brrr/nn/data/text.h"
#include "brrr/nn/init.h"
#include "brrr/nn/state_dict.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::test;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

struct Pair : nn::Module {
  Tensor a = ones({2}), b = ones({2, 2});
  Pair() : Module("pair") {
    parameter("a", a);
    parameter("b", b);
  }
  Tensor forward(const Tensor& x) override { return x * a; }
};

struct Computed : nn::Module {
  Tensor x;
  explicit Computed(Tensor given) : Module("computed"), x(std::move(given)) { parameter("x", x); }
  Tensor forward(const Tensor& y) override { return y; }
};

void says(const std::function<void()>& action, const std::string& expected) {
  const std::string text = error_of(action);
  INFO(text);
  CHECK(text.starts_with(expected));
}

}  // namespace

TEST_CASE("modules of wrong sizes and types name themselves", "[bad-input]") {
  says([] { nn::Linear(-1, 2); },
       "[linear] expected a floating type and sizes of at least 0, got f32[2, -1]");
  says([] { nn::Linear(1, 2, {.dtype = i64}); }, "[linear] expected a floating type");
  says([] { nn::Linear(kMost, 2); }, "[linear]");
  says([] { nn::Embedding(-4, 2); }, "[embedding]");
  says([] { nn::LayerNorm(-1); }, "[layer_norm]");
  says([] { nn::RMSNorm(4, {.dtype = boolean}); }, "[rms_norm]");
  says([] { nn::MLP({2, -3}); }, "[linear]");
  for (const std::int64_t width : {std::int64_t{-4}, kMost - 1, std::int64_t{5}})
    says([&] { nn::MultiHeadAttention(width, 2); }, "[attention] expected a width");
  for (const double p : {-0.5, 2.0, std::nan("")}) {
    says([&] { nn::MultiHeadAttention(4, 2, {}, true, p); }, "[attention] expected a dropout");
    says(
        [&] {
          const Tensor x = ones({3, 4});
          nn::scaled_dot_product_attention(x, x, x, {.dropout = p});
        },
        "[scaled_dot_product_attention] expected a dropout in [0, 1]");
  }
  says([] { nn::Transformer({.layers = -1}); }, "[transformer] expected sizes");
  says([] { nn::Sequential()[5]; }, "[sequential] expected an index below 0, got 5");
  const Tensor leaf = requires_grad_(ones({2}));
  says([&] { Computed{leaf * 2}; }, "[computed] expected a floating tensor that is no op's result");
  says([] { Computed{Tensor()}; }, "[computed] expected a floating tensor");
  says([] { Computed{arange(3)}; }, "[computed] expected a floating tensor");
}

TEST_CASE("first values of no meaning are refused", "[bad-input]") {
  Tensor x = ones({2, 2}), none;
  says([&] { nn::init::uniform_(x, 1, 0); }, "[uniform_] expected finite bounds in order");
  says([&] { nn::init::uniform_(x, 0, INFINITY); }, "[uniform_]");
  says([&] { nn::init::normal_(x, 0, -1); }, "[normal_] expected a finite mean");
  says([&] { nn::init::xavier_normal_(x, -1); }, "[xavier_normal_]");
  says([&] { nn::init::kaiming_uniform_(x, NAN); }, "[kaiming_uniform_]");
  says([&] { nn::init::uniform_(none); }, "[uniform_] expected a tensor, got an undefined one");
  CHECK(to_vector<float>(x) == std::vector<float>(4, 1));
  Tensor nothing = empty({2, 0});
  nn::init::kaiming_uniform_(nothing);
  nn::init::xavier_normal_(nothing);
}

TEST_CASE("errors of an op inside a loss or layer name the loss or layer", "[bad-input]") {
  says(
      [] {
        nn::cross_entropy(zeros({2, 3}), tensor(std::vector<std::int64_t>{0, 3}, {2}));
      },
      "[cross_entropy] expected indices in [0, 3), got 3 at position 1");
  says([] { affine(ones({2, 2}), ones({2, 3}, {.dtype = f64}), ones({3})); }, "[affine]");
  says([] { matmul(ones({3}), arange(3)); }, "[matmul] expected one dtype, got f32[3] and i64[3]");
  says(
      [] {
        linear(ones({2}), cast(ones({3, 2}), i64));
      },
      "[linear] expected a weight of the input's type, got weight i64[3, 2] and input f32[2]");
  says(
      [] {
        embedding(ones({3, 2}), ones({2}));
      },
      "[embedding] expected integer indices, got f32[2]");
}

TEST_CASE("a state that cannot be loaded whole changes nothing", "[bad-input]") {
  Pair pair;
  const nn::StateDict others[] = {
      {{"a", full({2}, 9)}, {"b", meta({2, 2})}},
      {{"a", full({2}, 9)}, {"b", full({2, 3}, 9)}},
      {{"a", full({2}, 9)}, {"b", Tensor()}},
      {{"a", full({2}, 9)}, {"b", full({2, 2}, 9)}, {"b", full({2, 2}, 9)}},
  };
  for (const nn::StateDict& other : others) {
    says([&] { nn::load_state_dict(pair, other); }, "[load_state_dict]");
    CHECK(to_vector<float>(pair.a) == std::vector<float>(2, 1));

    optim::State state;
    state.add("a", ones({2})).add("b", ones({2, 2}));
    says([&] { state.load(other); }, "[State::load]");
    CHECK(to_vector<float>(state.tensor("a")) == std::vector<float>(2, 1));
  }
  // In a step that is traced values are to come.
  auto step = compile([&](const Tensor& x) {
    nn::load_state_dict(pair, {{"a", x * 2}, {"b", square(pair.b)}});
    return pair(x);
  });
  for (int call = 0; call < 3; ++call)
    CHECK(to_vector<float>(step(full({2}, 3))) == std::vector<float>{18, 18});
  // A value may alias its target.
  const Tensor before = rand({2, 2});
  nn::load_state_dict(pair, {{"a", ones({2})}, {"b", before}});
  nn::load_state_dict(pair, {{"a", ones({2})}, {"b", transpose(detach(pair.b), 0, 1)}});
  CHECK(to_vector<float>(pair.b) == to_vector<float>(transpose(before, 0, 1)));
}

TEST_CASE("optimizers and functions that are not there are refused", "[bad-input]") {
  const Tensor leaf = requires_grad_(ones({2}));
  says(
      [&] {
        optim::Optimizer({leaf, leaf}, optim::sgd(0.1));
      },
      "[Optimizer] expected each leaf once, got f32[2] at 0 and at 1");
  says([&] { optim::Optimizer({leaf}, optim::sgd(0.1), nullptr, nullptr); }, "[Optimizer]");
  says([] { optim::Transformation(optim::Transformation::Update{}); }, "[Transformation]");
  says([] { optim::inject_hyperparams({{"rate", 0.1}}, nullptr); }, "[inject_hyperparams]");
  says([] { Stream(cpu).enqueue(nullptr); }, "[Stream::enqueue]");
  says([] { compile(std::function<Tensor(const Tensor&)>{}); }, "[compile]");
  const auto nothing = [](std::span<const Tensor>) { return std::vector<Tensor>{}; };
  const Tensor wide = requires_grad_(ones({2}, {.dtype = f64}));
  says([&] { gradcheck(nothing, {wide}); },
       "[gradcheck] expected a function with a floating result");
  const auto same = [](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] * 1}; };
  says([&] { gradcheck(same, {wide}, {.step = -1e-6}); }, "[gradcheck] expected a step above 0");
  says([&] { set_grad(leaf, meta({2})); },
       "[set_grad] expected a gradient like f32[2], got f32[2] without values");
  says([&] { backward(leaf * 1, meta({2})); }, "[backward] expected a gradient like the output");
  says([] { call_op(static_cast<Op>(60000), {ones({1})}); }, "[call_op] expected an op");
  CHECK(!grad(leaf).defined());
}

TEST_CASE("data of impossible sizes are refused before they are made", "[bad-input]") {
  says([] { data::two_spirals(kMost); }, "[two_spirals]");
  says([] { data::regression(1, std::int64_t{1} << 31); }, "[regression]");
  says([] { data::regression(1, 1, kMost); }, "[regression]");
  says([] { data::generate_text(kMost); }, "[generate_text]");
  says([] { data::Characters("ab").decode(ones({2})); }, "[decode] expected integer tokens");
  const data::Dataset rows = data::two_spirals(8);
  says([&] { data::Batcher(rows, {.batch = 2, .slots = INT_MAX}); }, "[batcher]");
  says([&] { data::Batcher(rows, {.batch = 2, .start = kMost}); }, "[batcher]");
}
