// The plan of a graph: aliases, the arena, dependences, lanes. Random graphs: test_random.cpp.
#include <algorithm>

#include "brrr/graph/plan.h"
#include "brrr/graph/trace.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_plan.h"

using namespace brrr;
using namespace brrr::test;
using graph::Graph;
using graph::Plan;
using graph::PlanOptions;

namespace {

using Function = std::function<Tensors(const Tensors& arguments)>;

constexpr PlanOptions kForms[] = {
    {false, false, false}, {false, false, true}, {true, true, false}, {true, true, true}};

struct Planned {
  Graph graph;
  Plan plan;
};

Planned planned(const Function& function, const Tensors& arguments, const PlanOptions& options) {
  graph::Trace trace("planned", arguments);
  Planned result{trace.finish(function(trace.inputs())), {}};
  remove_dead(result.graph);
  result.plan = make_plan(result.graph, options);
  return result;
}

// Every form of plan is sound, and gives eager's results in random orders that it allows.
void check_plans(const Function& function, const Tensors& arguments) {
  const std::vector<std::string> expected = bits_of(function(arguments));
  for (const PlanOptions& options : kForms) {
    const Planned p = planned(function, arguments, options);
    CHECK(problem_of_plan(p.graph, options, p.plan) == "");
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Random random(seed);
      CHECK(bits_of(run_planned(p.graph, options, p.plan, arguments, random)) == expected);
    }
  }
}

long elided(const Plan& plan) { return std::ranges::count(plan.elided, true); }

}  // namespace

TEST_CASE("compile: a chain of pointwise calls works in one buffer", "[compile]") {
  const Function chain = [](const Tensors& in) {
    Tensor x = exp(in[0]);
    for (int i = 0; i < 20; ++i) x = x * 0.5 + in[0];
    return Tensors{sum(x)};
  };
  const Tensors arguments = {noise({64}, 1)};
  const Planned p = planned(chain, arguments, {false, false, true});
  CHECK(p.plan.arena_bytes == 256);
  CHECK(p.plan.least_bytes == 256);
  check_plans(chain, arguments);
}

TEST_CASE("compile: an operand that is read again keeps its memory", "[compile]") {
  check_plans(
      [](const Tensors& in) {
        const Tensor a = exp(in[0]), b = a * 2, c = a + b;
        return Tensors{sum(c * a), sum(b)};
      },
      {noise({64}, 1)});
  check_plans(
      [](const Tensors& in) {
        const Tensor a = exp(in[0]);
        // Both read the whole of it, the second one transposed.
        return Tensors{a * 2 + transpose(a, 0, 1), sum(transpose(exp(a), 0, 1) + a)};
      },
      {noise({8, 8}, 1)});
  check_plans(
      [](const Tensors& in) {
        const Tensor a = exp(in[0]);
        return Tensors{sum(square(a + transpose(a, 0, 1)))};
      },
      {noise({64, 64}, 1)});
}

TEST_CASE("compile: parts of a concatenation are computed in place", "[compile]") {
  const Function join = [](const Tensors& in) {
    const Tensor a = exp(in[0]), b = in[0] * 2, c = sum(in[0], {0});
    return Tensors{cat({a, b}) * 2, sum(a), c};
  };
  const Tensors arguments = {noise({64, 2}, 1)};
  const Planned p = planned(join, arguments, {false, false, true});
  CHECK(elided(p.plan) == 1);
  check_plans(join, arguments);
  // The joined tensor is a result itself, and parts of joined ones are joined.
  check_plans(
      [](const Tensors& in) {
        const Tensor a = exp(in[0]), b = in[0] * 2, ab = cat({a, b});
        const Tensor c = neg(in[0]), all = cat({ab, c});
        return Tensors{all, sum(ab), b + c};
      },
      {noise({64, 2}, 1)});
}

TEST_CASE("compile: small parts of a concatenation need a small alignment", "[compile]") {
  // 512 bytes, then 64 twice; after 72 another 64 would be misaligned.
  const auto join = [](std::int64_t rows) -> Function {
    return [rows](const Tensors& in) {
      const Tensor few = slice(in[0], 0, 0, 8);
      return Tensors{cat({exp(in[0]), slice(in[0], 0, 0, rows) * 2, few * 3}) + 1, sum(few)};
    };
  };
  const Tensors arguments = {noise({64, 2}, 1)};
  CHECK(elided(planned(join(8), arguments, {false, false, true}).plan) == 1);
  CHECK(elided(planned(join(9), arguments, {false, false, true}).plan) == 0);
  check_plans(join(8), arguments);
}

TEST_CASE("compile: parts that cannot be computed in place are copied", "[compile]") {
  const std::vector<std::pair<const char*, Function>> cases = {
      {"one part twice",
       [](auto& in) {
         const Tensor a = exp(in[0]);
         return Tensors{cat({a, a}) + 1};
       }},
      {"an argument",
       [](auto& in) {
         return Tensors{cat({in[0], exp(in[0])}) + 1};
       }},
      {"a view",
       [](auto& in) {
         return Tensors{cat({slice(exp(in[0]), 0, 0, 32), exp(in[0]) * 2}) + 1};
       }},
      {"columns",
       [](auto& in) {
         return Tensors{cat({exp(in[0]), in[0] * 2}, 1) + 1};
       }},
      {"a result",
       [](auto& in) {
         const Tensor a = exp(in[0]);
         return Tensors{cat({a, in[0] * 2}) + 1, a};
       }},
      {"a part that is written later",
       [](auto& in) {
         Tensor a = exp(in[0]);
         const Tensor all = cat({a, in[0] * 2});
         add_(a, 1);
         return Tensors{all + 1, sum(a)};
       }},
      {"a joined tensor that is written",
       [](auto& in) {
         const Tensor a = exp(in[0]);
         Tensor all = cat({a, in[0] * 2});
         add_(all, 1);
         return Tensors{all * 2, sum(a)};
       }},
      {"a joined tensor whose memory another takes while a part is read",
       [](auto& in) {
         const Tensor a = exp(in[0]), twice = cat({a, in[0] * 2}) * 2;
         const Tensor total = sum(twice);
         return Tensors{total, sum(a)};
       }},
      {"parts whose sizes are no multiple of the alignment",
       [](auto& in) {
         return Tensors{cat({slice(in[0], 0, 0, 3) * 2, in[0] * 2}) + 1};
       }},
  };
  for (const auto& [name, function] : cases) {
    INFO(name);
    const Tensors arguments = {noise({64, 2}, 1)};
    CHECK(elided(planned(function, arguments, {false, false, true}).plan) == 0);
    check_plans(function, arguments);
  }
}

TEST_CASE("compile: a part of several concatenations is in place in one of them", "[compile]") {
  check_plans(
      [](const Tensors& in) {
        const Tensor a = exp(in[0]), b = in[0] * 2;
        return Tensors{cat({a, b}) * 2, cat({b, a}) * 3, cat({a, b, a})};
      },
      {noise({64, 2}, 1)});
}

TEST_CASE("compile: independent calls run side by side, a chain in one lane", "[compile]") {
  const Function side_by_side = [](const Tensors& in) {
    Tensors ends;
    for (int chain = 0; chain < 4; ++chain) {
      Tensor x = in[0] * chain;
      for (int i = 0; i < 5; ++i) x = sin(x);
      ends.push_back(x);
    }
    return Tensors{sum(cat(ends))};
  };
  const Tensors arguments = {noise({8, 8}, 1)};
  const Planned p = planned(side_by_side, arguments, {true, true, true});
  CHECK(p.plan.lanes >= 4);
  // No chain waits for another.
  for (std::size_t i = 0; i < p.graph.nodes.size(); ++i) {
    if (p.graph.nodes[i].call.op == Op::sin) CHECK(p.plan.predecessors[i].size() == 1);
  }
  CHECK(planned(side_by_side, arguments, {true, true, false}).plan.lanes == 1);
  check_plans(side_by_side, arguments);

  const Planned chain = planned(
      [](const Tensors& in) {
        Tensor x = in[0];
        for (int i = 0; i < 10; ++i) x = matmul(x, x);
        return Tensors{x};
      },
      arguments, {true, true, true});
  CHECK(chain.plan.lanes == 1);
}

TEST_CASE("compile: memory is not used again where that would tie chains together", "[compile]") {
  // Each value dies at once: planned for the least memory, one chain would follow the other.
  const auto chains = [](std::int64_t width) -> Function {
    return [width](const Tensors& in) {
      Tensors ends;
      for (int chain = 0; chain < 16; ++chain) {
        Tensor x = narrow(in[0], 0, chain * width, width);
        for (int i = 0; i < 10; ++i) x = matmul(x, in[1]);
        ends.push_back(x);
      }
      return Tensors{stack(ends)};
    };
  };
  const Tensors arguments = {noise({16 * 8, 8}, 1), noise({8, 8}, 2)};
  const PlanOptions options{true, true, true};
  const Planned p = planned(chains(8), arguments, options);
  CHECK(p.plan.lanes == 16);
  CHECK(longest_chain(p.plan) <= 13);
  check_plans(chains(8), arguments);

  // Where independence costs much memory the plan stays small.
  const auto plan_of = [&](std::int64_t width) {
    const Tensors like = {noise({16 * width, width}, 1), noise({width, width}, 2)};
    return planned(chains(width), like, options).plan;
  };
  const Plan wide = plan_of(512);
  CHECK(wide.arena_bytes <= wide.least_bytes * 21 / 20);
}

TEST_CASE("compile: a reduction beside a chain does not delay it", "[compile]") {
  // Planned for the least memory, the product after the sum would take the memory that it reads.
  const Function step = [](const Tensors& in) {
    Tensor x = matmul(in[0], in[1]);
    for (int i = 0; i < 3; ++i) x = matmul(x, in[1]);
    const Tensor error = x - in[0], loss = sum(square(error));
    Tensor g = matmul(error, in[1]);
    for (int i = 0; i < 3; ++i) g = matmul(g, in[1]);
    Tensor count = in[2];
    add_(count, 1);
    return Tensors{loss, g * count};
  };
  const Tensors arguments = {noise({8, 8}, 1), noise({8, 8}, 2), noise({8, 8}, 3)};
  const Planned p = planned(step, arguments, {true, true, true});
  CHECK(longest_chain(p.plan) == 10);
  // The call that depends on none is in the lane that the loss opened.
  CHECK(p.plan.lanes == 2);
  CHECK(problem_of_plan(p.graph, {true, true, true}, p.plan) == "");
}

TEST_CASE("compile: arguments that are written and returned live to the end", "[compile]") {
  for (const PlanOptions& options : kForms) {
    const Function step = [](const Tensors& in) {
      Tensor to = in[0];
      add_(to, in[1]);
      Tensor last = exp(in[1]);
      for (int i = 0; i < 6; ++i) last = matmul(last, last);
      return Tensors{sum(last), to, slice(in[1], 0, 1, 3)};
    };
    const Tensors want_in = {noise({8, 8}, 1), noise({8, 8}, 2)},
                  got_in = {noise({8, 8}, 1), noise({8, 8}, 2)};
    const std::vector<std::string> expected = bits_of(step(want_in));
    const Planned p = planned(step, got_in, options);
    CHECK(problem_of_plan(p.graph, options, p.plan) == "");
    Random random(1);
    CHECK(bits_of(run_planned(p.graph, options, p.plan, got_in, random)) == expected);
    CHECK(bits_of(got_in) == bits_of(want_in));
  }
}

TEST_CASE("compile: the arena of a training step is near its peak live memory", "[compile]") {
  const auto ratio = [](nn::Module& model, const Tensor& x,
                        const std::function<Tensor(const Tensor&)>& loss_of) {
    nn::Parameters parameters(model);
    optim::Optimizer optimizer(parameters, chain(optim::clip_by_global_norm(1), optim::adam(0.1)));
    double worst = 0;
    for (const PlanOptions& options : kForms) {
      const Planned p = planned(
          [&](const Tensors& in) {
            parameters.zero_grad();
            const Tensor loss = loss_of(model(in[0]));
            backward(loss);
            optimizer.step();
            return Tensors{loss};
          },
          {x}, options);
      CHECK(problem_of_plan(p.graph, options, p.plan) == "");
      worst = std::max(
          worst, static_cast<double>(p.plan.arena_bytes) / static_cast<double>(p.plan.least_bytes));
    }
    return worst;
  };
  const auto squares = [](const Tensor& y) { return mean(square(y)); };
  nn::MLP narrow({32, 64, 64, 64, 64, 8}), wide({512, 512, 512});
  CHECK(ratio(narrow, noise({16, 32}, 1), squares) <= 1.05);
  CHECK(ratio(wide, noise({8, 512}, 1), squares) <= 1.05);
  nn::TransformerBlock block(32, 4, {}, true, 0.1);
  CHECK(ratio(block, noise({4, 16, 32}, 1), squares) <= 1.05);
  nn::Transformer language({.vocabulary = 64, .length = 16, .width = 32, .heads = 4, .layers = 4});
  CHECK(ratio(language, integers({4, 16}, 64, 1), squares) <= 1.05);
}

// Nothing else runs beside it. Twice the calls may take twice the time: a part that compares all
// pairs of calls takes 64 times as long for eight times the calls.
TEST_CASE("compile: planning takes time in proportion to the calls", "[compile][timing]") {
  const auto planned = [](std::size_t layers) {
    nn::MLP model(std::vector<std::int64_t>(layers + 1, 4));
    nn::Parameters parameters(model);
    optim::Optimizer optimizer(parameters, optim::adam(optim::Coefficient(1e-3)));
    const Tensor x = randn({2, 4});
    auto step = compile(
        [&] {
          optimizer.zero_grad();
          const Tensor loss = mean(square(model(x)));
          backward(loss);
          optimizer.step();
          return detach(loss);
        },
        {.mode = Mode::graph});
    step();
    return step.report().entries.front();
  };
  const CompiledEntry few = planned(1712), many = planned(8 * 1712);
  CHECK(many.nodes > 80000);
  CHECK(many.plan_ms < 24 * few.plan_ms);
  CHECK(many.plan_ms < 3000);
}
