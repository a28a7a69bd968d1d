// Optimizers on a real GPU: the same steps as on the CPU.
#include <cmath>
#include <vector>

#include "brrr/nn/optim/clip.h"
#include "brrr/nn/optim/hyperparameters.h"
#include "brrr/nn/optim/master_weights.h"
#include "brrr/nn/optim/optimizers.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::testing;
using namespace brrr::optim;

namespace {

std::vector<double> trained(const Transformation& transformation, DType dtype, Device device) {
  std::vector<Tensor> params = {to(cast(linspace(-1, 1, 70001), dtype), device),
                                to(ones({3, 5}), device)};
  State state = transformation.init(params);
  for (int step = 0; step < 10; ++step) {
    transformation.apply({cast(params[0] * 0.5 + 0.1, dtype), params[1] * params[1]}, state,
                         params);
  }
  std::vector<double> values = to_vector<double>(params[0]);
  for (double value : to_vector<double>(params[1])) values.push_back(value);
  return values;
}

void check(const Transformation& transformation, DType dtype, double bound) {
  const std::vector<double> on_cpu = trained(transformation, dtype, cpu);
  const std::vector<double> on_gpu = trained(transformation, dtype, kGpu);
  REQUIRE(on_cpu.size() == on_gpu.size());
  double worst = 0;
  for (std::size_t i = 0; i < on_cpu.size(); ++i) {
    worst = std::max(worst, std::abs(on_cpu[i] - on_gpu[i]));
  }
  CHECK(worst <= bound);
}

}  // namespace

TEST_CASE("optimizers step on the GPU as on the CPU", "[optim]") {
  const Schedule schedule = warmup_cosine_decay_schedule(0, 0.1, 3, 12, 0.01);
  for (const Transformation& t :
       {sgd(0.1, {.momentum = 0.9, .nesterov = true}),
        chain(clip_by_global_norm(1), adamw(schedule, 0.1)), lion(0.01),
        inject_hyperparams({{"rate", schedule}}, [](const auto& h) { return adam(h["rate"]); })}) {
    check(t, f32, 1e-5);
    check(master_weights(t), bf16, 0.01);
  }
}
