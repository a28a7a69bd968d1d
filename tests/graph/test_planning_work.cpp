// Planning takes work in proportion to a step's length, and a search for what to recompute has a
// limit. Both are counted in calls, not in seconds.
#include "brrr/graph/remat_search.h"
#include "tests/harness/catch.h"
#include "tests/harness/remat_check.h"

namespace brrr::test {
namespace {

using namespace graph;

using Step = std::function<Tensor()>;

// A chain of pointwise calls, and its gradients.
Step chain(int calls) {
  const Tensor x = requires_grad_(noise({64}, 1));
  return [=] {
    zero_grad(x);
    Tensor h = x;
    for (int i = 0; i < calls; ++i) h = tanh(h);
    const Tensor loss = sum(h);
    backward(loss);
    return detach(loss);
  };
}

// A recurrent cell with gates, unrolled.
constexpr int kWidth = 16;

Step gru(int steps) {
  const Tensor of_x = requires_grad_(noise({kWidth, 3 * kWidth}, 1)),
               of_h = requires_grad_(noise({kWidth, 3 * kWidth}, 2)),
               x = noise({steps, 8, kWidth}, 3);
  return [=] {
    zero_grad(of_x);
    zero_grad(of_h);
    Tensor h = zeros({8, kWidth});
    for (int t = 0; t < steps; ++t) {
      const Tensor a = matmul(select(x, 0, t), of_x), b = matmul(h, of_h);
      const auto gate = [](const Tensor& of, int i) {
        return slice(of, 1, i * kWidth, (i + 1) * kWidth);
      };
      const Tensor r = sigmoid(gate(a, 0) + gate(b, 0)), z = sigmoid(gate(a, 1) + gate(b, 1));
      const Tensor n = tanh(gate(a, 2) + r * gate(b, 2));
      h = (1 - z) * n + z * h;
    }
    const Tensor loss = mean(square(h));
    backward(loss);
    return detach(loss);
  };
}

// Many functions of one value, and their sum.
Step wide(int branches) {
  const Tensor x = requires_grad_(noise({64}, 1));
  return [=] {
    zero_grad(x);
    Tensor all = x;
    for (int i = 0; i < branches; ++i) all = all + tanh(x * (1 + 0.001 * i));
    const Tensor loss = sum(all);
    backward(loss);
    return detach(loss);
  };
}

// The work of fusing a step's graph, for each of its calls.
double fusion_work(const Step& step) {
  Graph graph = traced(step);
  const auto calls = static_cast<double>(graph.nodes.size());
  fuse(graph);
  return static_cast<double>(graph.fusion_work) / calls;
}

RematReport planned(const Step& step, Remat policy) {
  Graph graph = traced(step);
  return rematerialize(
      graph, {.policy = policy, .name = "step", .plan = kOnCpu, .fuse = [](Graph& g) { fuse(g); }});
}

}  // namespace

TEST_CASE("planning: fusing a longer step takes no more work for each call", "[graph][fuse]") {
  struct Sizes {
    Step (*make)(int);
    int small, large;
  };
  // Long enough for kernels of the most calls.
  for (const auto& [make, shorter, longer] :
       {Sizes{chain, 500, 2000}, Sizes{gru, 16, 64}, Sizes{wide, 250, 1000}}) {
    const double small = fusion_work(make(shorter)), large = fusion_work(make(longer));
    CAPTURE(small, large);
    CHECK(large < 1.25 * small);
  }
}

TEST_CASE("planning: a search for what to recompute has a limit of work", "[remat]") {
  for (const Step& step : {chain(500), chain(1000), chain(2000), gru(64), wide(1000)}) {
    const RematReport report = planned(step, Remat::full());
    CAPTURE(report.plans, report.work);
    CHECK(report.plans > 2);
    // At most the first two candidates exceed it.
    CHECK(report.work < RematSearch::kMostWork + 3 * report.work / report.plans);
    CHECK(report.chosen.peak_bytes <= report.baseline.peak_bytes);
  }
}

TEST_CASE("planning: a search that ends early gives the same plan each time", "[remat]") {
  const RematReport one = planned(gru(128), Remat::full()),
                    other = planned(gru(128), Remat::full());
  CHECK(one.ended_early);
  CHECK(one.work == other.work);
  CHECK(one.plans == other.plans);
  CHECK(one.chosen.peak_bytes == other.chosen.peak_bytes);
  CHECK(one.recomputed_calls == other.recomputed_calls);
  CHECK_THAT(to_string(one), Catch::Contains("the search ended early, after "));
}

TEST_CASE("planning: searches of short steps end by themselves", "[remat]") {
  for (const Step& step : {chain(50), gru(4), wide(20)}) {
    const RematReport report = planned(step, Remat::budget(1));
    CHECK_FALSE(report.ended_early);
    CHECK_THAT(to_string(report), !Catch::Contains("ended early"));
  }
}

// An evaluation has no backward pass to recompute anything in.
TEST_CASE("remat: a step that saves nothing runs under each policy", "[remat]") {
  const Tensor w = requires_grad_(noise({8, 8}, 1)), x = noise({4, 8}, 2);
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    for (const Remat policy :
         {Remat::budget(0.01), Remat::budget(1), Remat::min_cut(), Remat::full()}) {
      auto evaluate = compile(
          [&] {
            const NoGrad constant;
            return softmax(matmul(tanh(matmul(x, w)), w), 1);
          },
          {.mode = mode, .remat = policy});
      auto sample = compile([&] { return sin(rand({4, 8})) + x; }, {.mode = mode, .remat = policy});
      auto record =
          compile([&] { return detach(sum(exp(matmul(x, w)))); }, {.mode = mode, .remat = policy});
      const NoGrad constant;
      CHECK(bits_of(evaluate()) == bits_of(softmax(matmul(tanh(matmul(x, w)), w), 1)));
      CHECK(sample().defined());
      CHECK(bits_of(record()) == bits_of(sum(exp(matmul(x, w)))));
      CHECK(record.report().entries[0].recomputed_calls == 0);
      CHECK_THAT(record.explain(), Catch::Contains("the policy changes nothing"));
    }
  }
}

TEST_CASE("remat: marks on tensors from outside do nothing without a policy", "[remat]") {
  const Tensor w = requires_grad_(noise({8}, 1)), x = noise({8}, 2);
  const auto step_with = [&](Remat policy, bool recomputed) {
    return compile(
        [&, recomputed] {
          zero_grad(w);
          recomputed ? remat::recompute(w, x) : remat::save(x, w);
          const Tensor loss = sum(exp(w * x));
          backward(loss);
          return detach(loss);
        },
        {.remat = policy});
  };
  for (const bool recomputed : {false, true}) {
    CHECK(bits_of(step_with(Remat::none(), recomputed)()) == bits_of(detach(sum(exp(w * x)))));
    CHECK_THAT(error_of([&] { step_with(Remat::full(), recomputed)(); }),
               Catch::Contains("expected tensors that the step makes"));
  }
}

}  // namespace brrr::test
