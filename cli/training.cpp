#include "cli/training.h"

#include "brrr/autograd/autograd.h"
#include "brrr/nn/optim/clip.h"
#include "brrr/nn/optim/optimizers.h"

namespace brrr::cli {
namespace {

optim::LearningRate rate_of(const TrainingOptions& o) {
  if (o.warmup > 0) return optim::linear_schedule(0, o.rate, o.warmup);
  return optim::Coefficient(o.rate);
}

optim::Transformation optimizer_of(const TrainingOptions& o) {
  const optim::AdamOptions as_peers = {.wide = false};  // averages in the parameters' dtype
  const optim::LearningRate rate = rate_of(o);
  const optim::Transformation steps = o.optimizer == "adamw"  ? optim::adamw(rate, 1e-4, as_peers)
                                      : o.optimizer == "sgd"  ? optim::sgd(rate)
                                      : o.optimizer == "lion" ? optim::lion(rate)
                                                              : optim::adam(rate, as_peers);
  return o.clip > 0 ? chain(optim::clip_by_global_norm(o.clip), steps) : steps;
}

}  // namespace

Training::Training(const TrainingOptions& options)
    : device_(options.toy.device),
      toy_(options.toy),
      parameters_(toy_.module()),
      optimizer_(parameters_, optimizer_of(options)),
      step_(
          [this] {
            optimizer_.zero_grad();
            const Tensor loss = toy_.loss();
            backward(loss);
            optimizer_.step();
            return detach(loss);
          },
          // Without a compiler a fused step is replayed call by call, and warns.
          {.mode = options.mode,
           .rounding = options.rounding,
           .remat = options.remat,
           .fallback = options.mode == Mode::fused ? OnFallback::warn : OnFallback::refuse}) {}

std::optional<CompiledEntry> Training::compiled() const {
  const CompileReport report = step_.report();
  if (report.entries.empty()) return std::nullopt;
  return report.entries.front();
}

measure::StepCost Training::cost() {
  for (int i = 0; i < 2; ++i) step();  // the second one is captured
  return measure::cost_of_step(device_, [this] { step(); });
}

}  // namespace brrr::cli
