// Rematerialization: the same bits, memory as planned, budgets, marks, and what other systems do
// wrong. Random programs: test_random.cpp.
#include "brrr/graph/passes.h"
#include "brrr/graph/remat.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>

#include "brrr/graph/rematerialize.h"
#include "brrr/graph/trace.h"
#include "tests/harness/body_interpreter.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/environment.h"
#include "tests/harness/memory_checks.h"
#include "tests/harness/remat_check.h"
#include "tests/harness/samples.h"

using namespace brrr;
using namespace brrr::test;
using graph::Graph;
using graph::Partition;
using graph::RematReport;

namespace {

// A network drawn by a seed: depth, width, which values are used again, how.
std::function<Tensor()> drawn_net(std::uint64_t seed, int most_layers = 10) {
  Random random(seed);
  const int layers = 1 + static_cast<int>(random.below(most_layers));
  const std::int64_t batch = 8 << random.below(4), width = 8 << random.below(3);
  Tensors weights;
  for (int i = 0; i < layers; ++i)
    weights.push_back(requires_grad_(noise({width, width}, random.next())));
  std::vector<std::int64_t> choices;
  for (int i = 0; i < 6 * layers; ++i) choices.push_back(random.below(6));
  return [=, x = noise({batch, width}, seed)] {
    Tensors made = {x};
    std::size_t next = 0;
    for (const Tensor& w : weights) {
      zero_grad(w);
      Tensor h = matmul(made.back(), w);
      for (int k = 0; k < 6; ++k) {
        switch (choices[next++]) {
          case 0: h = tanh(h); break;
          case 1: h = h * made[made.size() / 2]; break;
          case 2: h = dropout(h, 0.3); break;
          case 3: h = h - mean(h, 1, true); break;
          case 4: h = softmax(h, -1) + made.back(); break;
          default: break;
        }
      }
      made.push_back(h);
    }
    const Tensor loss = sum(square(made.back()));
    backward(loss);
    return detach(loss);
  };
}

// The calls that can run again in the backward pass.
std::vector<int> recomputable(const Graph& graph, const Partition& partition) {
  std::vector<int> calls;
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    if (partition.is_forward(i) && !partition.obstacle(i)) calls.push_back(i);
  }
  return calls;
}

}  // namespace

TEST_CASE("remat: every policy gives eager's bits", "[remat]") {
  const MakeWorld make = [] {
    const auto net = std::make_shared<Net>(7, 12, 8, 3);
    World world;
    world.step = [net](const Tensors&) { return Tensors{(*net)()}; };
    world.seen = [net] { return net->gradients(); };
    return world;
  };
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    for (const Remat remat : {Remat::none(), Remat::min_cut(), Remat::full(), Remat::budget(0.9)})
      CHECK(difference_from_eager(make, 3, mode, remat) == "");
  }
}

TEST_CASE("remat: several backward passes in a step, and gradients of gradients", "[remat]") {
  const auto world_with = [](auto step) {
    return [step] {
      const Tensor w = requires_grad_(noise({16, 16}, 2));
      World world;
      world.step = [=](const Tensors&) {
        zero_grad(w);
        return step(w);
      };
      world.seen = [w] { return Tensors{w, grad(w)}; };
      return world;
    };
  };
  const auto loss_of = [](const Tensor& w, std::uint64_t seed) {
    Tensor h = noise({32, 16}, seed);
    for (int i = 0; i < 4; ++i) h = dropout(tanh(matmul(h, w)) * 0.5 + h, 0.1);
    return sum(square(h));
  };
  const MakeWorld microbatches = world_with([=](const Tensor& w) {
    Tensors losses;
    for (std::uint64_t batch = 0; batch < 3; ++batch) {
      losses.push_back(loss_of(w, batch));
      backward(losses.back());
    }
    return losses;
  });
  const MakeWorld second_order = world_with([=](const Tensor& w) {
    const Tensor first = grad(loss_of(w, 1), w, {.create_graph = true});
    backward(sum(square(first)));
    return Tensors{detach(first)};
  });
  for (const MakeWorld& make : {microbatches, second_order}) {
    for (const Remat remat : {Remat::full(), Remat::min_cut()}) {
      CHECK(difference_from_eager(make, 2, Mode::graph, remat) == "");
      CHECK(difference_from_eager(make, 2, Mode::fused, remat) == "");
    }
  }
  // The values of each batch are computed again in its own backward pass.
  const World world = microbatches();
  graph::Trace trace("traced", {});
  Graph graph = trace.finish(world.step({}));
  remove_dead(graph);
  applied(graph, Remat::full());
  std::set<int> phases;
  int phase = 0;
  graph::Role last = graph::Role::forward;
  for (const graph::Node& node : graph.nodes) {
    phase += node.role != last && node.role == graph::Role::backward;
    last = node.role;
    if (node.recomputation != 0) phases.insert(phase);
  }
  CHECK(phase == 3);
  CHECK(phases.size() == 3);
}

TEST_CASE("remat: planned memory is what a replay takes", "[remat]") {
  const auto peak_of = [](Mode mode, Remat remat) {
    const Net net(12, 64, 32, 1);
    auto step = compile([&net] { return net(); }, {.mode = mode, .remat = remat});
    step();
    const CompiledEntry entry = step.report().entries[0];
    const testing::PlannedPeak peak = testing::planned_peak(step, cpu);
    CHECK(peak.measured == peak.planned);
    return entry.arena_bytes;
  };
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    const auto kept = static_cast<double>(peak_of(mode, Remat::none()));
    CHECK(static_cast<double>(peak_of(mode, Remat::min_cut())) <= kept);
    CHECK(static_cast<double>(peak_of(mode, Remat::budget(0.5))) <= 0.5 * kept);
    CHECK(static_cast<double>(peak_of(mode, Remat::full())) <= 0.4 * kept);
  }
}

// Partial sums of reductions, and products of bf16 in f32, are memory of kernels.
TEST_CASE("remat: planned memory is what a replay of a transformer takes", "[remat]") {
  std::size_t of_kernels = 0;
  for (const DType dtype : {f32, bf16}) {
    for (const Mode mode : {Mode::graph, Mode::fused}) {
      for (const Remat remat :
           {Remat::none(), Remat::min_cut(), Remat::budget(0.9), Remat::full()}) {
        manual_seed(4);
        nn::Sequential blocks;
        for (int i = 0; i < 2; ++i)
          blocks.add<nn::TransformerBlock>(64, 2, Options{.dtype = dtype});
        nn::Parameters parameters(blocks);
        const Tensor x = randn({4, 64, 64}, {.dtype = dtype});
        auto step = compile(
            [&] {
              parameters.zero_grad();
              const Tensor loss = mean(square(blocks(x)));
              backward(loss);
              return detach(loss);
            },
            {.mode = mode, .remat = remat});
        step();
        of_kernels += step.report().entries[0].kernel_bytes;
        const testing::PlannedPeak peak = testing::planned_peak(step, cpu);
        INFO(name_of(dtype) << (mode == Mode::fused ? ", fused" : ", graph"));
        CHECK(peak.measured == peak.planned);
      }
    }
  }
  CHECK(of_kernels > 0);
}

TEST_CASE("remat: random networks keep their bits, in the memory that is planned", "[remat]") {
  const Interpreted interpreted;  // compiling takes too long
  constexpr std::uint64_t kGraphs = 1000;
  int smaller = 0;
  for (std::uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const auto run = [&](Mode mode, Remat remat) {
      manual_seed(seed);
      auto step = compile(drawn_net(seed, 3), {.mode = mode, .remat = remat});
      std::vector<std::string> losses = {bits_of(step())};
      losses.push_back(bits_of(step()));
      const std::size_t arena = step.report().entries[0].arena_bytes;
      const testing::PlannedPeak peak = testing::planned_peak(step, cpu);
      CHECK(peak.measured == peak.planned);
      return std::pair(losses, arena);
    };
    INFO("seed " << seed);
    const auto [expected, baseline] = run(Mode::graph, Remat::none());
    const auto [again, cut] = run(Mode::graph, Remat::full());
    CHECK(again == expected);
    CHECK(cut <= baseline);
    smaller += cut < baseline;
    if (seed % 10 != 0) continue;  // choosing takes long
    const auto [fast, fast_bytes] = run(Mode::graph, Remat::min_cut());
    CHECK(fast == expected);
    CHECK(fast_bytes <= baseline);
    CHECK(run(Mode::fused, seed % 20 ? Remat::min_cut() : Remat::full()).first == expected);
  }
  CHECK(smaller > 300);
}

TEST_CASE("remat: budgets are honoured and monotone on random networks", "[remat]") {
  constexpr double kBudgets[] = {0.25, 0.5, 0.75, 1};
  int refused = 0, honoured = 0, below = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Graph graph = traced(drawn_net(seed));
    std::size_t last_peak = 0;
    std::int64_t last_time = INT64_MAX;
    INFO("seed " << seed);
    for (const double budget : kBudgets) {
      Graph changed = graph;
      RematReport report;
      try {
        report = applied(changed, Remat::budget(budget));
      } catch (const Error&) {
        REQUIRE(last_peak == 0);  // a smaller budget was not met either
        ++refused;
        continue;
      }
      verify(changed, "rematerialize");
      const auto allowed = static_cast<double>(report.baseline.peak_bytes) * budget;
      REQUIRE(static_cast<double>(report.chosen.peak_bytes) <= allowed);
      REQUIRE(report.chosen.peak_bytes == make_plan(changed, kOnCpu).arena_bytes);
      REQUIRE(report.chosen.peak_bytes >= last_peak);
      REQUIRE(report.chosen.picoseconds <= last_time);
      last_peak = report.chosen.peak_bytes;
      last_time = report.chosen.picoseconds;
      ++honoured;
      below += budget < 1;
    }
    Graph least = graph;
    const RematReport full = applied(least, Remat::full());
    REQUIRE(full.chosen.peak_bytes <= full.baseline.peak_bytes);
  }
  CHECK(refused > 100);
  CHECK(below > 150);
  CHECK(honoured >= 200);
}

TEST_CASE("remat: of equal layers a budget's memory is used, not that of the next cut", "[remat]") {
  nn::Sequential blocks;
  for (int i = 0; i < 6; ++i) blocks.add<nn::TransformerBlock>(32, 2);
  const Tensor x = noise({4, 32, 32}, 1);
  const Graph graph = traced([&] {
    const Tensor loss = sum(square(blocks(x)));
    backward(loss);
    return detach(loss);
  });
  std::size_t last = 0;
  std::int64_t last_time = INT64_MAX;
  for (const double budget : {0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0}) {
    Graph changed = graph;
    const RematReport report = rematerialize(changed, {.policy = Remat::budget(budget),
                                                       .name = "step",
                                                       .plan = kOnCpu,
                                                       .fuse = [](Graph& each) { fuse(each); }});
    const double used = static_cast<double>(report.chosen.peak_bytes) /
                        static_cast<double>(report.baseline.peak_bytes);
    INFO("budget " << budget << ": " << used);
    CHECK(used <= budget);
    CHECK((used > budget - 0.1 || budget > 0.9));  // with all memory no more may be faster
    CHECK(report.chosen.peak_bytes >= last);
    CHECK(report.chosen.picoseconds <= last_time);
    last = report.chosen.peak_bytes;
    last_time = report.chosen.picoseconds;
  }
}

TEST_CASE("remat: a budget that cannot be met names the least that can", "[remat]") {
  const Net net(6, 32, 16, 1);
  auto step = compile([&net] { return net(); }, {.remat = Remat::budget(0.01), .name = "train"});
  const std::string error = error_of([&] { step(); });
  CHECK_THAT(error, Catch::StartsWith("[train] expected a budget that the step can meet, got 0.01: "
                                      "of "));
  const double least = std::stod(error.substr(error.rfind(' ')));
  CHECK(least < 1);
  auto fits = compile([&net] { return net(); }, {.remat = Remat::budget(least)});
  fits();
  CHECK_THAT(error_of([] { Remat::budget(0); }),
             Catch::Contains("expected a fraction above 0 and at most 1, got 0"));
  CHECK_THAT(error_of([] { Remat::budget(1.5); }), Catch::Contains("got 1.5"));
}

namespace {

// Calls f with every set of calls that run again, of those in `free`.
template <class F>
void each_set(const Graph& graph, const std::vector<int>& free, F f) {
  for (unsigned set = 0; set < 1u << free.size(); ++set) {
    std::vector<bool> again(graph.nodes.size());
    for (std::size_t i = 0; i < free.size(); ++i)
      again[static_cast<std::size_t>(free[i])] = set >> i & 1;
    f(again);
  }
}

// With the graph of each set, in one, two and four segments.
template <class F>
void each_rewritten(const Graph& graph, const Partition& partition, const std::vector<int>& free,
                    F f) {
  each_set(graph, free, [&](const std::vector<bool>& again) {
    for (const int segments : {1, 2, 4})
      f(recompute_calls(graph, partition, again, partition.segments(segments)).graph);
  });
}

}  // namespace

TEST_CASE("remat: a cut is the optimum of its objective, by enumeration", "[remat]") {
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 1000 && compared < 60; ++seed) {
    const Graph graph = traced(drawn_net(seed));
    for (const bool fused : {false, true}) {
      const Partition partition(graph, fused, "step");
      const std::vector<int> free = recomputable(graph, partition);
      if (free.size() > 13) continue;
      ++compared;
      const std::int64_t price = 1000 << (seed % 8);
      // What the backward pass needs: kept, or again with what that needs.
      const auto cost_of = [&](const std::vector<bool>& again) {
        std::set<int> needed;
        for (int i = 0; i < static_cast<int>(again.size()); ++i) {
          if (partition.is_saved(i)) needed.insert(i);
        }
        std::int64_t cost = 0;
        while (!needed.empty()) {
          const int call = *needed.rbegin();
          needed.erase(call);
          if (!again[static_cast<std::size_t>(call)]) {
            cost += partition.keep_time(call) + partition.bytes(call) * price / 1000;
            continue;
          }
          cost += partition.recompute_time(call);
          for (const graph::Value& input : graph.nodes[static_cast<std::size_t>(call)].inputs) {
            const int maker = partition.flow().producer(input.buffer);
            if (maker >= 0 && partition.flow().is_intermediate(input.buffer)) needed.insert(maker);
          }
        }
        return cost;
      };
      std::int64_t least = INT64_MAX;
      each_set(graph, free,
               [&](const std::vector<bool>& again) { least = std::min(least, cost_of(again)); });
      INFO("seed " << seed);
      CHECK(cost_of(partition.cut({.price = price})) == least);
    }
  }
  CHECK(compared >= 60);
}

TEST_CASE("remat: full is near the least memory of any set of values, by enumeration", "[remat]") {
  int compared = 0, optimal = 0;
  for (std::uint64_t seed = 1; seed <= 3000 && compared < 40; ++seed) {
    const Graph graph = traced(drawn_net(seed));
    const Partition partition(graph, false, "step");
    const std::vector<int> free = recomputable(graph, partition);
    if (free.size() > 11) continue;
    ++compared;
    std::size_t least = SIZE_MAX;
    each_rewritten(graph, partition, free, [&](const Graph& changed) {
      least = std::min(least, make_plan(changed, kOnCpu).arena_bytes);
    });
    Graph full = graph;
    const std::size_t got = applied(full, Remat::full()).chosen.peak_bytes;
    INFO("seed " << seed << ": " << got << " bytes, least " << least);
    CHECK(2 * got <= 5 * least);
    optimal += got == least;
  }
  CHECK(compared == 40);
  CHECK(optimal >= 20);
}

TEST_CASE("remat: a budget's step is near the fastest within it, by enumeration", "[remat]") {
  int compared = 0, optimal = 0, near = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const Graph graph = traced(drawn_net(seed));
    const Partition partition(graph, false, "step");
    const std::vector<int> free = recomputable(graph, partition);
    if (free.size() > 11) continue;
    const auto ceilings = graph::ceilings_for(graph);
    std::vector<std::pair<std::size_t, std::int64_t>> all;  // memory and time
    each_rewritten(graph, partition, free, [&](const Graph& changed) {
      all.emplace_back(make_plan(changed, kOnCpu).arena_bytes, graph::time_of(changed, ceilings));
    });
    for (const double budget : {0.6, 0.8}) {
      Graph changed = graph;
      RematReport report;
      try {
        report = applied(changed, Remat::budget(budget));
      } catch (const Error&) {
        continue;
      }
      ++compared;
      const auto limit =
          static_cast<std::size_t>(static_cast<double>(report.baseline.peak_bytes) * budget);
      std::int64_t least = INT64_MAX;
      for (const auto& [bytes, time] : all) {
        if (bytes <= limit) least = std::min(least, time);
      }
      INFO("seed " << seed << ", budget " << budget << ": " << report.chosen.picoseconds
                   << " ps, least " << least);
      CHECK(report.chosen.picoseconds <= least + least / 8);
      near += report.chosen.picoseconds <= least + least / 16;
      optimal += report.chosen.picoseconds <= least;
    }
  }
  CHECK(compared >= 60);
  CHECK(near >= compared - 2);
  CHECK(3 * optimal >= 2 * compared);
}

TEST_CASE("remat: the cut of a joint graph of 20,000 calls takes milliseconds", "[remat]") {
  const Net net(1500, 2, 4, 1);
  const Graph graph = traced([&net] { return net(); });
  REQUIRE(graph.nodes.size() >= 20'000);
  const Partition partition(graph, true, "step");
  double least = INFINITY;  // of several runs: tests run side by side
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<bool> again = partition.cut({.price = 1'000'000});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
    CHECK(std::ranges::count(again, true) > 1000);
  }
  INFO(graph.nodes.size() << " calls: " << least << " ms");
  CHECK(least < 50);
}

TEST_CASE("remat: copies are made where they are read, one for each segment", "[remat]") {
  const Net net(12, 64, 32, 5);
  Graph graph = traced([&net] { return net(); });
  const std::size_t calls = graph.nodes.size();
  const RematReport report = applied(graph, Remat::full());
  CHECK(report.recomputed_calls > 12);
  CHECK(graph.nodes.size() > calls);
  // Between a copy and the call of the backward pass that it is for there are copies alone.
  std::set<int> waiting;
  for (const graph::Node& node : graph.nodes) {
    for (const graph::Value& input : node.inputs) waiting.erase(input.buffer);
    if (node.recomputation != 0) {
      waiting.insert(node.outputs[0].buffer);
    } else {
      CHECK(waiting.empty());
    }
  }
  // The mask that every layer reads has several copies, none of which lives through the backward.
  std::vector<int> copies(2 * calls);
  for (const graph::Node& node : graph.nodes)
    copies[static_cast<std::size_t>(node.number)] += node.recomputation != 0;
  const graph::Flow flow(graph);
  int longest = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].recomputation == 0) continue;
    const int last = flow.last_use(graph.nodes[i].outputs[0].buffer);
    longest = std::max(longest, last - static_cast<int>(i));
  }
  CHECK(std::ranges::max(copies) >= 3);
  CHECK(longest < static_cast<int>(calls) / 3);
  CHECK(merge_equal(graph) == 0);
}

TEST_CASE("remat: marks of the user are respected", "[remat]") {
  const Tensor x = noise({64, 16}, 1);
  const Tensor w = requires_grad_(noise({16, 16}, 2)), v = requires_grad_(noise({16, 16}, 3));
  enum class Of { neither, saved, recomputed };
  const auto tanhs_of = [&](Of mark, Remat policy, Mode mode) {
    auto step = compile(
        [&] {
          zero_grad(w);
          zero_grad(v);
          const Tensor y = tanh(matmul(x, w));
          if (mark == Of::saved) remat::save(y);
          if (mark == Of::recomputed) remat::recompute(y);
          const Tensor loss = sum(matmul(y, v));
          backward(loss);
          return detach(loss);
        },
        {.mode = mode, .remat = policy});
    step();
    const std::string text = step.graph_text();
    int count = 0;
    for (std::size_t i = text.find("tanh("); i != std::string::npos; i = text.find("tanh(", i + 1))
      ++count;
    return count;
  };
  CHECK(tanhs_of(Of::neither, Remat::min_cut(), Mode::graph) == 1);
  CHECK(tanhs_of(Of::recomputed, Remat::min_cut(), Mode::graph) == 2);
  CHECK(tanhs_of(Of::recomputed, Remat::none(), Mode::graph) == 1);
  CHECK(tanhs_of(Of::saved, Remat::full(), Mode::graph) == 1);
}

// Dropout and marks inside of a checkpoint, between values of other layers.
TEST_CASE("remat: a checkpoint that runs again does not mark its values again", "[remat]") {
  const MakeWorld make = [] {
    const Tensor w = requires_grad_(noise({16, 16}, 2));
    World world;
    world.step = [=](const Tensors&) {
      zero_grad(w);
      Tensor h = noise({32, 16}, 1);
      for (int i = 0; i < 3; ++i) {
        const Tensor kept = checkpoint(
            [&w](const Tensor& start) {
              const Tensor inner = dropout(tanh(matmul(start, w)), 0.2);
              remat::recompute(inner);
              return exp(inner * 0.1);
            },
            h);
        remat::save(kept);
        h = kept + h;
      }
      const Tensor loss = sum(square(h));
      backward(loss);
      return Tensors{detach(loss)};
    };
    world.seen = [w] { return Tensors{grad(w)}; };
    return world;
  };
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    for (const Remat remat : {Remat::min_cut(), Remat::full()})
      CHECK(difference_from_eager(make, 2, mode, remat) == "");
  }
}

TEST_CASE("remat: what a checkpoint starts from is kept", "[remat]") {
  const Tensor x = noise({32, 16}, 1);
  const Tensor w = requires_grad_(noise({16, 16}, 2));
  Graph graph = traced([&] {
    zero_grad(w);
    const Tensor first = tanh(matmul(x, w));
    const Tensor y = checkpoint([&](const Tensor& h) { return exp(matmul(h, w)); }, first);
    const Tensor loss = sum(y);
    backward(loss);
    return detach(loss);
  });
  const RematReport report = applied(graph, Remat::full());
  const auto start = std::ranges::find(report.values, std::string("tanh"), &graph::RematValue::op);
  REQUIRE(start != report.values.end());
  CHECK(!start->recomputed);
  CHECK(std::string(start->obstacle) == "it is the input of a checkpoint");
}
