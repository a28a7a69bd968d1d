// What times decide in a fused step: calls in kernels of their own, or no fusion.
#include <brrr/autograd/autograd.h>
#include <brrr/dispatch/observe.h>
#include <brrr/graph/choose.h>
#include <brrr/graph/compile.h>
#include <brrr/graph/fusion_report.h>
#include <brrr/graph/passes.h>
#include <brrr/graph/trace.h>
#include <brrr/nn/losses.h>
#include <brrr/nn/mlp.h>
#include <brrr/nn/optim/optimizer.h>
#include <brrr/nn/optim/optimizers.h>
#include <brrr/ops/functions.h>
#include <brrr/ops/register_op.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/harness/catch.h"
#include "tests/harness/choose_check.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_random.h"
#include "tests/harness/counting_op.h"
#include "tests/harness/own_cache.h"

using namespace brrr;
using namespace brrr::test;
using core::WhyNotFused;
using graph::Graph;
using graph::KernelTimer;

namespace {

// Times on, which tests have off, in a cache of its own.
struct Measuring {
  OwnCache cache;
  EnvironmentVariable on{"BRRR_MEASURE", "on"};
};

// Losses, parameters, an argument that is written to, and the next random number after some steps
// with dropout, gathers that check and gradients that add up.
std::vector<std::string> training(Mode mode, bool measure, bool checks) {
  manual_seed(3);
  nn::MLP model({8, 16, 8});
  optim::Optimizer optimizer(model, optim::adam(1e-2));
  const Tensor table = randn({6, 8}), x = noise({4, 8}, 1), ids = randint(0, 6, {4});
  const Tensor target = randint(0, 8, {4});
  auto step = compile(
      [&](Tensor seen) {
        optimizer.zero_grad();
        const Tensor rows = index_select(table, 0, ids);
        const Tensor in = checks ? checked(x, -100.0, 100.0) : x;
        const Tensor loss = nn::cross_entropy(model(dropout(in + rows, 0.5)), target);
        backward(loss);
        optimizer.step();
        add_(seen, loss);
        return detach(loss);
      },
      {.mode = mode, .fallback = OnFallback::refuse, .measure = measure});
  std::vector<std::string> lines;
  Tensor seen = zeros({4});
  for (int i = 0; i < 4; ++i) lines.push_back(bits_of(step(seen)));
  for (const auto& [name, parameter] : model.named_parameters())
    lines.push_back(bits_of(parameter));
  for (const Tensor& each : {seen, rand({2})}) lines.push_back(bits_of(each));
  return lines;
}

std::string line_of(const std::string& text, const std::string& start) {
  const std::size_t at = text.find(start);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

// What explain() says of a choice.
template <class Step>
std::string choice_of(const Step& step) {
  const std::string text = step.explain();
  const std::string unfused = line_of(text, "not fused, ");
  return unfused.empty() ? line_of(text, "fused, ") : unfused;
}

Graph traced(const std::function<Tensors()>& function) {
  graph::Trace trace("traced", {});
  Graph graph = trace.finish(function());
  graph::remove_dead(graph);
  return graph;
}

// The calls that times put apart, where `time_of` gives a kernel's time.
std::vector<std::string> apart(
    const Graph& graph,
    std::function<std::optional<std::int64_t>(const KernelTimer::Kernel&)> time_of) {
  const auto chosen = graph::choose_apart(graph, {.fuse = [](Graph& each) { graph::fuse(each); },
                                                  .program = {},
                                                  .arguments = {},
                                                  .same_bits = true,
                                                  .time_of = std::move(time_of)});
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes) {
    if (const auto found = chosen.find(node.number); found != chosen.end()) {
      CHECK(found->second == WhyNotFused::slower);
      names.emplace_back(op_info(node.call.op).name);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("choose: timing a step leaves its tensors, draws and results as they are", "[choose]") {
  for (const bool checks : {false, true}) {
    const std::vector<std::string> eager = training(Mode::eager, false, checks);
    const Measuring measuring;
    for (const char* cache : {"on", "off"}) {
      const EnvironmentVariable kept("BRRR_CACHE", cache);
      CHECK(training(Mode::fused, true, checks) == eager);
    }
    CHECK(training(Mode::fused, true, checks) == eager);  // with the choice that was kept
  }
}

TEST_CASE("choose: a choice is kept, and made again where its file is damaged", "[choose]") {
  const Measuring measuring;
  const Tensor x = noise({64, 32}, 1);
  const auto make = [&x](int repeats, bool measure = true, Rounding rounding = Rounding::eager) {
    auto step = compile(
        [&x, repeats] {
          Tensor y = x;
          for (int i = 0; i < repeats; ++i) y = tanh(y * 0.5) + x;
          return sum(y, 0);
        },
        {.mode = Mode::fused, .rounding = rounding, .measure = measure});
    step();
    return choice_of(step);
  };
  const auto is_kept = [](const std::string& text) {
    return text.find("by times that were measured before") != std::string::npos;
  };
  const auto is_timed = [&](const std::string& text) {
    const bool was_disturbed = text.find("since other work disturbed") != std::string::npos;
    return (text.find("by times") != std::string::npos || was_disturbed) && !is_kept(text);
  };
  // The choice of a machine that is disturbed is made again.
  const auto is_kept_soon = [&](int repeats) {
    bool kept = false;
    for (int i = 0; i < 50 && !kept; ++i) kept = is_kept(make(repeats));
    return kept;
  };
  CHECK(is_timed(make(3)));
  CHECK(is_kept_soon(3));
  CHECK(is_timed(make(4)));  // another program
  CHECK(is_kept_soon(4));
  CHECK(make(3, false) == "");
  int files = 0;
  for (const auto& each : std::filesystem::directory_iterator(measuring.cache.path)) {
    if (each.path().extension() != ".choice") continue;
    ++files;
    std::ofstream(each.path(), std::ios::app) << "x";
  }
  CHECK(files == 2);
  CHECK(is_timed(make(3)));
  CHECK(is_kept_soon(3));
  // Nothing is timed where the bits depend on the choice and it cannot be kept.
  const EnvironmentVariable off("BRRR_CACHE", "off");
  CHECK(is_timed(make(3)));
  CHECK(is_timed(make(3)));
  CHECK(make(3, true, Rounding::fast) == "fused, by the model, since no choice can be kept");
  const EnvironmentVariable none("BRRR_MEASURE", "off");
  CHECK(make(3) == "");
}

TEST_CASE("choose: calls go apart where kernels of them take less time, and only there",
          "[choose]") {
  const Tensor x = noise({64, 32}, 1), y = noise({64, 32}, 2);
  const Graph graph = traced([&] { return Tensors{sum(exp(x) * y, 1)}; });
  const auto size = [](const KernelTimer::Kernel& kernel) { return kernel.node->calls.size(); };
  using Time = std::optional<std::int64_t>;
  using Names = std::vector<std::string>;
  // Together, or by themselves.
  CHECK(apart(graph, [&](const KernelTimer::Kernel& k) -> Time { return size(k) > 1 ? 10 : 4; }) ==
        Names{});
  CHECK(apart(graph, [&](const KernelTimer::Kernel& k) -> Time { return size(k) > 1 ? 100 : 4; }) ==
        Names{"exp", "mul", "sum"});
  // A gain that is not larger than the noise is none.
  CHECK(apart(graph, [&](const KernelTimer::Kernel& k) -> Time {
          return size(k) > 1 ? 1210 : 400;
        }) == Names{});
  // The sum alone, which a kernel of all three is slow for.
  const auto of_sum = [&](const KernelTimer::Kernel& k) -> Time {
    return size(k) == 3 ? 1'000'000'000 : size(k) == 2 ? 10 : 4'000'000;
  };
  CHECK(apart(graph, of_sum) == Names{"sum"});
  // Kernels whose time nobody knows stay as the model made them.
  CHECK(apart(graph, [](const KernelTimer::Kernel&) { return Time(); }) == Names{});
  CHECK(apart(graph, [&](const KernelTimer::Kernel& k) {
          return size(k) > 1 ? Time(100) : Time();
        }) == Names{});
}

TEST_CASE("choose: equal kernels are decided at once", "[choose]") {
  Tensors x;
  for (int i = 0; i < 6; ++i) x.push_back(noise({64, 32}, i));
  const Graph graph = traced([&] {
    Tensors results;
    for (int i = 0; i < 3; ++i) results.push_back(sum(exp(x[i] * x[i]), 1));
    for (int i = 3; i < 6; ++i) results.push_back(mean(tanh(x[i] + x[i])));
    return results;
  });
  const std::vector<std::string> names =
      apart(graph, [&](const KernelTimer::Kernel& k) -> std::optional<std::int64_t> {
        const bool is_first = k.node->body && k.node->fused.front() == "mul";
        return is_first && k.node->calls.size() > 1 ? 100'000'000 : 4'000'000;
      });
  CHECK(std::ranges::count(names, "sum") == 3);
  CHECK(std::ranges::count(names, "mean") == 0);
}

TEST_CASE("choose: a fusion that the user requires is kept whatever it takes", "[choose]") {
  const Measuring measuring;
  const Tensor x = noise({64, 32}, 1);
  const auto function = [&] {
    const Tensor y = exp(x), z = sum(y * x, 1);
    require_fused(y, z);
    return Tensors{z};
  };
  const Graph graph = traced(function);
  const auto chosen = graph::choose_apart(
      graph, {.fuse =
                  [before = graph](Graph& each) {
                    graph::fuse(each);
                    graph::check_required(before, each, "traced");
                  },
              .program = {},
              .arguments = {},
              .same_bits = true,
              .time_of = [](const KernelTimer::Kernel& k) -> std::optional<std::int64_t> {
                return k.node->calls.size() > 1 ? 100'000'000 : 4;
              }});
  CHECK(chosen.empty());
  auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
  CHECK_NOTHROW(step());
  CHECK_THAT(choice_of(step), Catch::StartsWith("fused, "));
}

TEST_CASE("choose: calls with effects run once a step, and observers see no timing", "[choose]") {
  const Measuring measuring;
  struct Count final : core::Observer {
    std::atomic<int> calls = 0;
    void before(const core::Call&) override { ++calls; }
  };
  for (const char* channel : {"", "choose"}) {
    const core::Op op = counting_op("test_choose_counts_", channel);
    const Tensor x = noise({4, 8}, 1);
    auto step =
        compile([&] { return call_op(op, {exp(x) * 2.0 + x}, {})[0]; }, {.mode = Mode::fused});
    auto off = compile([&] { return call_op(op, {exp(x) * 2.0 + x}, {})[0]; },
                       {.mode = Mode::fused, .measure = false});
    runs_of_counting_ops = 0;
    Count with, without;
    {
      const core::Observing observing(with);
      step();
    }
    CHECK(runs_of_counting_ops == 1);
    CHECK_THAT(choice_of(step), Catch::EndsWith(", since its calls have effects outside of it"));
    {
      const core::Observing observing(without);
      off();
    }
    CHECK(with.calls == static_cast<int>(step.launches().size()) + 1);  // and copy_
    CHECK(without.calls == static_cast<int>(off.launches().size()) + 1);
  }
}

TEST_CASE("choose: observers see the first replay of a step and not those that time it",
          "[choose]") {
  const Measuring measuring;
  struct Count final : core::Observer {
    std::atomic<int> calls = 0;
    void before(const core::Call&) override { ++calls; }
  } count;
  const Tensor x = noise({4, 8}, 1);
  auto step = compile([&] { return exp(x) * 2.0 + x; }, {.mode = Mode::fused});
  {
    const core::Observing observing(count);
    step();
  }
  CHECK_FALSE(choice_of(step).empty());
  CHECK(count.calls == static_cast<int>(step.launches().size()));
}

TEST_CASE("choose: the choice of a step does not hold for one that requires a fusion", "[choose]") {
  const Measuring measuring;
  const Tensor x = noise({64, 32}, 1);
  const auto function = [&](bool required) {
    return [&x, required] {
      const Tensor y = exp(x), z = sum(y * x, 1);
      if (required) require_fused(y, z);
      return z;
    };
  };
  const auto key = [&](bool required) {
    return graph::key_of(traced([&] { return Tensors{function(required)()}; }));
  };
  CHECK(key(true) != key(false));
  CHECK(key(true) == key(true));
  auto step = compile(function(true), {.mode = Mode::fused, .fallback = OnFallback::refuse});
  CHECK_NOTHROW(step());
}

TEST_CASE("choose: steps that are timed on several threads at once", "[choose]") {
  const Measuring measuring;
  std::vector<std::string> lines(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    threads.emplace_back([&line = lines[i], i] {
      const Tensor x = noise({32, 16}, i % 2);
      auto step = compile([&] { return sum(exp(x) * x, 1); }, {.mode = Mode::fused});
      line = bits_of(step()) == bits_of(sum(exp(x) * x, 1)) ? choice_of(step) : "differs";
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& line : lines) CHECK_THAT(line, Catch::Contains("fused, by "));
}

TEST_CASE("choose: random programs that are timed have eager's bits", "[choose]") {
  const Measuring measuring;
  check_random_programs(cpu, 12, Mode::fused);
}

TEST_CASE("choose: whatever times say, what is fused again is a graph", "[choose]") {
  check_random_choices(cpu, 57, 8);
}
