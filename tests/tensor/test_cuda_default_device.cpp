// The default device: for all threads, for a scope, and for modules.
#include <brrr/brrr.h>

#include <thread>

#include "brrr/ops/random_state.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of;

namespace {

struct Restored {
  ~Restored() {
    set_default_device(cpu);
    release_random_state();  // of a device that goes with the test
  }
};

Device seen_by_another_thread() {
  Device seen;
  std::thread([&] { seen = default_device(); }).join();
  return seen;
}

void expect_on(Device device, const nn::Module& module) {
  CHECK_FALSE(module.named_tensors().empty());
  for (const auto& entry : module.named_tensors()) {
    INFO(module.path() << "." << entry.name);
    CHECK(entry.tensor->device() == device);
  }
}

}  // namespace

TEST_CASE("a default device applies to every thread, a guard's to its own",
          "[cuda][default-device]") {
  const testing::FakeCuda fake({.devices = 2});
  const Restored after;
  CHECK(default_device() == cpu);
  set_default_device(cuda(1));
  CHECK(seen_by_another_thread() == cuda(1));
  CHECK(empty(2).device() == cuda(1));
  {
    const DeviceGuard guard(cpu);
    CHECK(default_device() == cpu);
    CHECK(seen_by_another_thread() == cuda(1));
    {
      const DeviceGuard inner(cuda(0));
      CHECK(empty(2).device() == cuda(0));
    }
    set_default_device(cuda(0));  // which the guard goes before
    CHECK(default_device() == cpu);
  }
  CHECK(default_device() == cuda(0));
  CHECK(error_of([] {
          set_default_device(cuda(2));
        }).starts_with("[set_default_device] expected one of 2 CUDA devices, got cuda:2"));
  CHECK(default_device() == cuda(0));
}

TEST_CASE("modules are made on the default device", "[cuda][default-device]") {
  const testing::FakeCuda fake({.with_nvrtc = true});
  const Restored after;
  set_default_device(cuda());
  expect_on(cuda(), nn::Linear(2, 3));
  expect_on(cuda(), nn::MLP({2, 4, 3}));
  expect_on(cuda(), nn::Embedding(5, 2));
  expect_on(cuda(), nn::LayerNorm(3));
  expect_on(cuda(), nn::RMSNorm(3));
  expect_on(cuda(), nn::MultiHeadAttention(4, 2));
  expect_on(cuda(), nn::TransformerBlock(4, 2));
  expect_on(cuda(), nn::Transformer({.vocabulary = 5, .length = 4, .width = 4, .heads = 2}));
  // Data stay on the host, and a batcher brings them to where the model is.
  const data::Dataset spirals = data::two_spirals(8);
  CHECK(spirals.inputs.device() == cpu);
  CHECK(data::BatcherOptions{}.device == cuda());
  const DeviceGuard guard(cpu);
  expect_on(cpu, nn::MLP({2, 4, 3}));
  expect_on(cuda(), nn::Linear(2, 3, {.device = cuda()}));
}
