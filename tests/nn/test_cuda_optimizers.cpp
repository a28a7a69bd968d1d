// Steps of optimizers on the fake driver: their launches, and that the host never waits. Kernels
// are compiled as for a real device.
#include <string>

#include "brrr/tensor/cuda_api.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::optim;

namespace {

long launches_of_step(const Transformation& transformation, std::int64_t size) {
  std::vector<Tensor> params = {zeros({size}, {.device = cuda(0)})};
  const std::vector<Tensor> gradients = {zeros({size}, {.device = cuda(0)})};
  State state = transformation.init(params);
  transformation.apply(gradients, state, params);  // compiles
  cu::count_calls(true);
  transformation.apply(gradients, state, params);
  const auto calls = cu::call_counts();
  cu::count_calls(false);
  long launches = 0;
  for (const auto& [name, count] : calls) {
    INFO(name << " was called " << count << " times");
    if (name.starts_with("cuLaunch")) {
      launches += count;
    } else {
      // Neither copies nor waits nor memory from the driver.
      CHECK((name == "cuCtxSetCurrent" || count == 0));
    }
  }
  synchronize(cuda(0));
  return launches;
}

}  // namespace

TEST_CASE("a step on CUDA is a few launches and nothing else", "[optim]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true});
  const Schedule schedule = warmup_cosine_decay_schedule(0, 0.1, 10, 100);
  CHECK(launches_of_step(sgd(0.1), 1000) == 1);
  CHECK(launches_of_step(sgd(0.1, {.momentum = 0.9}), 1000) == 1);
  CHECK(launches_of_step(sgd(0.1, {.momentum = 0.9, .nesterov = true}), 1000) == 1);
  CHECK(launches_of_step(lion(0.1), 1000) == 1);
  CHECK(launches_of_step(adam(0.1), 1000) == 2);
  CHECK(launches_of_step(chain(clip_by_global_norm(1), adam(0.1)), 1000) == 5);
  // The norm of many elements is a second launch to join its parts.
  CHECK(launches_of_step(chain(clip_by_global_norm(1), adam(0.1)), 1 << 22) == 6);
  CHECK(launches_of_step(chain(clip_by_global_norm(1), adam(schedule)), 1 << 22) == 8);
  CHECK(launches_of_step(
            inject_hyperparams({{"rate", schedule}, {"decay", 0.1}},
                               [](const auto& h) { return adamw(h["rate"], h["decay"]); }),
            1000) == 5);
  State none;
  const std::vector<Tensor> there = {zeros({3}, {.device = cuda(0)})};
  CHECK(interchange::error_of([&] { identity().update({zeros({3})}, none, there); }) ==
        "[Transformation::update] expected updates of the parameters' shapes, got f32[3] for "
        "parameter 0 of f32[3] on cuda:0");
}
