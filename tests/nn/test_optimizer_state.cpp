// State of optimizers: files, hyperparameters, f32 master weights; and misuse.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::optim;
using interchange::error_of;

namespace {

struct TemporaryFile {
  TemporaryFile()
      : path((std::filesystem::temp_directory_path() /
              ("brrr_optim_" + std::to_string(::getpid()) + ".safetensors"))
                 .string()) {}
  ~TemporaryFile() { std::remove(path.c_str()); }
  const std::string path;
};

Transformation everything() {
  return inject_hyperparams(
      {{"rate", warmup_cosine_decay_schedule(0, 0.1, 3, 20)}, {"decay", 0.01}}, [](const auto& h) {
        return chain(clip_by_global_norm(1), ema(0.5),
                     master_weights(adamw(h["rate"], h["decay"], {.beta2 = 0.9})),
                     trace(0.5, true));
      });
}

std::vector<Tensor> mixed_params() {
  return {linspace(-1, 1, 12, {.dtype = bf16}), reshape(linspace(0, 2, 6), {2, 3})};
}

void steps(const Transformation& t, State& state, std::vector<Tensor>& params, int count) {
  for (int i = 0; i < count; ++i) {
    t.apply({sin(params[0] * 3), cos(params[1] * 2)}, state, params);
  }
}

std::vector<std::string> names_of(const State& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.named()) names.push_back(name);
  return names;
}

// What nn::Parameters looks like to an optimizer.
struct Packed {
  Tensor value = zeros({4});
  Tensor gradient;
  std::vector<Tensor> values() const { return {value}; }
  std::vector<Tensor> gradients() const { return {gradient}; }
  void zero_grad() { gradient = Tensor(); }
};

}  // namespace

TEST_CASE("the state's tensors have paths", "[optim]") {
  const std::vector<Tensor> params = mixed_params();
  CHECK(names_of(chain(clip_by_global_norm(1), adam(0.1)).init(params)) ==
        std::vector<std::string>{"1.0.mu.0", "1.0.mu.1", "1.0.nu.0", "1.0.nu.1", "1.0.mu_ones.0",
                                 "1.0.mu_ones.1", "1.0.nu_ones.0", "1.0.nu_ones.1"});
  CHECK(names_of(sgd(constant_schedule(0.1)).init(params)) == std::vector<std::string>{"count"});
  CHECK(names_of(master_weights(sgd(0.1, {.momentum = 0.9})).init(params)) ==
        std::vector<std::string>{"masters.0", "inner.0.trace.0", "inner.0.trace.1"});
  CHECK(names_of(inject_hyperparams({{"rate", 0.1}}, [](const auto& h) {
                   return sgd(h["rate"]);
                 }).init(params)) == std::vector<std::string>{"hyperparams.rate"});
}

TEST_CASE("a run resumed from a file gives the same bits", "[optim]") {
  const TemporaryFile file;
  const Transformation t = everything();
  std::vector<Tensor> whole = mixed_params();
  State state = t.init(whole);
  steps(t, state, whole, 5);
  save(state, file.path);
  std::vector<Tensor> resumed = {clone(whole[0]), clone(whole[1])};
  steps(t, state, whole, 7);

  State again = t.init(resumed);
  const NamedTensors tensors = again.named();
  load(again, file.path);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(TensorImpl::of(again.named()[i].second) == TensorImpl::of(tensors[i].second));
  }
  steps(t, again, resumed, 7);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(to_vector<double>(whole[i]) == to_vector<double>(resumed[i]));
  }
  const NamedTensors one = state.named(), two = again.named();
  for (std::size_t i = 0; i < one.size(); ++i) {
    INFO(one[i].first);
    CHECK(to_vector<double>(one[i].second) == to_vector<double>(two[i].second));
  }
}

TEST_CASE("loading another state lists all that differs and changes nothing", "[optim]") {
  const TemporaryFile file;
  const std::vector<Tensor> params = {ones({3}), ones({2, 2})};
  State kept = adam(0.1).init(params);
  kept.load([&] {
    NamedTensors values = kept.named();
    for (auto& [name, tensor] : values) tensor = full_like(tensor, 7);
    return values;
  }());
  State other =
      State().add("0", State()
                           .add("mu", std::vector<Tensor>{ones({3}), ones({2, 3})})
                           .add("nu", std::vector<Tensor>{ones({3}, {.dtype = f64}), ones({2, 2})})
                           .add("nu_ones", std::vector<Tensor>{ones({}), ones({})})
                           .add("nu_max", ones({3})));
  save(other, file.path);
  CHECK(error_of([&] { load(kept, file.path); }) ==
        "[State::load] expected the 8 tensors of the optimizer's state, got 7:"
        "\n  mismatched: 0.mu.1 expected f32[2, 2], got f32[2, 3]"
        "\n  mismatched: 0.nu.0 expected f32[3], got f64[3]"
        "\n  missing: 0.mu_ones.0 f32[]"
        "\n  missing: 0.mu_ones.1 f32[]"
        "\n  unexpected: 0.nu_max f32[3]");
  for (const auto& [name, tensor] : kept.named()) {
    for (double value : to_vector<double>(tensor)) CHECK(value == 7);
  }
}

TEST_CASE("injected hyperparameters are read and changed between steps", "[optim]") {
  Tensor p = requires_grad_(zeros({2}));
  Optimizer optimizer({p}, chain(identity(), inject_hyperparams({{"rate", 0.5}}, [](const auto& h) {
                                   return sgd(h["rate"]);
                                 })));
  set_grad(p, ones({2}));
  optimizer.step();
  CHECK(to_vector<float>(p) == std::vector<float>{-0.5, -0.5});
  fill_(optimizer.hyperparameter("rate"), 2);
  optimizer.step();
  CHECK(to_vector<float>(p) == std::vector<float>{-2.5, -2.5});
  CHECK(item(optimizer.hyperparameter("rate")) == 2);
  CHECK(error_of([&] { optimizer.hyperparameter("speed"); }) ==
        "[hyperparameter] expected the name of an injected one, got \"speed\"");
  CHECK(error_of([] {
          inject_hyperparams({{"rate", 0.1}, {"decay", 0.1}},
                             [](const auto& h) { return sgd(h["speed"]); });
        }) == "[inject_hyperparams] expected one of the names [rate, decay], got \"speed\"");
  CHECK(error_of([] {
          inject_hyperparams({{"beta", 1.5}},
                             [](const auto& h) { return adam(0.1, {.beta1 = h["beta"]}); });
        }) == "[adam] expected beta1 in [0, 1), got 1.5");
}

TEST_CASE("every coefficient may be a tensor", "[optim]") {
  const auto value = [](double x) { return full({}, x, {.dtype = f64}); };
  const std::vector<std::pair<Transformation, Transformation>> pairs = {
      {adamw(0.1, 0.2, {.beta1 = 0.8, .beta2 = 0.9, .eps = 0.1}),
       adamw(value(0.1), value(0.2),
             {.beta1 = value(0.8), .beta2 = value(0.9), .eps = value(0.1)})},
      {lion(0.1, {.beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1}),
       lion(value(0.1), {.beta1 = value(0.8), .beta2 = value(0.9), .weight_decay = value(0.1)})},
      {sgd(0.1, {.momentum = 0.9, .nesterov = true}),
       sgd(value(0.1), {.momentum = value(0.9), .nesterov = true})},
      {chain(ema(0.7), scale(-0.1)), chain(ema(value(0.7)), scale(value(-0.1)))}};
  for (const auto& [numbers, tensors] : pairs) {
    std::vector<Tensor> one = {linspace(-1, 1, 9, {.dtype = f64})}, two = {clone(one[0])};
    State of_one = numbers.init(one), of_two = tensors.init(two);
    for (int step = 0; step < 4; ++step) {
      numbers.apply({sin(one[0])}, of_one, one);
      tensors.apply({sin(two[0])}, of_two, two);
    }
    const auto a = to_vector<double>(one[0]), b = to_vector<double>(two[0]);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-14));
  }
}

TEST_CASE("f32 masters keep steps that 16 bits lose", "[optim]") {
  for (DType dtype : {bf16, f16}) {
    std::vector<Tensor> plain = {full({5}, 8, {.dtype = dtype})};
    std::vector<Tensor> params = {clone(plain[0])}, wide = {full({5}, 8)};
    const Transformation bare = adam(1e-3), kept = master_weights(adam(1e-3));
    State of_plain = bare.init(plain), of_params = kept.init(params), of_wide = bare.init(wide);
    for (int step = 0; step < 200; ++step) {
      const Tensor g = full({5}, 0.5, {.dtype = dtype});
      bare.apply({g}, of_plain, plain);
      kept.apply({g}, of_params, params);
      bare.apply({cast(g, f32)}, of_wide, wide);
    }
    CHECK(params[0].dtype() == dtype);
    CHECK(to_vector<float>(plain[0])[0] == 8);
    // Bit for bit the run in f32, rounded once.
    CHECK(to_vector<float>(params[0]) == to_vector<float>(cast(wide[0], dtype)));
    CHECK(to_vector<float>(params[0])[0] < 7.9f);
    CHECK(to_vector<float>(of_params.list("masters", params)[0]) == to_vector<float>(wide[0]));
  }
}

TEST_CASE("inside a chain, masters give the way to themselves", "[optim]") {
  const Transformation kept = master_weights(sgd(0.01)), part = chain(kept, identity());
  std::vector<Tensor> one = {linspace(-3, 3, 50, {.dtype = bf16}), linspace(0, 1, 3)};
  std::vector<Tensor> two = {clone(one[0]), clone(one[1])};
  State of_one = kept.init(one), of_two = part.init(two);
  for (int step = 0; step < 10; ++step) {
    kept.apply({cos(one[0]), cos(one[1])}, of_one, one);
    part.apply({cos(two[0]), cos(two[1])}, of_two, two);
  }
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(to_vector<double>(one[i]) == to_vector<double>(two[i]));
  }
}

TEST_CASE("averages of 16-bit parameters are f32", "[optim]") {
  std::vector<Tensor> params = {zeros({3}, {.dtype = bf16}), zeros({2}, {.dtype = f64})};
  State state = chain(scale_by_adam(), trace(0.5), ema(0.5)).init(params);
  for (const auto& [name, tensor] : state.named()) {
    INFO(name);
    CHECK(tensor.dtype() == (name.ends_with(".0") ? f32 : f64));
  }
}

TEST_CASE("an optimizer steps leaves and packed parameters", "[optim]") {
  manual_seed(3);
  Tensor w = requires_grad_(randn({3})), unused = requires_grad_(ones({2}));
  const std::vector<float> before = to_vector<float>(w);
  Optimizer optimizer({w, unused}, sgd(0.25));
  CHECK(error_of([&] { optimizer.step(); }) ==
        "[Optimizer::step] expected gradients, got none for 2 parameters; call backward first");
  backward(sum(square(w)));
  optimizer.step();
  const std::vector<float> after = to_vector<float>(w);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(after[i] == before[i] * 0.5f);
  CHECK(to_vector<float>(unused) == std::vector<float>{1, 1});
  CHECK(requires_grad(w));
  CHECK(is_leaf(w));
  optimizer.zero_grad();
  CHECK_FALSE(grad(w).defined());

  Packed packed;
  Optimizer of_packed(packed, adam(0.5));
  packed.gradient = tensor({1, 2, -3, -4});
  of_packed.step();
  const std::vector<float> moved = to_vector<float>(packed.value);
  for (std::size_t i = 0; i < 4; ++i) CHECK(moved[i] == Approx(i < 2 ? -0.5 : 0.5));
  of_packed.zero_grad();
  CHECK_FALSE(packed.gradient.defined());
  const TemporaryFile file;
  of_packed.save(file.path);
  of_packed.load(file.path);
  CHECK(of_packed.state_dict().size() == 4);
}

TEST_CASE("an optimizer packs a model by itself", "[optim]") {
  const auto train = [](Mode mode, bool by_hand) {
    manual_seed(4);
    nn::MLP model({3, 5, 2}, {.activation = nn::Activation::silu});
    std::optional<nn::Parameters> parameters;
    if (by_hand) parameters.emplace(model);
    Optimizer optimizer =
        by_hand ? Optimizer(*parameters, adam(0.05)) : Optimizer(model, adam(0.05));
    auto step = compile(
        [&](const Tensor& x) {
          optimizer.zero_grad();
          const Tensor loss = mean(square(model(x)));
          backward(loss);
          optimizer.step();
          return detach(loss);
        },
        {.mode = mode, .fallback = OnFallback::refuse});
    const Tensor x = randn({4, 3});
    std::vector<float> losses;
    for (int i = 0; i < 6; ++i) losses.push_back(item<float>(step(x)));
    CHECK(losses.back() < losses.front());
    CHECK(optimizer.state_dict().size() == 4);
    return losses;
  };
  const std::vector<float> wanted = train(Mode::eager, true);
  CHECK(train(Mode::eager, false) == wanted);
  CHECK(train(Mode::graph, false) == wanted);
}

TEST_CASE("a step without gradients says that a loss from before packing has none", "[optim]") {
  nn::MLP model({2, 3, 1});
  const Tensor loss = sum(model(ones({1, 2})));
  Optimizer optimizer(model, sgd(0.5));
  backward(loss);
  CHECK(
      error_of([&] { optimizer.step(); }) ==
      "[Optimizer::step] expected gradients, got none for 1 parameters; call backward first, of a "
      "loss that was computed after the optimizer or nn::Parameters had packed the model's "
      "parameters");
  backward(sum(model(ones({1, 2}))));
  optimizer.step();
}

TEST_CASE("an optimizer and its model may end in any order", "[optim]") {
  auto model = std::make_unique<nn::MLP>(std::vector<std::int64_t>{2, 3, 1});
  auto optimizer = std::make_unique<Optimizer>(*model, sgd(0.5));
  CHECK_THAT(error_of([&] { Optimizer(*model, sgd(0.5)); }),
             Catch::Contains("packed once at a time, got layers.0.weight of mlp, which another "
                             "Parameters or an Optimizer has packed"));
  CHECK_THAT(error_of([&] { model->to(f64); }), Catch::Contains("expected a module that is not"));
  optimizer.reset();
  optimizer = std::make_unique<Optimizer>(*model, sgd(0.5));  // packed no more, and so again
  backward(sum((*model)(ones({1, 2}))));
  const Tensor bias = model->layers[1].bias;
  const double before = item(sum(bias));
  model.reset();
  optimizer->step();
  CHECK(item(sum(bias)) == Approx(before - 0.5));
  optimizer->zero_grad();
  CHECK_FALSE(grad_of(bias).defined());
}

TEST_CASE("optimizers refuse invalid arguments", "[optim]") {
  CHECK(error_of([] { adam(0.1, {.beta1 = -0.5}); }) ==
        "[adam] expected beta1 in [0, 1), got -0.5");
  CHECK(error_of([] { adam(0.1, {.beta2 = 1}); }) == "[adam] expected beta2 in [0, 1), got 1");
  CHECK(error_of([] { adam(0.1, {.eps = -1}); }) ==
        "[adam] expected eps to be finite and not negative, got -1");
  CHECK(error_of([] { adam(-0.1); }) ==
        "[adam] expected a learning rate to be finite and not negative, got -0.1");
  CHECK(error_of([] { adamw(0.1, NAN); }) ==
        "[adamw] expected a weight decay to be finite and not negative, got nan");
  CHECK(error_of([] { sgd(0.1, {.momentum = 1.5}); }) ==
        "[sgd] expected a momentum in [0, 1), got 1.5");
  CHECK(error_of([] { sgd(0.1, {.nesterov = true}); }) ==
        "[sgd] expected a momentum above 0 for Nesterov's, got 0");
  CHECK(error_of([] { lion(0.1, {.beta2 = 2}); }) == "[lion] expected beta2 in [0, 1), got 2");
  CHECK(error_of([] { sgd(-1); }) ==
        "[sgd] expected a learning rate to be finite and not negative, got -1");
  CHECK(error_of([] { lion(0.1, {.weight_decay = -1}); }) ==
        "[lion] expected a weight decay to be finite and not negative, got -1");
  CHECK(error_of([] { scale_by_adam({.beta1 = 2}); }) ==
        "[scale_by_adam] expected beta1 in [0, 1), got 2");
  CHECK(error_of([] { optim::trace(1); }) == "[trace] expected a decay in [0, 1), got 1");
  CHECK(error_of([] { ema(-1); }) == "[ema] expected a decay in [0, 1), got -1");
  CHECK(error_of([] { clip_by_global_norm(0); }) ==
        "[clip_by_global_norm] expected a finite limit above 0, got 0");
  CHECK(error_of([] { optim::clip(-1); }) == "[clip] expected a finite limit above 0, got -1");
  CHECK(error_of([] { scale(ones({3})); }) ==
        "[Coefficient] expected a number or a floating tensor of rank 0, got f32[3]");
}

TEST_CASE("transformations refuse tensors and states that do not fit", "[optim]") {
  const Transformation t = sgd(0.1, {.momentum = 0.9});
  std::vector<Tensor> params = {ones({3}), ones({2, 2})};
  State state = t.init(params);
  CHECK(error_of([&] { t.update({ones({3})}, state, params); }) ==
        "[Transformation::update] expected an update for each of 2 parameters, got 1");
  CHECK(error_of([&] {
          t.apply({ones({4}), Tensor()}, state, params);
        }) ==
        "[Transformation::apply] expected updates of the parameters' shapes, got f32[4] for "
        "parameter 0 of f32[3]; none for parameter 1 of f32[2, 2]");
  CHECK(error_of([&] {
          apply_updates(params, std::vector<Tensor>{ones({3}), ones({2})});
        }) ==
        "[apply_updates] expected updates of the parameters' shapes, got f32[2] for parameter 1 of "
        "f32[2, 2]");
  CHECK(to_vector<float>(params[0]) == std::vector<float>{1, 1, 1});
  std::vector<Tensor> others = {ones({3}), ones({2, 3})};
  CHECK(error_of([&] {
          t.apply({ones({3}), ones({2, 3})}, state, others);
        }) ==
        "[State::list] expected the parameters that init saw, \"trace\" of which is [f32[3], "
        "f32[2, 2]], got [f32[3], f32[2, 3]]");
  CHECK(error_of([&] { t.init({}); }) ==
        "[Transformation::init] expected at least one parameter, got none");
  CHECK(error_of([&] { t.init(std::vector<Tensor>{arange(3)}); }) ==
        "[Transformation::init] expected floating parameters, got i64[3]");
  CHECK(error_of([] { Optimizer({ones({3})}, sgd(0.1)); }) ==
        "[Optimizer] expected leaves that require a gradient, got f32[3] at 0");

  State names = State().add("mu", ones({3}));
  CHECK(error_of([&] { names.add("mu", State()); }) ==
        "[State::add] expected a new name, got \"mu\"");
  CHECK(error_of([&] { names.tensor("nu"); }) ==
        "[State] expected one of the names [mu], got \"nu\"");
  CHECK(error_of([&] { names.list("mu"); }) ==
        "[State::list] expected a list, got the one tensor \"mu\"");
  CHECK(error_of([&] { names.child("0"); }) ==
        "[State::child] expected one of the names [], got \"0\"");
}
