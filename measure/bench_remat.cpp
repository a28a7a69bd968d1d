// Benchmarks the policies of rematerialization on three models, in fused steps. The limit of each
// is the step that keeps every value; their timings alternate.
#include <fmt/format.h>

#include <memory>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/gated_block.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/nn/sequential.h"
#include "brrr/nn/transformer.h"
#include "brrr/ops/functions.h"

namespace brrr::measure {
namespace {

using ReplayedStep = Compiled<std::function<Tensor()>>;

struct Policy {
  const char* name;
  Remat remat;
};
constexpr Policy kMinCut = {"min_cut", Remat::min_cut()}, kFull = {"full", Remat::full()};

class RematBench {
 public:
  RematBench(const BenchOptions& options, Results& results)
      : options_(options), results_(results) {}

  // `make` returns the function of a step, which owns its model.
  void run(const std::string& model, const std::vector<Policy>& policies,
           const std::function<std::function<Tensor()>()>& make) {
    for (const Policy& policy : policies) {
      const std::string name = fmt::format("remat/{} {}", model, policy.name);
      options_.progress(name);
      ReplayedStep kept = step(make, Remat::none()), ours = step(make, policy.remat);
      add_times(name, ours, kept, options_.sampling());
      if (!options_.device.is_cpu())
        add_times(name + " with pauses", ours, kept, with_pauses(options_.sampling()));
      const CompiledEntry entry = ours.report().entries.front();
      add_memory(name + " memory", entry.arena_bytes, kept.report().entries.front().arena_bytes,
                 "every value kept");
    }
  }

 private:
  // Long steps without pauses bring a GPU to its power limit, where its clock falls.
  static Sampling with_pauses(Sampling sampling) {
    sampling.sample_seconds *= 10;
    sampling.budget_seconds *= 2;
    sampling.pause = 6;
    return sampling;
  }
  static ReplayedStep step(const std::function<std::function<Tensor()>()>& make, Remat remat) {
    ReplayedStep step =
        compile(make(), {.mode = Mode::fused, .remat = remat, .fallback = OnFallback::refuse});
    for (int call = 0; call < 2; ++call) step();
    return step;
  }
  void add_times(std::string name, ReplayedStep& ours, ReplayedStep& kept,
                 const Sampling& sampling) {
    const auto [timing, limit] =
        time_both(device_batch(options_.device, [&] { ours(); }),
                  device_batch(options_.device, [&] { kept(); }), sampling);
    results_.push_back({.name = std::move(name),
                        .device = options_.device,
                        .value = timing.median * 1e6,
                        .unit = "us",
                        .limit = limit.median * 1e6,
                        .limit_name = "every value kept",
                        .spread = timing.spread});
  }
  void add_memory(std::string name, std::size_t bytes, std::size_t limit, const char* limit_name) {
    results_.push_back({.name = std::move(name),
                        .device = options_.device,
                        .value = static_cast<double>(bytes) / (1 << 20),
                        .unit = "MiB",
                        .limit = static_cast<double>(limit) / (1 << 20),
                        .limit_name = limit_name});
  }

  BenchOptions options_;
  Results& results_;
};

// Ten rounds of pointwise calls.
std::function<Tensor()> rounds(std::int64_t elements, const Options& here) {
  return [x = requires_grad_(randn({elements}, here))] {
    zero_grad(x);
    Tensor h = x;
    for (int round = 0; round < 10; ++round) h = tanh(h) * 1.5 + sin(h);
    const Tensor loss = sum(h);
    backward(loss);
    return detach(loss);
  };
}

std::function<Tensor()> training(std::shared_ptr<nn::Module> model, const Dims& shape,
                                 const Options& here) {
  const auto optimizer = std::make_shared<optim::Optimizer>(*model, optim::adam(1e-3));
  return [=, x = randn(shape, here), y = randn(shape, here)] {
    optimizer->zero_grad();
    const Tensor loss = nn::mse_loss((*model)(x), y);
    backward(loss);
    optimizer->step();
    return detach(loss);
  };
}

}  // namespace

void bench_remat(const BenchOptions& options, Results& results) {
  manual_seed(options.seed);
  const bool small = options.quick, on_cpu = options.device.is_cpu();
  RematBench bench(options, results);
  const std::int64_t elements = small ? 1 << 12 : on_cpu ? 1 << 22 : 1 << 25;
  bench.run(fmt::format("ten rounds of tanh and sin, {} f32", elements), {kMinCut, kFull},
            [&] { return rounds(elements, {.device = options.device}); });

  // At the sizes of a smoke test a budget of one half cannot be met.
  std::vector<Policy> policies = {kMinCut, kFull};
  if (!small) {
    policies.insert(policies.begin() + 1,
                    {{"budget=0.7", Remat::budget(0.7)}, {"budget=0.5", Remat::budget(0.5)}});
  }
  const Options here{.dtype = on_cpu ? f32 : bf16, .device = options.device};
  const int blocks = small ? 2 : 8;
  const std::int64_t batch = small ? 16 : on_cpu ? 512 : 16384;
  const std::int64_t width = small ? 32 : on_cpu ? 256 : 1024;
  bench.run(fmt::format("gated mlp {}x{}x{} {}", batch, width, blocks, name_of(here.dtype)),
            policies, [&] {
              auto model = std::make_shared<nn::Sequential>();
              for (int i = 0; i < blocks; ++i) model->add<GatedBlock>(width, here);
              return training(model, {batch, width}, here);
            });

  const int layers = small ? 2 : 12;
  const std::int64_t sequences = small ? 2 : 8, length = small ? 8 : on_cpu ? 64 : 1024;
  const std::int64_t features = small ? 32 : on_cpu ? 128 : 1024;
  const int heads = static_cast<int>(features / (small ? 16 : 64));
  bench.run(fmt::format("transformer {}x{}x{}x{} {}", sequences, length, features, layers,
                        name_of(here.dtype)),
            policies, [&] {
              auto model = std::make_shared<nn::Sequential>();
              for (int i = 0; i < layers; ++i)
                model->add<nn::TransformerBlock>(features, heads, here);
              return training(model, {sequences, length, features}, here);
            });
}

}  // namespace brrr::measure
