// Optimizers against plain ones in double precision written here, and the launches of their steps.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/catch.h"
#include "tests/harness/jit_rows.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::optim;

namespace {

using Doubles = std::vector<double>;

// Gradients that depend on place, parameter and step, never near 0 or a tie.
double gradient_at(std::size_t i, double p, int step) {
  return 0.7 * p + std::sin(1.3 * static_cast<double>(i) + 0.9 * step) + 0.05;
}

Doubles first_values(std::size_t n) {
  Doubles p(n);
  for (std::size_t i = 0; i < n; ++i) p[i] = std::cos(0.37 * static_cast<double>(i)) * 2;
  return p;
}

// One step of all parameters together; `t` counts from 1.
using Reference = std::function<void(Doubles& p, const Doubles& g, int t)>;

constexpr int kSteps = 20;

// Both do 20 steps on parameters of these shapes; gradients follow each one's own parameters.
double worst_difference(const Transformation& transformation, const Reference& reference,
                        const std::vector<Dims>& shapes, DType dtype) {
  std::vector<Tensor> params;
  Doubles expected;
  for (const Dims& shape : shapes) {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    const Doubles values = first_values(static_cast<std::size_t>(n));
    params.push_back(cast(tensor<double>(values, shape), dtype));
    const std::vector<double> rounded = to_vector<double>(params.back());
    expected.insert(expected.end(), rounded.begin(), rounded.end());
  }
  State state = transformation.init(params);
  double worst = 0;
  for (int t = 1; t <= kSteps; ++t) {
    std::vector<Tensor> gradients;
    std::size_t at = 0;
    for (const Tensor& param : params) {
      Doubles g = to_vector<double>(param);
      for (double& value : g) value = gradient_at(at, value, t), ++at;
      gradients.push_back(cast(tensor<double>(g, Dims(param.shape())), dtype));
    }
    transformation.apply(std::move(gradients), state, params);

    Doubles g(expected.size());
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = gradient_at(i, expected[i], t);
    reference(expected, g, t);
  }
  std::size_t at = 0;
  for (const Tensor& param : params) {
    for (double value : to_vector<double>(param)) {
      worst = std::max(worst, std::abs(value - expected[at++]));
    }
  }
  return worst;
}

void check(const char* name, const std::function<Transformation()>& make,
           const std::function<Reference()>& reference, double f64_bound = 1e-13) {
  const std::vector<std::vector<Dims>> shapes = {{{1}}, {{}}, {{37, 5}}, {{1023}, {3, 2, 2}, {8}}};
  for (const std::vector<Dims>& each : shapes) {
    const double wide = worst_difference(make(), reference(), each, f64);
    const double narrow = worst_difference(make(), reference(), each, f32);
    INFO(name << ", " << each.size() << " tensors, first " << to_string(each[0]));
    CHECK(wide < f64_bound);
    CHECK(narrow < 3e-5);
  }
}

struct Adam {
  double rate, b1 = 0.9, b2 = 0.999, eps = 1e-8, decay = 0;
  Doubles m = {}, v = {};
  void operator()(Doubles& p, const Doubles& g, int t) {
    m.resize(p.size());
    v.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(b1, t)), square = v[i] / (1 - std::pow(b2, t));
      p[i] -= rate * (mean / (std::sqrt(square) + eps) + decay * p[i]);
    }
  }
};

struct Sgd {
  double rate, momentum = 0;
  bool nesterov = false;
  Doubles buffer = {};
  void operator()(Doubles& p, const Doubles& g, int) {
    buffer.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      buffer[i] = momentum * buffer[i] + g[i];
      p[i] -= rate * (nesterov ? g[i] + momentum * buffer[i] : buffer[i]);
    }
  }
};

struct Lion {
  double rate, b1, b2, decay;
  Doubles m = {};
  void operator()(Doubles& p, const Doubles& g, int) {
    m.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double direction = (1 - b1) * g[i] + b1 * m[i];
      m[i] = b2 * m[i] + (1 - b2) * g[i];
      p[i] -= rate * ((direction > 0) - (direction < 0) + decay * p[i]);
    }
  }
};

// The reference on gradients that were changed first.
Reference after(std::function<void(Doubles& g)> change, Reference step) {
  return [=](Doubles& p, const Doubles& g, int t) mutable {
    Doubles changed = g;
    change(changed);
    step(p, changed, t);
  };
}

// Calls that launch something on CUDA: all but views.
struct Launches : Observer {
  std::vector<std::string> names;
  void before(const Call& call) override {
    if (op_info(call.op).kind != OpKind::view) names.push_back(describe(call));
  }
};

std::vector<std::string> launches_of_step(const Transformation& transformation, DType dtype = f32) {
  std::vector<Tensor> params = {ones({100}, {.dtype = dtype})};
  State state = transformation.init(params);
  const std::vector<Tensor> gradients = {ones({100}, {.dtype = dtype})};
  transformation.apply(gradients, state, params);  // the first may do more
  Launches launches;
  const Observing observing(launches);
  transformation.apply(gradients, state, params);
  return launches.names;
}

std::string lines(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

void check_launches(const Transformation& transformation, std::size_t most, DType dtype = f32) {
  const std::vector<std::string> names = launches_of_step(transformation, dtype);
  INFO(lines(names));
  CHECK(names.size() == most);
}

}  // namespace

TEST_CASE("sgd agrees with a plain one in double precision", "[optim]") {
  check(
      "sgd", [] { return sgd(0.1); }, [] { return Sgd{0.1}; });
  check(
      "momentum", [] { return sgd(0.1, {.momentum = 0.9}); },
      [] {
        return Sgd{0.1, 0.9};
      });
  check(
      "nesterov", [] { return sgd(0.1, {.momentum = 0.8, .nesterov = true}); },
      [] {
        return Sgd{0.1, 0.8, true};
      });
}

TEST_CASE("adam and adamw agree with plain ones in double precision", "[optim]") {
  check(
      "adam", [] { return adam(0.05); }, [] { return Adam{0.05}; });
  check(
      "adam with its own constants",
      [] { return adam(0.05, {.beta1 = 0.8, .beta2 = 0.95, .eps = 0.1}); },
      [] {
        return Adam{0.05, 0.8, 0.95, 0.1};
      });
  check(
      "adamw", [] { return adamw(0.05, 0.1); },
      [] {
        return Adam{0.05, 0.9, 0.999, 1e-8, 0.1};
      });
}

TEST_CASE("lion agrees with a plain one in double precision", "[optim]") {
  check(
      "lion", [] { return lion(0.02, {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}); },
      [] {
        return Lion{0.02, 0.9, 0.99, 0.1};
      });
}

TEST_CASE("transformations before an optimizer change what it sees", "[optim]") {
  const auto clipped_norm = [](Doubles& g) {
    double squares = 0;
    for (double value : g) squares += value * value;
    const double norm = std::sqrt(squares);
    if (norm > 1.5) {
      for (double& value : g) value *= 1.5 / norm;
    }
  };
  check(
      "clip_by_global_norm", [] { return chain(clip_by_global_norm(1.5), adam(0.05)); },
      [=] { return after(clipped_norm, Adam{0.05}); });
  check(
      "clip", [] { return chain(optim::clip(0.4), sgd(0.1)); },
      [] {
        return after(
            [](Doubles& g) {
              for (double& value : g) value = std::min(0.4, std::max(-0.4, value));
            },
            Sgd{0.1});
      });
  check(
      "scale", [] { return chain(scale(0.5), sgd(0.1)); }, [] { return Sgd{0.05}; });
  check(
      "scale up at the end", [] { return chain(identity(), scale(-0.1)); },
      [] { return Sgd{0.1}; });
  check(
      "L2", [] { return chain(add_decayed_weights(0.3), sgd(0.1)); },
      [] {
        return [](Doubles& p, const Doubles& g, int) {
          for (std::size_t i = 0; i < p.size(); ++i) p[i] -= 0.1 * (g[i] + 0.3 * p[i]);
        };
      });
  for (bool debias : {false, true}) {
    check(
        debias ? "ema, debiased" : "ema", [=] { return chain(ema(0.9, debias), sgd(0.1)); },
        [=] {
          return [=, m = Doubles()](Doubles& p, const Doubles& g, int t) mutable {
            m.resize(p.size());
            for (std::size_t i = 0; i < p.size(); ++i) {
              m[i] = 0.9 * m[i] + 0.1 * g[i];
              p[i] -= 0.1 * m[i] / (debias ? 1 - std::pow(0.9, t) : 1);
            }
          };
        });
  }
}

TEST_CASE("update and apply_updates come to the same as apply", "[optim]") {
  for (const Transformation& t :
       {sgd(0.1), adamw(0.1, 0.1), chain(clip_by_global_norm(0.5), lion(0.1)), scale(-0.1),
        scale_by_schedule(linear_schedule(-0.1, -0.2, 3))}) {
    std::vector<Tensor> one = {linspace(-1, 1, 11, {.dtype = f64})}, two = {clone(one[0])};
    State of_one = t.init(one), of_two = t.init(two);
    for (int step = 0; step < 3; ++step) {
      t.apply({sin(one[0])}, of_one, one);
      apply_updates(two, t.update({sin(two[0])}, of_two, two));
      const Doubles a = to_vector<double>(one[0]), b = to_vector<double>(two[0]);
      for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-15));
    }
  }
}

TEST_CASE("updates and states of parameters that record gradients are constants", "[optim]") {
  std::vector<Tensor> params = {requires_grad_(ones({4}))};
  const Transformation t = chain(add_decayed_weights(0.1), adamw(0.1, 0.1));
  State state = t.init(params);
  const std::vector<Tensor> updates = t.update({ones({4})}, state, params);
  CHECK_FALSE(requires_grad(updates[0]));
  for (const auto& [name, tensor] : state.named()) CHECK_FALSE(requires_grad(tensor));
  apply_updates(params, updates);
  CHECK(is_leaf(params[0]));
  CHECK(requires_grad(params[0]));
}

TEST_CASE("the norm of 16-bit gradients is computed in f32", "[optim]") {
  const std::vector<Tensor> parts = {full({100}, 30000.0, {.dtype = f16}), full({}, 400000.0)};
  const Tensor norm = global_norm(parts);
  CHECK(norm.dtype() == f32);
  CHECK(item(norm) == Approx(500000));
  const std::vector<Tensor> nothing = {zeros({3})};
  State state;
  CHECK(to_vector<float>(clip_by_global_norm(1).update(nothing, state, nothing)[0]) ==
        std::vector<float>{0, 0, 0});
}

TEST_CASE("no transformation writes to the updates that it is given", "[optim]") {
  const Tensor gradient = linspace(-2, 2, 9);
  const std::vector<float> before = to_vector<float>(gradient);
  for (const Transformation& t :
       {sgd(0.1, {.momentum = 0.9, .nesterov = true}), adamw(0.1), lion(0.1), ema(0.9), scale(2),
        optim::clip(0.5), clip_by_global_norm(0.1), identity(), add_decayed_weights(0.1)}) {
    std::vector<Tensor> params = {ones({9})};
    State state = t.init(params);
    for (int step = 0; step < 2; ++step) {
      t.update({gradient}, state, params);
      t.apply({gradient}, state, params);
    }
    CHECK(to_vector<float>(gradient) == before);
  }
}

TEST_CASE("a step launches few kernels", "[optim]") {
  check_launches(sgd(0.1), 1);
  check_launches(sgd(0.1, {.momentum = 0.9}), 1);
  check_launches(sgd(0.1, {.momentum = 0.9, .nesterov = true}), 1);
  check_launches(lion(0.1), 1);
  check_launches(adam(0.1), 2);
  check_launches(adamw(0.1), 2);
  check_launches(chain(clip_by_global_norm(1), adam(0.1)), 5);
  // A schedule is one launch, and one counts.
  const Schedule schedule = warmup_cosine_decay_schedule(0, 0.1, 10, 100);
  check_launches(chain(clip_by_global_norm(1), adam(schedule)), 7);
  // Injected, the value is also written to its place.
  const auto injected = [](const auto& h) {
    return chain(clip_by_global_norm(1), adam(h["rate"]));
  };
  check_launches(inject_hyperparams({{"rate", 0.1}}, injected), 5);
  check_launches(inject_hyperparams({{"rate", schedule}}, injected), 8);
  // Each line that is joined to another is one more.
  check_launches(sgd(piecewise_constant_schedule(1, {{2, 0.5}, {5, 0.1}})), 5);
  // The gradient to f32, and the masters to bf16.
  check_launches(master_weights(adam(0.1)), 4, bf16);
}

namespace {

std::vector<Transformation> all_kinds() {
  const Tensor of_device = full({}, 0.1);
  std::vector<Transformation> all = {
      scale(2),
      scale(of_device),
      trace(0.9, true),
      ema(0.9),
      scale_by_adam(),
      scale_by_lion(),
      add_decayed_weights(of_device),
      clip(1),
      clip_by_global_norm(1),
      inject_hyperparams({{"rate", 0.1}}, [](const auto& h) { return sgd(h["rate"]); })};
  std::vector<LearningRate> rates = {0.1,
                                     of_device,
                                     constant_schedule(0.1),
                                     linear_schedule(0, 0.1, 4),
                                     cosine_decay_schedule(0.1, 4),
                                     warmup_cosine_decay_schedule(0, 0.1, 2, 4),
                                     piecewise_constant_schedule(0.1, {{1, 0.5}}),
                                     piecewise_linear_schedule(0.1, {{1, 0.5}})};
  for (const LearningRate& rate : rates) {
    for (const Transformation& t :
         {sgd(rate), sgd(rate, {.momentum = 0.9}), sgd(rate, {.momentum = 0.9, .nesterov = true}),
          adam(rate), adamw(rate), lion(rate), master_weights(adamw(rate))})
      all.push_back(t);
  }
  return all;
}

// A step of each kind, by apply and by update.
void step_all_kinds() {
  for (const Transformation& t : all_kinds()) {
    std::vector<Tensor> params = {ones({5}), ones({2, 3}, {.dtype = bf16})};
    const std::vector<Tensor> gradients = {ones({5}), ones({2, 3}, {.dtype = bf16})};
    State state = t.init(params);
    t.apply(gradients, state, params);
    t.update(gradients, state, params);
  }
}

}  // namespace

TEST_CASE("steps of optimizers call built-in ops only", "[optim]") {
  struct Registered : Observer {
    std::vector<std::string> names;
    void before(const Call& call) override {
      if (call.op >= Op::first_registered) names.push_back(describe(call));
    }
  } registered;
  const Observing observing(registered);
  step_all_kinds();
  INFO(lines(registered.names));
  CHECK(registered.names.empty());
}

TEST_CASE("steps of optimizers need no compiler on the CPU", "[optim]") {
  const testing::CacheDirectory empty;
  const std::string before = std::getenv("CXX") ? std::getenv("CXX") : "";
  ::setenv("CXX", "/nonexistent", 1);
  CHECK_NOTHROW(step_all_kinds());
  // What a user writes as text is compiled.
  CHECK_THROWS_AS(Schedule("a * 0.01 + 0.0123")(zeros({})), Error);
  before.empty() ? ::unsetenv("CXX") : ::setenv("CXX", before.c_str(), 1);
}

TEST_CASE("adam's averages of 16 bits go the same way as those of f32", "[optim]") {
  check_launches(adam(0.1), 2, bf16);
  check_launches(adam(0.1, {.wide = false}), 2, bf16);
  std::vector<Tensor> narrow = {linspace(-1, 1, 11, {.dtype = bf16})}, wide = {clone(narrow[0])};
  const Transformation t = adam(0.05, {.wide = false}), w = adam(0.05);
  State of_narrow = t.init(narrow), of_wide = w.init(wide);
  for (const auto& [name, tensor] : of_narrow.named()) CHECK(tensor.dtype() == bf16);
  for (int step = 0; step < 20; ++step) {
    t.apply({narrow[0] * 2}, of_narrow, narrow);
    w.apply({wide[0] * 2}, of_wide, wide);
  }
  // Twenty steps of 0.05 towards 0, each rounded to 8 bits.
  const std::vector<float> a = to_vector<float>(to(narrow[0], f32)),
                           b = to_vector<float>(to(wide[0], f32));
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(0.05));
  CHECK(a.front() == Approx(0).margin(0.2));
}

TEST_CASE("a step writes its state in place", "[optim]") {
  const Transformation t = inject_hyperparams(
      {{"rate", cosine_decay_schedule(0.1, 5)}, {"decay", 0.1}}, [](const auto& h) {
        return chain(clip_by_global_norm(1), ema(0.5), scale_by_schedule(constant_schedule(0.5)),
                     master_weights(adamw(h["rate"], h["decay"])));
      });
  std::vector<Tensor> params = {ones({3}, {.dtype = bf16}), ones({2, 2})};
  State state = t.init(params);
  const NamedTensors before = state.named();
  CHECK(t.update({ones({3}, {.dtype = bf16}), ones({2, 2})}, state, params).size() == 2);
  for (int step = 0; step < 3; ++step) {
    t.apply({ones({3}, {.dtype = bf16}), ones({2, 2})}, state, params);
  }
  const NamedTensors now = state.named();
  REQUIRE(before.size() == now.size());
  std::set<const void*> storages;
  for (std::size_t i = 0; i < now.size(); ++i) {
    INFO(now[i].first);
    CHECK(before[i].first == now[i].first);
    CHECK(TensorImpl::of(before[i].second) == TensorImpl::of(now[i].second));
    storages.insert(now[i].second.data());
  }
  CHECK(storages.size() == now.size());
}
