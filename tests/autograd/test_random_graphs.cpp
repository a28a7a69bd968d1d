// Gradients of random graphs of 5 to 30 ops, to the second order, along random directions: values
// used again, broadcasts, views, writes in place. BRRR_SEED=n runs that one seed and prints its
// graph; BRRR_GRAPHS=n runs so many.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/gradcheck.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "tests/harness/catch.h"
#include "tests/harness/samples.h"

using namespace brrr;
using namespace brrr::test;

namespace {

using Ops = std::vector<Tensor>;

// One step: what it does to the values that it takes, which are named by their numbers.
struct GraphStep {
  std::string op;
  std::vector<std::size_t> arguments;
  std::function<Tensor(const Ops&)> run;
};

struct Graph {
  std::vector<Tensor> inputs;  // leaves
  std::vector<GraphStep> steps;

  Ops values(std::span<const Tensor> given) const {
    Ops values(given.begin(), given.end());
    for (const GraphStep& step : steps) {
      Ops arguments;
      for (const std::size_t argument : step.arguments) arguments.push_back(values[argument]);
      values.push_back(step.run(arguments));
    }
    return values;
  }
  // Values that no step takes.
  std::vector<Tensor> operator()(std::span<const Tensor> given) const {
    const Ops all = values(given);
    std::vector<Tensor> outputs;
    for (std::size_t i = inputs.size(); i < all.size(); ++i) {
      const bool taken = std::any_of(steps.begin(), steps.end(), [i](const GraphStep& step) {
        return std::find(step.arguments.begin(), step.arguments.end(), i) != step.arguments.end();
      });
      if (!taken) outputs.push_back(all[i]);
    }
    return outputs;
  }
  std::string text() const {
    std::string text;
    std::size_t number = 0;
    for (const Tensor& input : inputs)
      text += "  %" + std::to_string(number++) + " = " + input.describe() + "\n";
    for (const GraphStep& step : steps) {
      text += "  %" + std::to_string(number++) + " = " + step.op;
      for (const std::size_t argument : step.arguments) text += " %" + std::to_string(argument);
      text += "\n";
    }
    return text;
  }
};

double largest(const Tensor& x) { return x.numel() ? item(max(abs(x))) : 0; }
double smallest(const Tensor& x) { return x.numel() ? item(min(abs(x))) : 1; }

// Draws steps one by one, looking at the values that they make at the inputs, so that all stay
// small and away from kinks.
class Drawing {
 public:
  Drawing(std::uint64_t seed, Graph& graph) : random_(seed * 7919 + 1), graph_(graph) {}

  void draw(int steps) {
    const NoGrad constant;
    const std::vector<Dims> shapes = {{2, 3}, {3}, {2, 1}, {}, {4, 1, 3}, {2, 3}, {1, 3}};
    const std::int64_t inputs = 2 + below(3);
    for (std::int64_t i = 0; i < inputs; ++i) {
      const Dims& shape = shapes[static_cast<std::size_t>(below(static_cast<int>(shapes.size())))];
      const Layout layout = kLayouts[below(4)];  // an expanded tensor cannot be moved
      Values numbers(static_cast<std::size_t>(numel_of(shape)));
      for (double& number : numbers) number = random_.uniform(-1.5, 1.5);
      graph_.inputs.push_back(requires_grad_(make_sample(numbers, shape, f64, layout).tensor));
      values_.push_back(detach(graph_.inputs.back()));
    }
    while (static_cast<int>(graph_.steps.size()) < steps) draw_step();
  }

 private:
  using Run = std::function<Tensor(const Ops&)>;

  int below(int n) { return static_cast<int>(random_.below(n)); }
  std::size_t any() {
    const auto n = static_cast<int>(values_.size());
    // Late values rather than early ones, or graphs would be flat.
    return static_cast<std::size_t>(below(2) ? std::max(0, n - 1 - below(4)) : below(n));
  }
  void add(const std::string& op, std::vector<std::size_t> arguments, Run run) {
    Ops operands;
    for (const std::size_t argument : arguments) operands.push_back(values_[argument]);
    Tensor value = run(operands);
    if (value.numel() > 200) return;
    values_.push_back(std::move(value));
    graph_.steps.push_back({op, std::move(arguments), std::move(run)});
    if (largest(values_.back()) > 2) {
      add("tanh", {values_.size() - 1}, [](const Ops& o) { return tanh(o[0]); });
    }
  }
  bool broadcast(const Tensor& a, const Tensor& b) {
    for (int d = 1; d <= std::min(a.rank(), b.rank()); ++d) {
      if (a.size(-d) != b.size(-d) && a.size(-d) != 1 && b.size(-d) != 1) return false;
    }
    return true;
  }

  void draw_step() {
    switch (below(5)) {
      case 0: return draw_unary();
      case 1:
      case 2: return draw_many();
      case 3: return draw_view();
      default: return draw_line();
    }
  }

  void draw_unary() {
    const std::size_t a = any();
    const bool far = smallest(values_[a]) > 0.01;
    switch (below(9)) {
      case 0: return add("sin", {a}, [](const Ops& o) { return sin(o[0]); });
      case 1: return add("exp * 0.2", {a}, [](const Ops& o) { return exp(o[0]) * 0.2; });
      case 2: return add("gelu", {a}, [](const Ops& o) { return gelu(o[0]); });
      case 3: return add("sigmoid", {a}, [](const Ops& o) { return sigmoid(o[0]); });
      case 4: return add("silu", {a}, [](const Ops& o) { return silu(o[0]); });
      case 5: return add("square", {a}, [](const Ops& o) { return square(o[0]); });
      case 6:
        if (far) return add("abs", {a}, [](const Ops& o) { return abs(o[0]); });
        return add("softplus", {a}, [](const Ops& o) { return softplus(o[0]); });
      case 7:
        if (far) return add("relu", {a}, [](const Ops& o) { return relu(o[0]); });
        return add("cos", {a}, [](const Ops& o) { return cos(o[0]); });
      default:
        return add("rsqrt of square + 1", {a},
                   [](const Ops& o) { return rsqrt(square(o[0]) + 1); });
    }
  }

  void draw_many() {
    const std::size_t a = any(), b = any(), c = any();
    if (!broadcast(values_[a], values_[b])) return;
    const Tensor sum_ab = values_[a] + values_[b];
    const bool three = broadcast(sum_ab, values_[c]);
    switch (below(11)) {
      case 0: return add("add", {a, b}, [](const Ops& o) { return o[0] + o[1]; });
      case 1: return add("sub", {a, b}, [](const Ops& o) { return o[0] - o[1]; });
      case 2:
      case 3: return add("mul", {a, b}, [](const Ops& o) { return o[0] * o[1]; });
      case 4:
        return add("div by 2 + square", {a, b},
                   [](const Ops& o) { return o[0] / (square(o[1]) + 2); });
      case 5:
        if (smallest(values_[a] - values_[b]) < 0.01) return;
        return add("maximum", {a, b}, [](const Ops& o) { return maximum(o[0], o[1]); });
      case 6:
        if (smallest(values_[a]) < 0.01) return;
        return add("where", {a, b}, [](const Ops& o) { return where(gt(o[0], 0), o[1], o[0]); });
      case 7:
        if (!three) return;
        return add("lerp", {a, b, c}, [](const Ops& o) { return lerp(o[0], o[1], o[2]); });
      case 8:
        if (!three) return;
        return add("addcmul", {a, b, c}, [](const Ops& o) { return addcmul(o[0], o[1], o[2]); });
      // Written in place, on what was made here.
      case 9:
        return add("add, add_, mul_, tanh_", {a, b}, [](const Ops& o) {
          Tensor y = o[0] + o[1];
          add_(y, o[1]);
          mul_(y, 0.5);
          tanh_(y);
          return y;
        });
      default:
        return add("mul, sub_, addcmul_, exp_", {a, b}, [](const Ops& o) {
          Tensor y = o[0] * o[1];
          sub_(y, o[0]);
          addcmul_(y, o[0], o[1]);
          mul_(y, 0.2);
          exp_(y);
          return y;
        });
    }
  }

  void draw_view() {
    const std::size_t a = any();
    const Tensor x = values_[a];
    const int rank = x.rank();
    if (rank == 0) {
      return add("expand to [2, 3]", {a}, [](const Ops& o) { return expand(o[0], {2, 3}); });
    }
    const int d = below(rank);
    const std::int64_t size = x.size(d);
    switch (below(8)) {
      case 0: return add("transpose", {a}, [d](const Ops& o) { return transpose(o[0], d, -1); });
      case 1:
        return add("slice", {a},
                   [d, size](const Ops& o) { return slice(o[0], d, size / 2, size); });
      case 2: return add("slice by 2", {a}, [d](const Ops& o) { return slice(o[0], d, 0, 9, 2); });
      case 3: return add("select", {a}, [d](const Ops& o) { return select(o[0], d, -1); });
      case 4: return add("flatten", {a}, [](const Ops& o) { return flatten(o[0]); });
      case 5:
        if (rank > 3) return;
        return add("unsqueeze", {a}, [d](const Ops& o) { return unsqueeze(o[0], d); });
      case 6: {
        if (rank > 3) return;
        Dims wider(x.shape());
        wider.insert(0, 2);
        return add("expand", {a}, [wider](const Ops& o) { return expand(o[0], wider); });
      }
      default: return add("flip", {a}, [d](const Ops& o) { return flip(o[0], d); });
    }
  }

  // Reductions, joins, products, indices.
  void draw_line() {
    const std::size_t a = any(), b = any();
    const Tensor x = values_[a], y = values_[b];
    if (x.rank() == 0) return;
    const int d = below(x.rank());
    const std::int64_t size = x.size(d);
    const bool kept = below(2);
    switch (below(11)) {
      case 0: return add("sum", {a}, [d, kept](const Ops& o) { return sum(o[0], {d}, kept); });
      case 1: return add("mean", {a}, [d, kept](const Ops& o) { return mean(o[0], {d}, kept); });
      case 2:
        return add("logsumexp", {a},
                   [d, kept](const Ops& o) { return logsumexp(o[0], {d}, kept); });
      case 3: return add("softmax", {a}, [d](const Ops& o) { return softmax(o[0], d); });
      case 4:
        if (smallest(x) < 0.05) return;
        return add("norm", {a}, [d, kept](const Ops& o) { return norm(o[0], {d}, kept); });
      case 5: return add("prod", {a}, [d, kept](const Ops& o) { return prod(o[0], {d}, kept); });
      case 6: return add("cumsum", {a}, [d](const Ops& o) { return cumsum(o[0], d); });
      case 7: {
        Dims rest(x.shape()), other(y.shape());
        if (rest.size() != other.size()) return;
        rest[d] = other[d] = 0;
        if (rest != other) return;
        return add("cat", {a, b}, [d](const Ops& o) { return cat({o[0], o[1], o[0]}, d); });
      }
      case 8: {
        const Tensor index = tensor<std::int64_t>(
            std::vector<std::int64_t>{random_.below(size), random_.below(size), 0}, {3});
        return add("index_select", {a},
                   [d, index](const Ops& o) { return index_select(o[0], d, index); });
      }
      case 9:
        if (x.rank() < 2) return;
        return add("x x^T", {a},
                   [](const Ops& o) { return matmul(o[0], transpose(o[0], -2, -1)) * 0.3; });
      default:
        return add("layer_norm", {a},
                   [](const Ops& o) { return layer_norm(o[0], 1, {}, {}, 0.5); });
    }
  }

  Random random_;
  Graph& graph_;
  Ops values_;  // at the inputs
};

Graph graph_of(std::uint64_t seed) {
  Graph graph;
  Drawing(seed, graph).draw(5 + static_cast<int>(seed % 26));
  return graph;
}

std::string problem_of(const Graph& graph, std::uint64_t seed) {
  try {
    const GradcheckResult result =
        gradcheck(Differentiable(graph), graph.inputs,
                  {.second_order = true, .directional = true, .seed = seed});
    return result ? "" : result.message;
  } catch (const std::exception& error) {
    return std::string("threw ") + error.what();
  }
}

// Without the last steps, as long as it fails.
Graph shrink(Graph graph, std::uint64_t seed) {
  while (graph.steps.size() > 1) {
    Graph shorter = graph;
    shorter.steps.pop_back();
    if (problem_of(shorter, seed).empty()) break;
    graph = shorter;
  }
  return graph;
}

}  // namespace

TEST_CASE("a random graph is made again from its seed", "[random-graphs]") {
  CHECK(graph_of(12).text() == graph_of(12).text());
  CHECK(graph_of(12).text() != graph_of(38).text());
  CHECK(graph_of(25).steps.size() >= 30);
}

TEST_CASE("gradients of random graphs agree with differences", "[random-graphs]") {
  const char* seed_asked = std::getenv("BRRR_SEED");
  const char* count_asked = std::getenv("BRRR_GRAPHS");
  const std::uint64_t first = seed_asked ? std::strtoull(seed_asked, nullptr, 10) : 1;
  const std::uint64_t count = seed_asked    ? 1
                              : count_asked ? std::strtoull(count_asked, nullptr, 10)
                                            : 1000;
  long steps = 0, failed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Graph graph = graph_of(seed);
    steps += static_cast<long>(graph.steps.size());
    if (seed_asked) std::printf("%s", graph.text().c_str());
    const std::string problem = problem_of(graph, seed);
    if (problem.empty()) continue;
    if (++failed > 5) continue;
    const Graph small = shrink(graph, seed);
    INFO("replay with BRRR_SEED=" << seed << "\n" << small.text() << problem_of(small, seed));
    CHECK(problem.empty());
  }
  std::printf("random graphs: %llu, %ld steps\n", static_cast<unsigned long long>(count), steps);
  CHECK(failed == 0);
}
