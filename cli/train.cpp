#include "cli/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/tensor/error.h"
#include "cli/run_file.h"

namespace brrr::cli {
namespace {

// The name of the first parameter with an element of `flat` that is not finite; empty: there is
// none.
std::string first_bad(const nn::Parameters& parameters, std::span<const Tensor> flat) {
  const NoGrad constant;
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if (!flat[i].defined()) continue;
    const Tensor bad = logical_not(isfinite(flat[i]));
    if (item(any(bad)) == 0) continue;
    return parameters.slice_at(i, item<std::int64_t>(argmax(cast(bad, f32)))).name;
  }
  return "";
}

// A step that reads what it works on: the parameters before it, then what came of them.
Tensor checked_step(Training& training, std::int64_t number) {
  const nn::Parameters& parameters = training.parameters();
  std::string where = first_bad(parameters, parameters.values());
  const Tensor loss = training.step();
  if (where.empty()) {
    where = first_bad(parameters, parameters.gradients());
    if (!where.empty()) where = "the gradient of " + where;
  }
  const double value = item(loss);
  if (where.empty() && std::isfinite(value)) return loss;
  fail(fmt::format("[train] expected finite numbers, got a loss of {} at step {}; not finite is {}",
                   std::isnan(value) ? std::abs(value) : value, number,
                   where.empty() ? "no parameter and no gradient" : where));
}

std::vector<double> values_of(const std::vector<Tensor>& losses) {
  std::vector<double> values;
  if (losses.empty()) return values;
  for (const float loss : to_vector<float>(to(stack(losses), f32))) values.push_back(loss);
  return values;
}

}  // namespace

std::vector<double> train_steps(Training& training, std::int64_t steps) {
  std::vector<Tensor> losses;
  for (std::int64_t i = 0; i < steps; ++i) losses.push_back(training.step());
  return values_of(losses);
}

measure::Sampling sampling_of(const TrainOptions& o) {
  return {.samples = 60,
          .sample_seconds = std::min(0.02, o.time_seconds / 8),
          .budget_seconds = o.time_seconds};
}

TrainResult train(const TrainOptions& options) {
  TrainResult result;
  result.options = options;
  TrainOptions& o = result.options;
  std::optional<RunFile> loaded;
  if (!o.load.empty()) loaded.emplace(o.load);
  if (loaded) {
    const RunFacts& facts = loaded->facts();
    if (facts.model != o.toy.model || (o.seed_is_given && o.seed != facts.seed)) {
      fail(fmt::format("[load {}] expected {} with seed {}, got {} with seed {}", o.load,
                       o.toy.model, o.seed_is_given ? o.seed : facts.seed, facts.model,
                       facts.seed));
    }
    result.steps_done = facts.steps;
    o.seed = facts.seed;
  }

  Training training(o);
  if (loaded) loaded->load_into(training.module(), training.optimizer());
  loaded.reset();

  std::vector<Tensor> losses;  // read at the end: a read would wait for the device
  for (std::int64_t i = 0; i < o.steps; ++i) {
    ++result.steps_done;
    losses.push_back(o.check_finite ? checked_step(training, result.steps_done) : training.step());
    if (o.progress) o.progress(i + 1, [&] { return item(losses.back()); });
  }
  result.losses = values_of(losses);
  losses.clear();
  if (!o.save.empty()) {
    save_run(o.save, {o.toy.model, o.seed, result.steps_done}, training.module(),
             training.optimizer());
  }

  // What follows goes on training, but counts for nothing.
  if (o.time_seconds > 0) {
    const auto batch = measure::synchronized_batch(o.toy.device, [&] { training.step(); });
    result.step = measure::time(batch, sampling_of(o));
  }
  result.cost = training.cost();
  result.compiled = training.compiled();
  return result;
}

}  // namespace brrr::cli
