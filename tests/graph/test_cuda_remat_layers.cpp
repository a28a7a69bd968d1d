// What rematerialization takes of the values that all layers of a model keep, by the plans of their
// fused steps on CUDA. Nothing here needs a GPU.
#include "brrr/graph/fusion_kernel.h"
#include "brrr/graph/program.h"
#include "brrr/measure/gated_block.h"
#include "brrr/ops/random_state.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/remat_check.h"

namespace brrr::test {
namespace {

using namespace graph;

void fuse_fast(Graph& graph) {
  graph.fast = true;
  fuse(graph);
}

struct Planned {
  RematReport report;
  int kernels = 0;
  double memory() const {  // relative to that with every value kept
    return static_cast<double>(report.chosen.peak_bytes) /
           static_cast<double>(report.baseline.peak_bytes);
  }
  double time() const {
    return static_cast<double>(report.chosen.picoseconds) /
           static_cast<double>(report.baseline.picoseconds);
  }
  int again(const std::string& op) const {
    return static_cast<int>(std::ranges::count_if(report.values, [&](const RematValue& value) {
      return value.op == op && value.recomputed && value.memory != ValueMemory::registers;
    }));
  }
};

Planned planned(nn::Module& model, const Dims& shape, Remat policy) {
  const Options here{.dtype = bf16, .device = cuda(0)};
  const Tensor x = empty(shape, here), y = empty(shape, here);
  Trace trace("traced", {});
  for (const auto& [name, parameter] : model.named_parameters()) zero_grad(parameter);
  const Tensor loss = nn::mse_loss(model(x), y);
  backward(loss);
  Graph graph = trace.finish(std::vector<Tensor>{detach(loss)});
  remove_dead(graph);
  for (const Pass& pass : kPasses) pass.run(graph);
  Planned result;
  result.report = rematerialize(graph, {.policy = policy,
                                        .name = "step",
                                        .plan = Program::plan_options(graph.device, {}),
                                        .fuse = fuse_fast});
  fuse_fast(graph);
  result.kernels = static_cast<int>(graph.nodes.size());
  return result;
}

Planned gated(int layers, Remat policy) {
  const Options here{.dtype = bf16, .device = cuda(0)};
  nn::Sequential model;
  for (int i = 0; i < layers; ++i) model.add<measure::GatedBlock>(1024, here);
  return planned(model, {16384, 1024}, policy);
}

Planned transformer(int layers, Remat policy) {
  const Options here{.dtype = bf16, .device = cuda(0)};
  nn::Sequential model;
  for (int i = 0; i < layers; ++i) model.add<nn::TransformerBlock>(1024, 16, here);
  return planned(model, {8, 1024, 1024}, policy);
}

}  // namespace

// Dropout masks are drawn again, and norms are computed again in a kernel that reads their argument
// anyway: the gradients of their scales.
TEST_CASE("remat: gated layers keep neither masks nor norms", "[remat]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.capacity = std::size_t{8} << 30, .with_nvrtc = true});
  const Planned fast = gated(4, Remat::min_cut());
  INFO("min_cut: memory " << fast.memory() << ", time " << fast.time());
  CHECK(fast.memory() < 0.85);
  CHECK(fast.time() <= 1);
  const Planned small = gated(4, Remat::budget(0.77));
  INFO("budget 0.77: memory " << small.memory() << ", time " << small.time());
  CHECK(small.time() < 1.01);
  CHECK(small.kernels <= fast.kernels);
  release_random_state();
  CHECK(fake.problem() == "");
}

// Every second value of the residual stream is computed again from the one before, in the kernel of
// the next norm's gradients, which reads the gate and the product anyway.
TEST_CASE("remat: gated layers keep every second value of the residual stream", "[remat]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.capacity = std::size_t{8} << 30, .with_nvrtc = true});
  const Planned fast = gated(6, Remat::min_cut());
  INFO("min_cut: memory " << fast.memory() << ", time " << fast.time());
  CHECK(fast.memory() < 0.73);
  CHECK(fast.time() <= 1);
  CHECK(fast.again("add") == 2);
  release_random_state();
  CHECK(fake.problem() == "");
}

// The same without modules of layers: a loop in a function.
TEST_CASE("remat: layers are recognized in a loop", "[remat]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.capacity = std::size_t{8} << 30, .with_nvrtc = true});
  const Options here{.dtype = bf16, .device = cuda(0)};
  nn::Sequential norms, gates, ups;
  for (int i = 0; i < 6; ++i) {
    norms.add<nn::LayerNorm>(1024, here);
    gates.add<nn::Linear>(1024, 1024, here);
    ups.add<nn::Linear>(1024, 1024, here);
  }
  const auto loop = [&](const Tensor& x) {
    Tensor h = x;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const Tensor n = norms[i](h);
      h = h + dropout(silu(gates[i](n)) * ups[i](n), 0.1);
    }
    return h;
  };
  nn::Function model(loop);
  const Planned fast = planned(model, {16384, 1024}, Remat::min_cut());
  INFO("min_cut: memory " << fast.memory() << ", time " << fast.time());
  CHECK(fast.memory() < 0.73);
  CHECK(fast.time() <= 1);
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("remat: transformer layers keep neither norms nor activations", "[remat]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.capacity = std::size_t{8} << 30, .with_nvrtc = true});
  const Planned fast = transformer(4, Remat::min_cut());
  INFO("min_cut: memory " << fast.memory() << ", time " << fast.time());
  CHECK(fast.memory() < 0.9);
  CHECK(fast.time() <= 1.01);
  const Planned small = transformer(4, Remat::budget(0.75));
  INFO("budget 0.75: memory " << small.memory() << ", time " << small.time());
  CHECK(small.time() < 1.02);
  CHECK(small.again("gelu_tanh") >= 3);
  CHECK(small.again("fused_attention") == 0);
  release_random_state();
  CHECK(fake.problem() == "");
}

// Six layers are no power of two: with 4 or 8 segments these would end within layers. A budget
// below what one more run of each call can meet is met with calls that run several times.
TEST_CASE("remat: segments are layers, and small budgets run calls several times", "[remat]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.capacity = std::size_t{8} << 30, .with_nvrtc = true});
  const Planned least = transformer(6, Remat::full());
  INFO("full: memory " << least.memory() << ", time " << least.time());
  CHECK(least.memory() < 0.22);
  CHECK(least.time() < 1.25);
  const std::string error = error_of([] { transformer(6, Remat::budget(0.05)); });
  INFO(error);
  const double possible = std::stod(error.substr(error.rfind(' ')));
  CHECK(possible < 0.186);  // 0.191 if segments are never layers
  const Planned small = transformer(6, Remat::budget(possible));
  INFO("budget: memory " << small.memory() << ", time " << small.time());
  CHECK(small.memory() <= possible);
  CHECK(small.report.recomputed_calls > least.report.recomputed_calls);
  release_random_state();
  CHECK(fake.problem() == "");
}

}  // namespace brrr::test
