// Where rematerialization makes its copies, and what fusion makes of them.
#include <algorithm>

#include "brrr/graph/passes.h"
#include "brrr/graph/remat.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/remat_check.h"
#include "tests/harness/samples.h"

using namespace brrr;
using namespace brrr::test;
using graph::Graph;
using graph::Partition;
using graph::RematReport;

TEST_CASE("remat: what a product reads again is made by a kernel that reads its operands anyway",
          "[remat]") {
  const Tensor x = noise({64, 48}, 1);
  const Tensor first = requires_grad_(noise({48, 80}, 2)),
               second = requires_grad_(noise({80, 32}, 3));
  auto step = compile(
      [&] {
        zero_grad(first);
        zero_grad(second);
        const Tensor hidden = gelu_tanh(matmul(x, first));
        remat::recompute(hidden);
        const Tensor loss = sum(square(matmul(hidden, second)));
        backward(loss);
        return detach(loss);
      },
      {.mode = Mode::fused, .remat = Remat::min_cut()});
  step();
  INFO(step.explain());
  const std::vector<GeneratedKernel> kernels = step.kernels();
  CHECK(std::ranges::count_if(kernels, [](const GeneratedKernel& kernel) {
          return std::ranges::count(kernel.calls, "gelu_tanh") > 0 &&
                 std::ranges::count(kernel.calls, "gelu_tanh_gradient") > 0;
        }) == 1);
}

namespace {

// x + dropout(silu(gate(n)) * up(n)) with n = norm(x), a few times.
struct GatedNet {
  GatedNet(int blocks, std::int64_t batch, std::int64_t width) : x(noise({batch, width}, 1)) {
    for (int i = 0; i < blocks; ++i) {
      norms.add<nn::LayerNorm>(width);
      for (nn::Sequential* layers : {&gates, &ups}) layers->add<nn::Linear>(width, width);
    }
  }
  Tensor operator()(bool marked) {
    Tensor h = x;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const Tensor n = norms[i](h);
      if (marked) remat::recompute(n);
      h = h + dropout(silu(gates[i](n)) * ups[i](n), 0.1);
    }
    const Tensor loss = sum(square(h));
    backward(loss);
    return detach(loss);
  }

  Tensor x;
  nn::Sequential norms, gates, ups;
};

}  // namespace

// The gradient of a norm is two kernels, and both read the norm's input. The first one can write
// the norm's result again; the products that read it free their factors before the second one.
TEST_CASE("remat: products have copies of their own, which an earlier kernel writes", "[remat]") {
  constexpr int kBlocks = 8;
  GatedNet net(kBlocks, 512, 64);
  const Graph graph = traced([&] { return net(true); });
  const Partition partition(graph, true, "step");
  const auto fused = [](Graph each) {
    fuse(each);
    return std::pair(each.nodes.size(), make_plan(each, kOnCpu).arena_bytes);
  };
  const auto again = [&](bool own_copies) {
    return fused(recompute_calls(graph, partition,
                                 partition.cut({.segments = kBlocks, .first = kBlocks}),
                                 partition.segments(kBlocks), own_copies)
                     .graph);
  };
  const auto [kept_kernels, kept] = fused(graph);
  const auto [shared_kernels, shared] = again(false);
  const auto [own_kernels, own] = again(true);
  INFO(kept << " bytes with every value kept, " << shared << " with shared copies, " << own);
  CHECK(own_kernels == shared_kernels);
  CHECK(10 * own < 9 * shared);
  CHECK(10 * own < 9 * kept);
  // A budget finds this by itself.
  Graph changed = traced([&] { return net(false); });
  const RematReport report = rematerialize(changed, {.policy = Remat::budget(0.8),
                                                     .name = "step",
                                                     .plan = kOnCpu,
                                                     .fuse = [](Graph& each) { fuse(each); }});
  CHECK(report.chosen.picoseconds * 100 < report.baseline.picoseconds * 105);
}

TEST_CASE("remat: budgets of gated layers keep their bits in fused steps", "[remat]") {
  const auto run = [](Mode mode, Remat remat) {
    manual_seed(1);
    const auto net = std::make_shared<GatedNet>(6, 96, 32);
    Tensors weights;
    for (nn::Sequential* each : {&net->norms, &net->gates, &net->ups}) {
      for (const auto& [name, weight] : each->named_parameters()) weights.push_back(weight);
    }
    auto step = compile(
        [net, weights] {
          for (const Tensor& weight : weights) zero_grad(weight);
          return (*net)(false);
        },
        {.mode = mode, .remat = remat});
    std::vector<std::string> bits;
    for (int call = 0; call < 2; ++call) {
      bits.push_back(bits_of(step()));
      for (const Tensor& weight : weights) bits.push_back(bits_of(grad(weight)));
    }
    return bits;
  };
  const std::vector<std::string> eager = run(Mode::eager, Remat::none());
  for (const double budget : {0.7, 0.8, 0.9}) {
    INFO("budget " << budget);
    CHECK(run(Mode::fused, Remat::budget(budget)) == eager);
  }
}

// The loss is in one kernel with the gradient of what the first layer and the last one read, and
// that gradient is the last of the step.
TEST_CASE("remat: calls run again where they are read, also after a kernel of both passes",
          "[remat]") {
  const Tensor x = noise({512, 64}, 1), first = requires_grad_(noise({64, 64}, 2));
  Tensors weights;
  for (unsigned i = 0; i < 9; ++i) weights.push_back(requires_grad_(noise({64, 64}, 3 + i)));
  Graph graph = traced([&] {
    const Tensor gate = sigmoid(matmul(x, first));
    Tensor h = x;
    for (const Tensor& w : weights) h = tanh(matmul(h, w));
    const Tensor loss = mean(square(h * gate));
    backward(loss);
    return detach(loss);
  });
  const RematReport report = rematerialize(
      graph, {.policy = Remat::full(), .name = "step", .plan = kOnCpu, .fuse = [](Graph& each) {
                fuse(each);
              }});
  INFO(report.chosen.peak_bytes << " of " << report.baseline.peak_bytes);
  CHECK(4 * report.chosen.peak_bytes <= 3 * report.baseline.peak_bytes);
}
