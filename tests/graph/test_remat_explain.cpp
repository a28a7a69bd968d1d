// What is said of rematerialization, and marks by name.
#include <algorithm>
#include <utility>

#include "brrr/graph/rematerialize.h"
#include "brrr/nn/sequential.h"
#include "brrr/nn/transformer.h"
#include "tests/harness/catch.h"
#include "tests/harness/remat_check.h"
#include "tests/harness/samples.h"

using namespace brrr;
using namespace brrr::test;
using graph::Graph;
using graph::RematReport;

// Weights that are large beside the activations, which alias their gradients.
TEST_CASE("remat: explain says which values are in the memory of gradients", "[remat]") {
  const Net net(6, 8, 64, 1);
  Graph graph = traced([&net] { return net(); });
  const RematReport report = applied(graph, Remat::full());
  const graph::Simulation& kept = report.baseline;
  REQUIRE(kept.in_gradients.size() == kept.live.size());
  CHECK(kept.most_in_gradients() > kept.peak_bytes);
  std::size_t peak = 0;
  for (std::size_t i = 0; i < kept.live.size(); ++i)
    peak = std::max(peak, kept.live[i] + kept.in_gradients[i]);
  std::size_t aliased = 0, in_arena = 0;
  for (const graph::RematValue& value : report.values) {
    const auto bytes = static_cast<std::size_t>(value.peak_bytes);
    if (value.memory == graph::ValueMemory::gradients) aliased += bytes;
    if (value.memory == graph::ValueMemory::arena) in_arena += bytes;
  }
  CHECK(aliased > 0);
  CHECK(in_arena <= kept.peak_bytes);
  CHECK(aliased + in_arena <= peak);
  const std::string text = to_string(report);
  CHECK_THAT(text, Catch::Contains("in the memory of gradients, which is there anyway: up to ") &&
                       Catch::Contains("; gradient memory; ") && Catch::Contains("+++"));
  Graph again = traced([&net] { return net(); });
  CHECK_THAT(error_of([&] { applied(again, Remat::budget(0.01)); }),
             Catch::Contains("bytes of activations are in the memory of gradients, which no policy "
                             "changes) it needs at least "));
}

// The gradients of packed parameters are made in their places in one buffer.
TEST_CASE("remat: the parts of a packed gradient are no activations", "[remat]") {
  nn::Sequential layers;
  for (int i = 0; i < 4; ++i) layers.add<nn::Linear>(32, 32);
  nn::Parameters parameters(layers);
  const Tensor x = noise({4, 32}, 1);
  Graph graph = traced([&] {
    parameters.zero_grad();
    const Tensor loss = sum(square(layers(x)));
    backward(loss);
    return detach(loss);
  });
  const RematReport report = applied(graph, Remat::full());
  CHECK(report.baseline.most_in_gradients() > 0);
  CHECK(report.baseline.most_in_gradients() <= 8 * 4 * 32 * sizeof(float));
  CHECK(report.baseline.in_gradients.back() == 0);
}

TEST_CASE("remat: the bytes of kept and recomputed values are those of the peak", "[remat]") {
  nn::Sequential blocks;
  for (int i = 0; i < 2; ++i) blocks.add<nn::TransformerBlock>(32, 2);
  const Tensor x = noise({4, 32, 32}, 1);
  const Graph graph = traced([&] {
    const Tensor loss = sum(square(blocks(x)));
    backward(loss);
    return detach(loss);
  });
  for (const bool fused : {false, true}) {
    for (const Remat policy : {Remat::min_cut(), Remat::budget(0.8), Remat::full()}) {
      Graph changed = graph;
      graph::RematOptions options{policy, "step", kOnCpu, {}};
      if (fused) options.fuse = [](Graph& each) { fuse(each); };
      const RematReport report = rematerialize(changed, options);
      std::size_t peak = 0, counted = 0;
      for (std::size_t i = 0; i < report.baseline.live.size(); ++i)
        peak = std::max(peak, report.baseline.live[i] + report.baseline.in_gradients[i]);
      for (const graph::RematValue& value : report.values) {
        INFO(value.value << ": " << value.reason);
        CHECK(!value.reason.empty());
        CHECK(value.peak_bytes <= value.bytes);
        if (value.memory == graph::ValueMemory::gradients)
          CHECK(value.reason.find("saves") == std::string::npos);
        if (value.memory == graph::ValueMemory::registers && value.recomputed) {
          CHECK(value.peak_bytes == 0);
          CHECK(value.reason == "saves no memory");
        }
        counted += static_cast<std::size_t>(value.peak_bytes);
      }
      CHECK(counted <= peak);
      CHECK(counted > 0);
      if (!fused) continue;
      CHECK(report.unfused_bytes > 0);
      const bool rises = report.chosen.peak_bytes > report.unfused_bytes;
      CHECK(rises ==
            (to_string(report).find("fusion raises planned memory by ") != std::string::npos));
    }
  }
}

TEST_CASE("remat: fusion that raises the planned memory is said", "[remat]") {
  RematReport report;
  report.chosen.peak_bytes = 12'582'912;
  report.unfused_bytes = 11'010'048;
  CHECK_THAT(to_string(report), Catch::Contains("fusion raises planned memory by 1572864 bytes: "
                                                "11010048 call by call"));
}

TEST_CASE("remat: explain says what is kept, and why", "[remat]") {
  const Net net(6, 32, 16, 1);
  auto step = compile([&net] { return net(); }, {.remat = Remat::full()});
  step();
  const std::string text = step.explain();
  CHECK_THAT(text, Catch::Contains("  rematerialization, full: ") &&
                       Catch::Contains(" calls run again\n    arena planned ") &&
                       Catch::Contains("\n      again ") && Catch::Contains("\n      kept  ") &&
                       Catch::Contains(" = tanh (at ") &&
                       Catch::Contains("live bytes by call, with every value kept: ") &&
                       Catch::Contains("###"));
  const LiveBytes live = step.live_bytes();
  const CompiledEntry entry = step.report().entries.at(0);
  CHECK(live.planned.size() > live.every_value_kept.size());  // calls that run again
  CHECK(std::ranges::max(live.planned) < std::ranges::max(live.every_value_kept));
  CHECK(std::ranges::max(live.planned) <= entry.arena_bytes);
  CHECK(std::ranges::max(live.every_value_kept) <= entry.arena_bytes_without_remat);
  auto kept = compile([&net] { return net(); }, {.name = "train"});
  kept();
  CHECK_THAT(error_of([&] { kept.live_bytes(); }),
             Catch::Contains("[train] live_bytes expected a step compiled with a policy of "
                             "rematerialization, got none"));
}

namespace {

// A stack of two transformer blocks with marks in its step.
class MarkedSteps {
 public:
  MarkedSteps() {
    for (int i = 0; i < 2; ++i) blocks_.add<nn::TransformerBlock>(32, 2);
  }
  RematReport operator()(Remat policy, const std::function<void()>& marks) {
    Graph graph = traced([&] {
      const Tensor loss = sum(square(blocks_(x_)));
      marks();
      backward(loss);
      return detach(loss);
    });
    return applied(graph, policy);
  }

 private:
  nn::Sequential blocks_;
  const Tensor x_ = noise({4, 32, 32}, 1);
};

// Of a module or an op, the values that are computed again.
int recomputed(const RematReport& report, const std::string& module, const std::string& op) {
  return static_cast<int>(std::ranges::count_if(report.values, [&](const graph::RematValue& value) {
    return value.recomputed && value.module.starts_with(module) &&
           value.op.find(op) != value.op.npos;
  }));
}

}  // namespace

TEST_CASE("remat: modules and ops are marked by name", "[remat]") {
  MarkedSteps report_of;
  const std::string first = "sequential.0", norm = first + ".norm1", other = "sequential.1.norm1";
  const RematReport full = report_of(Remat::full(), [] {}),
                    saved = report_of(Remat::full(), [&] { remat::save(first); });
  CHECK(recomputed(full, first, "") > 0);
  CHECK(recomputed(saved, first, "") < recomputed(full, first, ""));
  const RematReport unmarked = report_of(Remat::min_cut(), [] {});
  const RematReport marked = report_of(Remat::min_cut(), [&] { remat::recompute(norm); });
  CHECK(recomputed(marked, norm, "") > recomputed(unmarked, norm, ""));
  CHECK(recomputed(marked, other, "") == recomputed(unmarked, other, ""));
  CHECK_THAT(to_string(marked), Catch::Contains("    recompute \"sequential.0.norm1\": ") &&
                                    Catch::Contains(" values, the backward pass reads ") &&
                                    Catch::Contains("; marked\n"));
  CHECK(recomputed(unmarked, "", "div") == 0);
  CHECK(recomputed(report_of(Remat::min_cut(), [] { remat::recompute("div"); }), "", "div") == 2);
}

TEST_CASE("remat: names that mark nothing, or twice", "[remat]") {
  MarkedSteps report_of;
  CHECK_THAT(error_of([&] { report_of(Remat::full(), [] { remat::save("sequential.0.norm"); }); }),
             Catch::StartsWith("[step] save expected the name of a module (sequential.0, ") &&
                 Catch::Contains(", sequential.0.norm1, ") &&
                 Catch::Contains(", sequential.1.norm2) or an op (add, ") &&
                 Catch::Contains(", matmul, ") &&
                 Catch::Contains(", where) of the forward pass, got \"sequential.0.norm\" (at "));
  CHECK_THAT(error_of([&] {
               report_of(Remat::full(), [] {
                 remat::save("div");
                 remat::recompute("div");
               });
             }),
             Catch::Contains("recompute expected no value that save and recompute both name, "
                             "such as %"));
  CHECK_THAT(error_of([&] { report_of(Remat::full(), [] { remat::save(""); }); }),
             Catch::Contains("got \"\""));
}

TEST_CASE("remat: a mark without effect is said", "[remat]") {
  const Tensor w = requires_grad_(noise({8, 8}, 1)), x = noise({8, 8}, 2), unread = noise({4}, 3);
  Graph graph = traced([&] {
    zero_grad(w);
    const Tensor aside = exp(unread), loss = sum(tanh(matmul(x, w))) + sum(aside);
    remat::save(aside);
    backward(loss);
    return detach(loss);
  });
  CHECK_THAT(to_string(applied(graph, Remat::min_cut())),
             Catch::Contains("    save of %") &&
                 Catch::Contains(": the backward pass does not read it (at "));
}

TEST_CASE("remat: a mark that cannot be followed says why", "[remat]") {
  const Tensor x = noise({8}, 1);
  Tensor state = zeros({8});
  const Tensor w = requires_grad_(noise({8}, 2));
  const auto error_with = [&](const std::function<Tensor(const Tensor&)>& inner) {
    auto step = compile(
        [&] {
          zero_grad(w);
          const Tensor loss = inner(w);
          backward(sum(loss));
          return detach(loss);
        },
        {.remat = Remat::full(), .name = "train"});
    return error_of([&] { step(); });
  };
  CHECK_THAT(
      error_with([&](const Tensor& of) {
        const Tensor y = exp(of * x);
        remat::recompute(y);
        return y;
      }),
      Catch::Contains("[train] recompute expected a value that the backward pass can compute "
                      "again, got ") &&
          Catch::Contains("it is a result of the step, or is written in place (at "));
  CHECK_THAT(error_with([&](const Tensor& of) {
               const Tensor factor = state * 2, y = of * factor;
               remat::recompute(factor);
               fill_(state, 1);
               return y * y;
             }),
             Catch::Contains("what it is computed from is written to before the backward pass"));
  CHECK_THAT(
      error_with([&](const Tensor& of) {
        remat::recompute(x);
        return of * x;
      }),
      Catch::Contains("[remat::recompute] cannot be part of the compiled function \"train\": "
                      "expected tensors that the step makes, got f32[8]"));
  CHECK_THAT(
      error_with([&](const Tensor& of) {
        const Tensor y = of * x, z = exp(y);
        remat::save(z, x);
        return z;
      }),
      Catch::Contains("[remat::save] cannot be part of the compiled function \"train\": expected "
                      "tensors that the step makes (the latest are ") &&
          Catch::Contains(" f32[8] = exp (at ") && Catch::Contains(" f32[8] = mul (at ") &&
          Catch::Contains(", got f32[8]"));
  CHECK_THAT(error_of([] { remat::save(Tensor()); }),
             Catch::Contains("[remat::save] expected tensors, got an undefined one"));
  remat::save(x);  // outside of a compiled function
}
