// How often a step is traced again: never for gradients in other memory of the same layout.
#include <utility>

#include "brrr/nn/mlp.h"
#include "brrr/nn/parameters.h"
#include "tests/harness/captured_stderr.h"
#include "tests/harness/compile_stories.h"
#include "tests/harness/errors_expected.h"
#include "tests/harness/samples.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// Functions of leaves that each accumulate into some of them; letters of a program call one, others
// do what is between.
//
//   a b c: add to the gradients of all leaves; p q: of the first or the second alone
//   d: begins without gradients; z: zero_grad, n: of the first leaf alone; e: an eager backward
//   h: keeps a gradient for the next calls; g: replaces a gradient by a new tensor
struct Micro {
  int traces = 0;
  Tensor w = leaf(1), v = leaf(2);
  Tensor kept;
  Lines lines;

  void run(const std::string& program, Mode mode) {
    CompileOptions options = in(mode);
    options.fallback = OnFallback::refuse;
    const auto adds = [&](double factor, bool of_w, bool of_v, bool zero) {
      return compile(
          [=, this](const Tensor& x) {
            ++traces;
            if (zero) zero_grad(w), zero_grad(v);
            Tensor y = x;
            if (of_w) y = y * w;
            if (of_v) y = y + exp(v);
            const Tensor loss = sum(square(y) * factor);
            backward(loss);
            return loss;
          },
          options);
    };
    auto a = adds(1, true, true, false), b = adds(2, true, true, false),
         c = adds(3, true, true, false), d = adds(4, true, true, true),
         p = adds(5, true, false, false), q = adds(6, false, true, false);
    int call = 0;
    for (const char letter : program) {
      const Tensor x = input(call++);
      switch (letter) {
        case 'a': note(a(x)); break;
        case 'b': note(b(x)); break;
        case 'c': note(c(x)); break;
        case 'd': note(d(x)); break;
        case 'p': note(p(x)); break;
        case 'q': note(q(x)); break;
        case 'z': zero_grad(w), zero_grad(v); break;
        case 'n': zero_grad(w); break;
        case 'e': backward(sum(square(w * x + v))); break;
        case 'h': kept = grad(w); break;
        case 'g': set_grad(w, noise({3}, 7)); break;
      }
      if (kept.defined()) lines.push_back(bits_of(kept));
    }
  }
  void note(const Tensor& loss) {
    lines.push_back(bits_of(loss) + " " + bits_of(grad(w)) + " " + bits_of(grad(v)));
  }
};

std::string times(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE(
    "compile: steps that accumulate into the same leaves are traced once a state of gradients",
    "[compile]") {
  // `most`: entries, one for each step and each set of leaves that have a gradient before it.
  const std::vector<std::pair<std::string, int>> programs = {
      {"ab", 3},     {"zab", 2},      {"zabzbb", 3}, {"zabczcabzbca", 6}, {"da", 2},
      {"dabdba", 3}, {"zeab", 2},     {"zeazb", 2},  {"ah", 2},           {"zahb", 2},
      {"hahbz", 4},  {"zagb", 2},     {"gazeb", 3},  {"zpqa", 3},         {"zqpazpqb", 6},
      {"zanb", 2},   {"zabnabneq", 5}};
  for (const auto& [program, most] : programs) {
    INFO(program);
    Micro eager, graph;
    eager.run(times(program, 8), Mode::eager);
    const std::string text = stderr_of([&] { graph.run(times(program, 8), Mode::graph); });
    CHECK(text == "");
    CHECK(graph.lines == eager.lines);
    CHECK(graph.traces <= most);
  }
}

TEST_CASE("compile: random sequences of steps that accumulate trace each state once", "[compile]") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    std::string program;
    const std::string letters = "aabbccddpqzznegh";
    for (int i = 0; i < 120; ++i)
      program += letters[static_cast<std::size_t>(random.below(std::ssize(letters)))];
    Micro eager, graph;
    eager.run(program, Mode::eager);
    graph.run(program, Mode::graph);
    CHECK(graph.lines == eager.lines);
    CHECK(graph.traces <= 4 * 5 + 1);  // of two leaves each may have a gradient; d reads none
  }
}

TEST_CASE("compile: two functions share the gradients of a model that is not packed", "[compile]") {
  const auto run = [](Mode mode, int& traces) {
    manual_seed(4);
    nn::MLP model({3, 4, 2});
    std::vector<Tensor> leaves;
    for (const auto& [name, leaf] : model.named_parameters()) leaves.push_back(leaf);
    const auto adds = [&](double factor) {
      return compile(
          [&, factor](const Tensor& x) {
            ++traces;
            const Tensor loss = sum(square(model(x))) * factor;
            backward(loss);
            return loss;
          },
          {.mode = mode, .fallback = OnFallback::refuse});
    };
    auto a = adds(1), b = adds(2);
    Lines lines;
    for (int i = 0; i < 10; ++i) {
      const Tensor x = noise({2, 3}, static_cast<std::uint64_t>(i + 1));
      i % 3 == 1 ? b(x) : a(x);
      i % 3 == 2 ? a(x) : b(x);
      for (const Tensor& each : leaves) {
        lines.push_back(bits_of(grad(each)));
        if (i % 2) zero_grad(each);
      }
    }
    return lines;
  };
  int eager_calls = 0;
  const Lines expected = run(Mode::eager, eager_calls);
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    int traces = 0;
    CHECK(run(mode, traces) == expected);
    CHECK(traces <= 4);
  }
}

TEST_CASE("compile: a step that returns a gradient returns the current one", "[compile]") {
  const Tensor w = leaf(1);
  int traces = 0;
  auto step = compile(
      [&] {
        ++traces;
        return std::vector{grad(w), grad(w) * 2};
      },
      {.fallback = OnFallback::refuse});
  for (int i = 0; i < 6; ++i) {
    zero_grad(w);
    backward(sum(square(w) * input(i)));
    const std::vector<Tensor> results = step();
    CHECK(bits_of(results[0]) == bits_of(grad(w)));
    CHECK(bits_of(results[1]) == bits_of(grad(w) * 2));
  }
  CHECK(traces == 1);
}

TEST_CASE("compile: a leaf that a step makes of a captured tensor is the step's own", "[compile]") {
  // As the inputs of a model whose gradient by its inputs is fitted.
  for (const bool detached : {false, true}) {
    const auto run = [&](Mode mode, int& traces) {
      const Tensor inputs = noise({5, 3}, 1), w = leaf(1);
      auto step = compile(
          [&] {
            ++traces;
            zero_grad(w);
            const Tensor x = requires_grad_(detach(inputs));
            const Tensor slope = grad(sum(exp(x * w)), x, {.create_graph = true});
            const Tensor loss = sum(square(slope));
            backward(loss);
            return detached ? detach(loss) : loss;
          },
          {.mode = mode, .fallback = OnFallback::refuse});
      Lines lines;
      for (int i = 0; i < 10; ++i) {
        lines.push_back(bits_of(step()) + bits_of(grad(w)));
        CHECK_FALSE(grad(inputs).defined());
      }
      return lines;
    };
    int calls = 0;
    const Lines expected = run(Mode::eager, calls);
    for (const Mode mode : {Mode::graph, Mode::fused}) {
      int traces = 0;
      CHECK(run(mode, traces) == expected);
      CHECK(traces == 1);
    }
  }
}

TEST_CASE("compile: a step that makes leaves for its caller is refused", "[compile]") {
  const Tensor inputs = noise({5, 3}, 1);
  Tensor x;  // assigned in the step, so each trace has a leaf of its own
  auto step = compile(
      [&] {
        x = requires_grad_(detach(inputs));
        const Tensor loss = sum(square(x));
        backward(loss);
        return loss;
      },
      {.fallback = OnFallback::refuse});
  const std::string error = error_of([&] {
    for (int i = 0; i < 20; ++i) step();
  });
  INFO(error);
  CHECK(error.starts_with("[step] expected a step that can be replayed, got one to trace again"));
  CHECK(error.ends_with(" has a gradient, and had none"));
}

namespace {

// A step that reads a gradient whose layout changes from call to call.
struct ChangingLayout {
  Tensor w = leaf(1, {3, 4});
  int traces = 0;
  void call(auto& step, int i) {
    set_grad(w, i % 2 ? transpose(noise({4, 3}, 2), 0, 1) : noise({3, 4}, 2));
    CHECK(bits_of(step()) == bits_of(grad(w) * 2));
  }
  auto compiled(OnFallback fallback) {
    return compile(
        [this] {
          ++traces;
          return grad(w) * 2;
        },
        {.name = "reads", .fallback = fallback});
  }
};

}  // namespace

TEST_CASE("compile: a step that is traced again says so at the third time, once", "[compile]") {
  ChangingLayout world;
  auto step = world.compiled(OnFallback::warn);
  const auto calls = [&](int from, int to) {
    return stderr_of([&] {
      for (int i = from; i < to; ++i) world.call(step, i);
    });
  };
  CHECK(calls(0, 3) == "");
  CHECK(calls(3, 4) ==
        "[reads] is traced again for the third time: the gradient of f32[3, 4] is another tensor, "
        "f32[3, 4] with strides [1, 3], and was f32[3, 4] with strides [4, 1] (reported once; "
        "report() counts)\n");
  CHECK(calls(4, 9) == "");
  CHECK(world.traces == 9);
  CHECK_THAT(step.report().entries[0].reason, Catch::Contains("traced again 8 times"));
  step.clear();
  CHECK_THAT(calls(9, 13), Catch::Contains("traced again for the third time"));
  ChangingLayout ignored;
  auto silent = ignored.compiled(OnFallback::ignore);
  CHECK(stderr_of([&] {
          for (int i = 0; i < 8; ++i) ignored.call(silent, i);
        }) == "");
}

TEST_CASE("compile: a step that is traced again is refused where fallbacks are", "[compile]") {
  ChangingLayout world;
  auto step = world.compiled(OnFallback::refuse);
  for (int i = 0; i < 3; ++i) world.call(step, i);
  for (int i = 3; i < 5; ++i) {
    CHECK_THAT(error_of([&] {
                 set_grad(world.w, transpose(noise({4, 3}, 2), 0, 1));
                 step();
               }),
               Catch::StartsWith("[reads] expected a step that can be replayed, got one to trace "
                                 "again for time " +
                                 std::to_string(i) + ": the gradient of f32[3, 4] is another"));
  }
  CHECK(world.traces == 3);
  world.call(step, 4);  // the layout of the last trace
  CHECK(world.traces == 3);
}

TEST_CASE("compile: parameters that move again and again are said", "[compile]") {
  nn::MLP model({3, 4, 2});
  auto step = compile([&](const Tensor& x) { return model(x); }, {.name = "moves"});
  const Tensor x = noise({2, 3}, 1);
  const std::string text = stderr_of([&] {
    for (int i = 0; i < 5; ++i) {
      step(x);
      model.to(f64);
      model.to(f32);
    }
  });
  CHECK_THAT(text, Catch::StartsWith("[moves] is traced again for the third time: ") &&
                       Catch::Contains("mlp.layers.0.weight f32[3, 4]") &&
                       Catch::Contains(" was packed, or moved to other memory"));
}
