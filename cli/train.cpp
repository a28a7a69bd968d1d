#include "cli/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "cli/run_file.h"
#include "nn/optim/clip.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizers.h"
#include "nn/parameters.h"
#include "ops/matmul.h"
#include "tensor/error.h"

namespace brrr::cli {
namespace {

optim::LearningRate rate_of(const TrainOptions& o) {
  if (o.warmup > 0) return optim::linear_schedule(0, o.rate, o.warmup);
  return optim::Coefficient(o.rate);
}

optim::Transformation optimizer_of(const TrainOptions& o) {
  const optim::AdamOptions as_peers = {.wide = false};
  const optim::LearningRate rate = rate_of(o);
  const optim::Transformation steps = o.optimizer == "adamw"  ? optim::adamw(rate, 1e-4, as_peers)
                                      : o.optimizer == "sgd"  ? optim::sgd(rate)
                                      : o.optimizer == "lion" ? optim::lion(rate)
                                                              : optim::adam(rate, as_peers);
  return o.clip > 0 ? chain(optim::clip_by_global_norm(o.clip), steps) : steps;
}

// The name of the first parameter with an element of `flat` that is not finite; empty: there is
// none.
std::string first_bad(const nn::Parameters& parameters, std::span<const Tensor> flat) {
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if (!flat[i].defined()) continue;
    const Tensor bad = logical_not(isfinite(flat[i]));
    if (item(any(bad)) == 0) continue;
    return parameters.slice_at(i, item<std::int64_t>(argmax(cast(bad, f32)))).name;
  }
  return "";
}

void expect_finite(std::int64_t step, const Tensor& loss, const nn::Parameters& parameters) {
  const NoGrad constant;
  std::string where = first_bad(parameters, parameters.values());
  if (where.empty()) {
    where = first_bad(parameters, parameters.gradients());
    if (!where.empty()) where = "the gradient of " + where;
  }
  const double value = item(loss);
  if (where.empty() && std::isfinite(value)) return;
  fail(fmt::format("[train] expected finite numbers, got a loss of {} at step {}; not finite is {}",
                   std::isnan(value) ? std::abs(value) : value, step,
                   where.empty() ? "no parameter and no gradient" : where));
}

std::vector<double> values_of(const std::vector<Tensor>& losses) {
  std::vector<double> values;
  if (losses.empty()) return values;
  for (const float loss : to_vector<float>(to(stack(losses), f32))) values.push_back(loss);
  return values;
}

}  // namespace

TrainResult train(const TrainOptions& options) {
  TrainResult result;
  result.options = options;
  TrainOptions& o = result.options;
  std::optional<RunFile> loaded;
  if (!o.load.empty()) loaded.emplace(o.load);
  if (loaded) {
    const RunFacts& facts = loaded->facts();
    if (facts.model != o.toy.model || (o.seed && *o.seed != facts.seed)) {
      fail(fmt::format("[load {}] expected {} with seed {}, got {} with seed {}", o.load,
                       o.toy.model, o.seed.value_or(facts.seed), facts.model, facts.seed));
    }
    result.steps_done = facts.steps;
    o.seed = facts.seed;
  }
  manual_seed(o.seed.emplace(o.seed.value_or(0)));
  set_matmul_precision(o.tf32 ? Precision::tf32 : Precision::full);
  set_matmul_choice(o.measured_matmul ? Choice::measured : Choice::first);

  Toy toy(o.toy);
  nn::Parameters parameters(toy.module());
  optim::Optimizer optimizer(parameters, optimizer_of(o));
  if (loaded) loaded->load_into(toy.module(), optimizer);
  loaded.reset();

  const auto gradients = [&] {
    optimizer.zero_grad();
    const Tensor loss = toy.loss();
    backward(loss);
    return detach(loss);
  };
  std::vector<Tensor> losses;  // read at the end: a read would wait for the device
  for (std::int64_t i = 0; i < o.steps; ++i) {
    losses.push_back(gradients());
    if (o.check_finite) expect_finite(result.steps_done + 1, losses.back(), parameters);
    optimizer.step();
    ++result.steps_done;
    if (o.progress) o.progress(i + 1, [&] { return item(losses.back()); });
  }
  result.losses = values_of(losses);
  losses.clear();
  if (!o.save.empty()) {
    save_run(o.save, {o.toy.model, *o.seed, result.steps_done}, toy.module(), optimizer);
  }

  // What follows goes on training, but counts for nothing.
  const auto step = [&] {
    gradients();
    optimizer.step();
  };
  if (o.time_seconds > 0) {
    result.step = measure::time(measure::synchronized_batch(o.toy.device, step),
                                {.samples = 60,
                                 .sample_seconds = std::min(0.02, o.time_seconds / 8),
                                 .budget_seconds = o.time_seconds});
  }
  step();
  result.cost = measure::cost_of_step(o.toy.device, step);
  return result;
}

}  // namespace brrr::cli
