#include "brrr/measure/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <memory>
#include <utility>

#include "brrr/autograd/autograd.h"
#include "brrr/measure/step.h"
#include "brrr/measure/step_cost.h"
#include "brrr/measure/sweep_steps.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/nn/parameters.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/ops/matmul.h"

namespace brrr::measure {
namespace {

constexpr std::array kModes = {Mode::eager, Mode::graph, Mode::fused};
constexpr int kLosses = 4;

// A drawn model in training.
class Trained {
 public:
  Trained(DrawnModel model, Mode mode)
      : model_(std::move(model)),
        parameters_(*model_.module),
        optimizer_(parameters_, optim::adam(1e-3)),
        step_(
            [this] {
              optimizer_.zero_grad();
              const Tensor loss = model_.loss();
              backward(loss);
              optimizer_.step();
              return detach(loss);
            },
            {.mode = mode}) {}
  Trained(const Trained&) = delete;
  Trained& operator=(const Trained&) = delete;

  Tensor step() { return step_(); }
  std::vector<core::LaunchCost> kernels() const { return step_.launches(); }
  StepCost cost(Device device) {
    const std::function<void()> once = [this] { step(); };
    step_.measure_kernels();
    return cost_of_step(device, once);
  }

 private:
  DrawnModel model_;
  nn::Parameters parameters_;
  optim::Optimizer optimizer_;
  Compiled<std::function<Tensor()>> step_;
};

// Losses of the first steps, the cost of one and how long the first two took.
std::unique_ptr<Trained> begin(const DrawnStep& drawn, const SweepOptions& options,
                               std::vector<double>& losses, StepCost& cost, SweptMode& result) {
  manual_seed(options.seed);
  set_matmul_precision(drawn.tf32 ? Precision::tf32 : Precision::full);
  auto trained = std::make_unique<Trained>(drawn.make(), result.mode);
  const double start = host_seconds();
  for (int i = 0; i < kLosses; ++i) {
    losses.push_back(item(trained->step()));
    if (i == 1) result.start = host_seconds() - start;
  }
  cost = trained->cost(options.device);
  result.predicted = cost.predicted.seconds();
  result.kernels = cost.kernels;
  return trained;
}

void run(const DrawnStep& drawn, const SweepOptions& options, SweptStep& swept) {
  std::vector<std::unique_ptr<Trained>> trainings;
  std::vector<Batch> batches;
  std::vector<StepCost> costs;
  std::vector<double> wanted;
  for (const Mode mode : kModes) {
    SweptMode& result = swept.modes.emplace_back();
    result.mode = mode;
    std::vector<double> losses;
    trainings.push_back(begin(drawn, options, losses, costs.emplace_back(), result));
    if (mode == Mode::eager) wanted = losses;
    result.agreement = agreement_of(wanted, losses,
                                    loss_bound(options.device, drawn.dtype, mode, Rounding::eager));
    batches.push_back(synchronized_batch(
        options.device, [training = trainings.back().get()] { training->step(); }));
  }
  predict_from(trainings[1]->kernels(), options.device, costs[0]);
  swept.modes[0].predicted = costs[0].predicted.seconds();
  const Sampling sampling = options.quick
                                ? options.sampling()
                                : Sampling{.samples = 30,
                                           .sample_seconds = std::min(0.01, options.seconds / 20),
                                           .budget_seconds = options.seconds * kModes.size() / 2};
  for (std::size_t round = 0; round < 2; ++round) {
    const std::vector<Timing> timings = time_all(batches, sampling);
    for (std::size_t i = 0; i < timings.size(); ++i) swept.modes[i].rounds[round] = timings[i];
  }
}

Errors errors_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  std::ranges::sort(errors);
  const auto at = [&](double part) {
    return errors[static_cast<std::size_t>(part * static_cast<double>(errors.size() - 1))];
  };
  return {at(0.5), at(0.9), errors.back()};
}

double median_of(std::vector<double> values) { return errors_of(std::move(values)).median; }

void count_order(const SweptStep& step, SweepSummary& summary) {
  for (std::size_t slow = 0; slow < step.modes.size(); ++slow) {
    for (std::size_t fast = 0; fast < step.modes.size(); ++fast) {
      if (slow == fast || step.behind(slow, fast) <= kLeastDifference) continue;
      ++summary.ordered;
      summary.right_order += step.modes[slow].predicted > step.modes[fast].predicted;
    }
  }
}

}  // namespace

double SweptMode::spread() const { return std::max(rounds[0].spread, rounds[1].spread); }

double SweptStep::behind(std::size_t mode, std::size_t other) const {
  const auto ratio = [&](std::size_t round) {
    return modes[mode].rounds[round].median / modes[other].rounds[round].median;
  };
  return std::min(ratio(0), ratio(1)) - 1;
}

bool SweptStep::agrees() const {
  return std::ranges::none_of(
      modes, [](const SweptMode& mode) { return mode.agreement.broken_at.has_value(); });
}

double tolerance(Device device) { return device.is_cpu() ? 0.03 : 0.02; }

SweepSummary summarize(std::span<const SweptStep> steps, Device device) {
  SweepSummary summary;
  std::vector<double> gains, errors[3], starts[3];
  for (const SweptStep& step : steps) {
    if (!step.failure.empty()) {
      summary.failed.push_back(&step);
      continue;
    }
    ++summary.steps;
    if (!step.agrees()) summary.disagreeing.push_back(&step);
    if (step.behind(2, 1) > tolerance(device)) summary.behind.push_back(&step);
    gains.push_back(step.modes[1].seconds() / step.modes[2].seconds());
    for (std::size_t i = 0; i < step.modes.size(); ++i) {
      errors[i].push_back(std::abs(step.modes[i].error()));
      starts[i].push_back(step.modes[i].start);
    }
    count_order(step, summary);
  }
  summary.gain = median_of(gains);
  for (std::size_t i = 0; i < 3; ++i) {
    summary.errors[i] = errors_of(errors[i]);
    summary.start[i] = median_of(starts[i]);
  }
  return summary;
}

void sweep(const SweepOptions& options, std::vector<SweptStep>& steps) {
  const double most_flops = options.quick ? 1e7 : options.device.is_cpu() ? 2e9 : 2e12;
  const std::int64_t first = options.only.value_or(0),
                     end = options.only ? first + 1 : options.count;
  for (std::int64_t i = first; i < end; ++i) {
    const DrawnStep drawn = draw_step(options.seed, i, options.device, most_flops);
    options.progress(drawn.name);
    SweptStep swept;
    swept.number = i;
    swept.name = drawn.name;
    try {
      run(drawn, options, swept);
    } catch (const jit::Interrupted&) {
      throw;
    } catch (const std::exception& problem) {
      swept.failure = problem.what();
      swept.modes.clear();
    }
    steps.push_back(std::move(swept));
  }
}

Results results_of(std::span<const SweptStep> steps, Device device) {
  Results results;
  const auto add = [&](std::string name, double value, const char* unit) -> Result& {
    return results.emplace_back(Result{.name = "sweep/" + std::move(name),
                                       .device = device,
                                       .value = value,
                                       .unit = unit,
                                       .limit = {},
                                       .limit_name = {}});
  };
  for (const SweptStep& step : steps) {
    for (const SweptMode& mode : step.modes) {
      const std::string name = fmt::format("{} {}/{}", step.number, step.name, name_of(mode.mode));
      Result& result = add(name, mode.seconds() * 1e6, "us");
      result.limit = mode.predicted * 1e6;
      result.limit_name = "predicted";
      result.spread = mode.spread();
      if (mode.mode != Mode::eager) add(name + ", start", mode.start * 1e3, "ms");
    }
  }
  const SweepSummary summary = summarize(steps, device);
  add("steps", summary.steps, "");
  add("failed", static_cast<double>(summary.failed.size()), "");
  add("disagreeing", static_cast<double>(summary.disagreeing.size()), "");
  add("fused behind graph", static_cast<double>(summary.behind.size()), "");
  if (summary.steps == 0) return results;
  add("graph over fused, median", summary.gain, "");
  for (std::size_t i = 0; i < kModes.size(); ++i) {
    const std::string of = fmt::format("error of {}, ", name_of(kModes[i]));
    add(of + "median", summary.errors[i].median * 100, "%");
    add(of + "nine in ten", summary.errors[i].nine_in_ten * 100, "%");
    add(of + "worst", summary.errors[i].worst * 100, "%");
  }
  add("ordered pairs", summary.ordered, "");
  add("ordered pairs, right", summary.right_order, "");
  return results;
}

}  // namespace brrr::measure
