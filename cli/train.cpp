#include "cli/train.h"

#include <algorithm>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/io/file_bytes.h"
#include "brrr/measure/nvtx.h"
#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/tensor/fail.h"
#include "cli/run_file.h"

namespace brrr::cli {
namespace {

// The name of the first parameter whose slice of `flat` has an element that is not finite; empty:
// none.
std::string parameter_not_finite(const nn::Parameters& parameters, std::span<const Tensor> flat) {
  const NoGrad constant;
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if (!flat[i].defined()) continue;
    const Tensor bad = logical_not(isfinite(flat[i]));
    if (item(any(bad)) == 0) continue;
    return parameters.range_at(i, item<std::int64_t>(argmax(cast(bad, f32)))).name;
  }
  return "";
}

// A step that checks the parameters before it, then the gradients and the loss.
Tensor checked_step(Training& training, std::int64_t number) {
  const nn::Parameters& parameters = training.parameters();
  std::string where = parameter_not_finite(parameters, parameters.values());
  Tensor loss = training.step();
  if (where.empty()) {
    where = parameter_not_finite(parameters, parameters.gradients());
    if (!where.empty()) where = "the gradient of " + where;
  }
  const double value = item(loss);
  if (where.empty() && std::isfinite(value)) return loss;
  fail("[train] expected finite numbers, got a loss of {} at step {}; not finite is {}",
       std::isnan(value) ? std::abs(value) : value, number,
       where.empty() ? "no parameter and no gradient" : where);
}

// Thrown to end a measurement.
struct Stopped {};

RunMetadata metadata_of(const TrainOptions& o) {
  RunMetadata run{.model = o.toy.model, .seed = o.seed};
  if (o.toy.model == "mlp") {
    run.activation = name_of(o.toy.activation);
    run.residual = o.toy.residual;
  }
  return run;
}

void require_same_run(const TrainOptions& o, const RunMetadata& loaded) {
  const std::string expected = describe_network(metadata_of(o)), got = describe_network(loaded);
  if (expected == got && (!o.seed_is_given || o.seed == loaded.seed)) return;
  fail("[load {}] expected {} with seed {}, got {} with seed {}", o.load, expected,
       o.seed_is_given ? o.seed : loaded.seed, got, loaded.seed);
}

void run_steps(Training& training, TrainResult& result) {
  const TrainOptions& o = result.options;
  const std::int64_t before = result.steps_done;
  measure::Losses losses;
  const std::function<double()> last_loss = [&] { return losses.values().back(); };
  for (std::int64_t i = 0; i < o.steps && !result.interrupted; ++i) {
    try {
      const measure::NvtxStep range(result.steps_done + 1);
      losses.add(o.check_finite ? checked_step(training, result.steps_done + 1) : training.step());
    } catch (const jit::Interrupted&) {
      // The step under way may have changed a part of the state: it is not saved.
      result.interrupted = result.cut_off = true;
      break;
    }
    ++result.steps_done;
    if (o.progress) o.progress({before, i + 1, last_loss});
    result.interrupted = o.stop && o.stop();
  }
  result.losses = std::move(losses.values());
}

void save(Training& training, TrainResult& result) {
  RunMetadata run = metadata_of(result.options);
  run.steps = result.steps_done;
  save_run(result.options.save, run, training.module(), training.optimizer());
  result.saved = result.options.save;
}

// Further steps are timed; their losses are not recorded.
void measure_steps(Training& training, TrainResult& result) {
  const TrainOptions& o = result.options;
  const auto batch = measure::synchronized_batch(o.toy.device, [&] {
    training.step();
    if (o.stop && o.stop()) throw Stopped();
  });
  try {
    if (o.time_seconds > 0)
      result.step = measure::time(batch, measure::sampling_for(o.time_seconds));
    result.cost = training.cost();
  } catch (const Stopped&) {
    result.interrupted = true;
  } catch (const jit::Interrupted&) {
    result.interrupted = true;
  }
}

}  // namespace

TrainResult train(const TrainOptions& options) {
  TrainResult result;
  result.options = options;
  TrainOptions& o = result.options;
  if (!o.save.empty()) require_writable("save", o.save);  // before hours of training
  std::optional<RunFile> loaded;
  if (!o.load.empty()) {
    loaded.emplace(o.load);
    require_same_run(o, loaded->metadata());
    result.steps_done = loaded->metadata().steps;
    o.seed = loaded->metadata().seed;
  }

  manual_seed(o.seed);
  Training training(o);
  if (loaded) loaded->load_into(training.module(), training.optimizer());
  loaded.reset();
  run_steps(training, result);
  if (!o.save.empty() && !result.cut_off) save(training, result);
  if (!result.interrupted) measure_steps(training, result);
  result.compiled = training.compiled();
  return result;
}

}  // namespace brrr::cli
