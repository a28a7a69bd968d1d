// Modules that move to the fake driver's device and back. Draws would leave the generator's state
// behind on that device, so they are made on the CPU.
#include <memory>

#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;

TEST_CASE("a module moves to a device with its gradients", "[cuda][nn]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  manual_seed(1);
  nn::MLP mlp({2, 3, 1});
  backward(sum(mlp(ones({4, 2}))));
  const Tensor weight = mlp.layers[0].weight, gradient = grad_of(weight);
  mlp.to(cuda());
  for (const auto& entry : mlp.named_tensors()) {
    CHECK(entry.tensor->device() == cuda());
    CHECK(requires_grad(*entry.tensor));
    CHECK(grad_of(*entry.tensor).device() == cuda());
  }
  CHECK(to_vector<float>(mlp.layers[0].weight) == to_vector<float>(weight));
  CHECK(to_vector<float>(grad_of(mlp.layers[0].weight)) == to_vector<float>(gradient));
  mlp.to(cpu);
  CHECK(to_vector<float>(mlp.layers[0].weight) == to_vector<float>(weight));
}
