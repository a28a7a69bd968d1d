// Steps of optimizers on a fake device: what they launch, and that the host waits for nothing.
// Their kernels are compiled as for a real one.
#include <string>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/spec.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/allocator_guards.h"
#include "tests/catch.h"
#include "tests/fake_cuda.h"
#include "tests/interchange.h"
#include "tests/skip.h"
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
  CHECK(launches_of_step(adam(0.1), 1000) == 3);
  CHECK(launches_of_step(chain(clip_by_global_norm(1), adam(0.1)), 1000) == 6);
  // The norm of many elements is a second launch to join its parts.
  CHECK(launches_of_step(chain(clip_by_global_norm(1), adam(0.1)), 1 << 22) == 7);
  CHECK(launches_of_step(chain(clip_by_global_norm(1), adam(schedule)), 1 << 22) == 9);
  CHECK(launches_of_step(
            inject_hyperparams({{"rate", schedule}, {"decay", 0.1}},
                               [](const auto& h) { return adamw(h["rate"], h["decay"]); }),
            1000) == 6);
  State none;
  const std::vector<Tensor> there = {zeros({3}, {.device = cuda(0)})};
  CHECK(interchange::error_of([&] { identity().update({zeros({3})}, none, there); }) ==
        "[Transformation::update] expected updates of the parameters' shapes, got f32[3] for "
        "parameter 0 of f32[3] on cuda:0");
  CHECK(fake.problem().empty());
}

TEST_CASE("the kernels of optimizers and schedules compile for CUDA", "[optim]") {
  const std::string problem = cu::open_library(cu::Library::nvrtc);
  if (!problem.empty()) return testing::skip(problem);
  // Makers register what their steps call.
  chain(clip_by_global_norm(1), trace(0.9), lion(0.1),
        adamw(warmup_cosine_decay_schedule(0, 0.1, 10, 100)));
  int compiled = 0;
  for (int i = kBuiltinOps; i < op_count(); ++i) {
    const OpInfo& info = op_info(static_cast<Op>(i));
    const std::string name = info.name;
    if (!name.starts_with("optim_") && !name.starts_with("schedule_")) continue;
    INFO(name);
    for (DType dtype : {f32, f64}) {
      const std::vector<DType> inputs(static_cast<std::size_t>(info.arity), dtype);
      const jit::KernelSpec spec = jit::pointwise_spec(info, dtype, 0, inputs, dtype);
      CHECK_FALSE(jit::compile_to_cubin(jit::render_cuda(spec), 90).empty());
    }
    ++compiled;
  }
  CHECK(compiled >= 8);
}
