// Compiled training steps have eager's bits: losses, parameters, gradients, optimizer state, and
// the random numbers drawn afterwards.
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

using namespace brrr;
using namespace brrr::optim;
using namespace brrr::test;

namespace {

// A model, its flat parameters and an optimizer.
template <class Model>
struct Training {
  template <class... A>
  Training(const Transformation& transformation, A&&... arguments)
      : model(std::forward<A>(arguments)...),
        parameters(model),
        optimizer(parameters, transformation) {}

  Model model;
  nn::Parameters parameters;
  Optimizer optimizer;

  Tensors state() {
    Tensors all(parameters.values().begin(), parameters.values().end());
    for (const Tensor& gradient : parameters.gradients()) all.push_back(gradient);
    for (const auto& [name, tensor] : optimizer.state_dict()) all.push_back(tensor);
    return all;
  }
};

struct NoisyMlp : nn::Module {
  explicit NoisyMlp(DType dtype)
      : Module("noisy"), first({6, 16}, {dtype, cpu}), drop(0.25), last({16, 4}, {dtype, cpu}) {
    child("first", first);
    child("last", last);
  }
  Tensor forward(const Tensor& x) override { return last(drop(gelu(first(x)))); }

  nn::MLP first;
  nn::Dropout drop;
  nn::MLP last;
};

using MakeTransformation = std::function<Transformation()>;

// Steps of backward and the optimizer, for loss_of(model, arguments).
template <class Model, class LossOf>
World world_of(const std::shared_ptr<Training<Model>>& t, LossOf loss_of,
               std::function<Tensors(std::uint64_t seed)> arguments) {
  World world;
  world.arguments = [arguments](int call) { return arguments(static_cast<std::uint64_t>(call)); };
  world.step = [t, loss_of](const Tensors& in) {
    t->parameters.zero_grad();
    const Tensor loss = loss_of(t->model, in);
    backward(loss);
    t->optimizer.step();
    return Tensors{loss};
  };
  world.seen = [t] { return t->state(); };
  return world;
}

const auto kSquaredError = [](auto& model, const Tensors& in) {
  return nn::mse_loss(model(in[0]), in[1]);
};

World mlp_world(const Transformation& transformation, DType dtype) {
  return world_of(
      std::make_shared<Training<NoisyMlp>>(transformation, dtype), kSquaredError,
      [dtype](std::uint64_t seed) {
        return Tensors{noise({8, 6}, 100 + seed, dtype), noise({8, 4}, 200 + seed, dtype)};
      });
}

std::string mlp_difference(const MakeTransformation& make, DType dtype = f32) {
  return difference_from_eager([&] { return mlp_world(make(), dtype); }, 5);
}

Schedule joined() {
  return join_schedules({constant_schedule(0.1), cosine_decay_schedule(0.1, 4)}, {2});
}

const std::vector<std::pair<const char*, MakeTransformation>> kTransformations = {
    {"sgd", [] { return sgd(0.1); }},
    {"sgd with momentum", [] { return sgd(0.1, {.momentum = 0.9}); }},
    {"sgd with Nesterov's momentum", [] { return sgd(0.1, {.momentum = 0.9, .nesterov = true}); }},
    {"adam", [] { return adam(0.01); }},
    {"adam of the parameters' type", [] { return adam(0.01, {.wide = false}); }},
    {"adamw", [] { return adamw(0.01, 0.1); }},
    {"lion", [] { return lion(0.01); }},
    {"an average of gradients", [] { return chain(ema(0.9), scale(-0.1)); }},
    {"L2", [] { return chain(add_decayed_weights(0.01), sgd(0.1)); }},
    {"clipped elements", [] { return chain(clip(0.001), sgd(0.1)); }},
    {"a clipped norm", [] { return chain(clip_by_global_norm(0.01), adam(0.01)); }},
    {"a norm that needs no clipping", [] { return chain(clip_by_global_norm(1e3), sgd(0.1)); }},
    {"master weights", [] { return master_weights(adam(0.01)); }},
    {"an injected rate",
     [] {
       return inject_hyperparams({{"rate", 0.01}, {"decay", linear_schedule(0.1, 0, 3)}},
                                 [](const auto& h) { return adamw(h["rate"], h["decay"]); });
     }},
    {"a linear schedule", [] { return adam(linear_schedule(0.1, 0, 4)); }},
    {"a cosine", [] { return sgd(cosine_decay_schedule(0.1, 4)); }},
    {"a warm-up", [] { return adamw(warmup_cosine_decay_schedule(0, 0.1, 2, 4), 0.01); }},
    {"steps down",
     [] {
       return lion(piecewise_constant_schedule(0.1, {{1, 0.5}, {3, 0.1}}));
     }},
    {"lines",
     [] {
       return sgd(piecewise_linear_schedule(0.1, {{1, 0.5}, {3, 0.1}}));
     }},
    {"two schedules", [] { return adam(joined()); }},
    {"a schedule's factor", [] { return chain(scale_by_schedule(joined()), scale(-1)); }},
};

}  // namespace

TEST_CASE("compile: a training step with any optimizer has eager's bits", "[compile]") {
  for (const auto& [name, make] : kTransformations) {
    INFO(name);
    CHECK(mlp_difference(make) == "");
  }
}

TEST_CASE("compile: a training step of any type has eager's bits", "[compile]") {
  for (const DType dtype : {f64, bf16, f16}) {
    INFO(name_of(dtype));
    CHECK(mlp_difference([] { return adam(linear_schedule(0.1, 0, 4)); }, dtype) == "");
    CHECK(mlp_difference([] { return chain(clip_by_global_norm(0.1), sgd(0.1)); }, dtype) == "");
    CHECK(mlp_difference([] { return master_weights(adamw(0.01, 0.1)); }, dtype) == "");
  }
}

TEST_CASE("compile: leaves without a group have eager's bits", "[compile]") {
  const auto make = [] {
    struct Model {
      Tensors leaves = {requires_grad_(noise({6, 5}, 1)), requires_grad_(noise({5}, 2))};
      Optimizer optimizer{leaves, adam(cosine_decay_schedule(0.1, 4))};
    };
    const auto m = std::make_shared<Model>();
    World world;
    world.arguments = [](int call) {
      return Tensors{noise({4, 6}, 7 + static_cast<unsigned>(call))};
    };
    world.step = [m](const Tensors& in) {
      m->optimizer.zero_grad();
      const Tensor loss = mean(square(tanh(affine(in[0], m->leaves[0], m->leaves[1]))));
      backward(loss);
      m->optimizer.step();
      return Tensors{loss};
    };
    world.seen = [m] {
      return Tensors{m->leaves[0], m->leaves[1], grad(m->leaves[0]), grad(m->leaves[1])};
    };
    return world;
  };
  CHECK(difference_from_eager(make, 5) == "");
}

TEST_CASE("compile: random numbers advance in replays as they do eagerly", "[compile]") {
  const auto make = [](bool step_first, bool step_last) {
    return [=] {
      World world;
      world.step = [=](const Tensors&) {
        if (step_first) next_random_step();
        Tensors drawn = {rand({3}), randn({2, 2}), randint(0, 100, {4})};
        if (step_last) next_random_step();
        drawn.push_back(dropout(ones({9}), 0.5));
        drawn.push_back(bernoulli(full({9}, 0.3)));
        return drawn;
      };
      return world;
    };
  };
  for (const bool first : {false, true}) {
    for (const bool last : {false, true}) CHECK(difference_from_eager(make(first, last)) == "");
  }
}

TEST_CASE("compile: a transformer's training step has eager's bits", "[compile]") {
  const auto block = [] {
    const auto t = std::make_shared<Training<nn::TransformerBlock>>(
        chain(clip_by_global_norm(1.0), adamw(warmup_cosine_decay_schedule(0, 0.01, 2, 9), 0.1)),
        16, 4, Options{}, true, 0.1);
    return world_of(t, kSquaredError, [](std::uint64_t seed) {
      return Tensors{noise({2, 5, 16}, seed), noise({2, 5, 16}, 50 + seed)};
    });
  };
  CHECK(difference_from_eager(block) == "");

  const auto language = [] {
    const auto t = std::make_shared<Training<nn::Transformer>>(
        adam(0.01),
        nn::TransformerSizes{.vocabulary = 11, .length = 6, .width = 8, .heads = 2, .layers = 2},
        Options{}, 0.1);
    const auto loss_of = [](auto& model, const Tensors& in) {
      return nn::cross_entropy(model(in[0]), in[1], nn::Reduction::mean, 0.1);
    };
    return world_of(t, loss_of, [](std::uint64_t seed) {
      return Tensors{integers({3, 6}, 11, seed), integers({3, 6}, 11, 50 + seed)};
    });
  };
  CHECK(difference_from_eager(language) == "");
}

TEST_CASE("compile: recomputation of a checkpoint is kept, and saves memory", "[compile]") {
  const auto entry_of = [](bool again) {
    manual_seed(3);
    std::vector<Tensor> weights;
    for (int i = 0; i < 8; ++i) weights.push_back(requires_grad_(noise({32, 32}, 10 + i)));
    const Tensor x = noise({256, 32}, 1);
    auto step = compile([&] {
      Tensor h = x;
      for (const Tensor& w : weights) {
        zero_grad(w);
        const auto layer = [&w](const Tensor& in) { return gelu_tanh(tanh(matmul(in, w))); };
        h = again ? checkpoint(layer, h) : layer(h);
      }
      const Tensor loss = sum(h);
      backward(loss);
      return loss;
    });
    const double loss = item(step());
    return std::pair(step.report().entries[0], loss);
  };
  const auto [kept, loss] = entry_of(false);
  const auto [recomputed, same] = entry_of(true);
  CHECK(same == loss);
  CHECK(recomputed.nodes >= kept.nodes + 16);
  CHECK(static_cast<double>(recomputed.arena_bytes) < 0.7 * static_cast<double>(kept.arena_bytes));
}
