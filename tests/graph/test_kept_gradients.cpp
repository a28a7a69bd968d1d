// Gradients between calls of compiled steps: read, kept by the user, shared by several steps.
#include <memory>
#include <thread>

#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/nn/parameters.h"
#include "tests/harness/compile_stories.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: a step that reads a gradient reads the current one", "[compile]") {
  check_stories({
      {"an update alone",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         optim::Optimizer optimizer({w}, optim::sgd(0.1));
         auto update = compile([&] { optimizer.step(); }, in(mode));
         for (int i = 0; i < 6; ++i) {
           optimizer.zero_grad();
           backward(sum(square(w) * input(i)));
           update();
           lines.push_back(bits_of(w));
         }
         optimizer.zero_grad();
         lines.push_back(error_of(update).substr(0, 40));
       }},
      {"an update after a backward of several shapes",
       [](Mode mode, Lines& lines) {
         nn::MLP model({3, 4, 2});
         nn::Parameters parameters(model);
         optim::Optimizer optimizer(parameters, optim::sgd(0.1, {.momentum = 0.9}));
         auto gradients = compile(
             [&](const Tensor& x) {
               optimizer.zero_grad();
               backward(sum(square(model(x))));
             },
             in(mode));
         auto update = compile([&] { optimizer.step(); }, in(mode));
         for (int i = 0; i < 6; ++i) {
           gradients(noise({i % 3 == 2 ? 1 : 2, 3}, 40 + i));
           update();
           lines.push_back(bits_of(model.layers[0].weight));
         }
       }},
      {"the update first",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         optim::Optimizer optimizer({w}, optim::sgd(0.1));
         backward(sum(w));
         auto step = compile(
             [&](const Tensor& x) {
               optimizer.step();
               optimizer.zero_grad();
               backward(sum(square(w) * x));
             },
             in(mode));
         for (int i = 0; i < 6; ++i) {
           step(input(i));
           lines.push_back(bits_of(w) + bits_of(grad(w)));
         }
         if (mode == Mode::graph) CHECK(step.report().entries.size() == 1);
       }},
  });
}

TEST_CASE("compile: a step whose gradients come from elsewhere reads the current ones",
          "[compile]") {
  check_stories({
      {"it is returned",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = compile([&] { return std::vector{grad(w), w * 2}; }, in(mode));
         for (int i = 0; i < 5; ++i) {
           if (i != 2) backward(sum(square(w) * input(i)));
           if (i == 2) set_grad(w, input(7));
           if (i == 3) zero_grad(w);
           lines.push_back(bits_of(step()[0]));
         }
       }},
      {"a leaf that gets one later",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1), v = leaf(2);
         optim::Optimizer optimizer({w, v}, optim::sgd(0.1));
         auto update = compile([&] { optimizer.step(); }, in(mode));
         for (int i = 0; i < 6; ++i) {
           optimizer.zero_grad();
           backward(sum(square(i % 2 ? w * v : w) * input(i)));
           lines.push_back(error_of(update).substr(0, 40) + bits_of(w) + bits_of(v));
         }
       }},
      {"two micro steps in any order, then an update",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         optim::Optimizer optimizer({w}, optim::sgd(0.1));
         auto a = compile([&](const Tensor& x) { backward(sum(square(w) * x)); }, in(mode));
         auto b = compile([&](const Tensor& x) { backward(sum(exp(w) * x)); }, in(mode));
         auto update = compile([&] { optimizer.step(); }, in(mode));
         for (int i = 0; i < 8; ++i) {
           optimizer.zero_grad();
           i % 2 ? a(input(i)) : b(input(i));
           if (i % 3 == 0) backward(sum(w));
           i % 2 ? b(input(i)) : a(input(i));
           update();
           lines.push_back(bits_of(w) + bits_of(grad(w)));
         }
       }},
  });
}

TEST_CASE("compile: replays restore the state that the trace ended with", "[compile]") {
  const auto forgets = [](const char* name, auto forget) {
    return Named{name, [forget](Mode mode, Lines& lines) {
                   const Tensor w = leaf(1), v = leaf(2);
                   const Tensor other = input(9);
                   auto step = compile(
                       [&](const Tensor& x) {
                         forget(w, v, other);
                         return x * 2;
                       },
                       in(mode));
                   step(input(0));
                   for (int i = 0; i < 4; ++i) {
                     backward(sum(square(w) * v));
                     lines.push_back(bits_of(step(input(i))) + bits_of(grad(w)) + bits_of(grad(v)));
                   }
                 }};
  };
  check_stories({
      forgets("there was none to forget",
              [](const Tensor& w, const Tensor&, const Tensor&) { zero_grad(w); }),
      forgets("none of a leaf that the step does not use",
              [](const Tensor& w, const Tensor& v, const Tensor&) {
                zero_grad(w), zero_grad(v);
                backward(sum(exp(w)));
              }),
      forgets("the same was given already",
              [](const Tensor& w, const Tensor&, const Tensor& other) { set_grad(w, other); }),
      {"a group had none",
       [](Mode mode, Lines& lines) {
         const Tensor a = leaf(1), b = leaf(2);
         GradientGroup group({a, b});
         auto step = compile([&] { group.clear(); }, in(mode));
         step();
         for (int i = 0; i < 3; ++i) {
           backward(sum(a * b));
           step();
           lines.push_back(bits_of(grad(a)) + bits_of(group.flat()));
         }
       }},
  });
}

namespace {

// The gradient of a step is kept, something happens, and the step runs again.
template <class Between>
Named keeps(const char* name, Between between) {
  return Named{name, [between](Mode mode, Lines& lines) {
                 const Tensor w = leaf(1);
                 auto step = compile(
                     [w](const Tensor& x) {
                       zero_grad(w);
                       backward(sum(square(w) * x));
                     },
                     in(mode));
                 step(input(0)), step(noise({2, 3}, 9));
                 for (int i = 0; i < 5; ++i) {
                   step(input(i));
                   const Tensor kept = grad(w);
                   between(w, step, i);
                   step(input(50 + i));
                   lines.push_back(bits_of(kept));
                 }
               }};
}

// A step that adds to a leaf's gradient.
auto adds(const Tensor& w, Mode mode) {
  return compile([w](const Tensor& x) { backward(sum(square(w) * x)); }, in(mode));
}

}  // namespace

TEST_CASE("compile: a gradient tensor that the user keeps keeps its values", "[compile]") {
  check_stories({
      keeps("after the leaf forgot it", [](auto& w, auto&, int) { zero_grad(w); }),
      keeps("while other shapes are stepped",
            [](auto&, auto& step, int i) {
              step(noise({2, 3}, 60 + i));
            }),
      keeps("after an eager backward",
            [](auto& w, auto&, int) {
              zero_grad(w);
              backward(sum(w));
            }),
      {"the flat one, and a leaf's part",
       [&](Mode mode, Lines& lines) {
         nn::MLP model({3, 4, 2});
         nn::Parameters parameters(model);
         auto step = compile(
             [&](const Tensor& x) {
               parameters.zero_grad();
               backward(sum(square(model(x))));
             },
             in(mode));
         for (int i = 0; i < 5; ++i) {
           step(noise({2, 3}, 10 + i));
           const Tensor flat = parameters.gradients()[0], part = grad(model.layers[1].bias);
           if (i % 2) parameters.zero_grad();
           step(noise({2, 3}, 30 + i));
           lines.push_back(bits_of(flat) + bits_of(part));
         }
       }},
      {"a view of one, where another entry adds to it",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = adds(w, mode);
         step(input(0)), step(input(1));
         zero_grad(w);
         for (int i = 0; i < 4; ++i) {
           step(input(i));
           const Tensor kept = slice(grad(w), 0, 0, 2);
           zero_grad(w);
           step(input(50 + i));
           lines.push_back(bits_of(kept));
           zero_grad(w);
         }
       }},
  });
}

TEST_CASE("compile: a gradient that the step adds to, with other owners, keeps its values",
          "[compile]") {
  check_stories({
      {"one that is added to",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = adds(w, mode);
         std::vector<Tensor> kept;
         for (int i = 0; i < 6; ++i) {
           step(input(i));
           kept.push_back(grad(w));
         }
         for (const Tensor& each : kept) lines.push_back(bits_of(each));
       }},
      {"as a result",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = compile(
             [&](const Tensor& x) {
               backward(sum(square(w) * x));
               return grad(w);
             },
             in(mode));
         std::vector<Tensor> kept;
         for (int i = 0; i < 6; ++i) kept.push_back(step(input(i)));
         for (const Tensor& each : kept) lines.push_back(bits_of(each));
       }},
      {"two leaves have it",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1), v = leaf(2);
         auto step = compile([&](const Tensor& x) { backward(sum(square(w) * v * x)); }, in(mode));
         step(input(0));
         set_grad(v, grad(w));
         for (int i = 0; i < 4; ++i) {
           step(input(i));
           lines.push_back(bits_of(grad(w)) + bits_of(grad(v)));
         }
       }},
      {"a tape saved it",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1), v = leaf(2);
         auto step = adds(w, mode);
         step(input(0));
         for (int i = 0; i < 4; ++i) {
           const Tensor y = sum(v * grad(w));
           step(input(i));
           zero_grad(v);
           lines.push_back(error_of([&] { backward(y); }) + bits_of(grad(v)));
         }
       }},
  });
}

TEST_CASE("compile: steps that share gradients do not disturb each other", "[compile]") {
  for (const bool flat : {false, true}) {
    nn::MLP model({3, 4, 2});
    std::unique_ptr<nn::Parameters> parameters;
    std::vector<Tensor> leaves;
    for (auto& [name, each] : model.named_parameters()) leaves.push_back(each);
    if (flat) parameters = std::make_unique<nn::Parameters>(model);
    auto optimizer = flat ? std::make_unique<optim::Optimizer>(*parameters, optim::sgd(0.01))
                          : std::make_unique<optim::Optimizer>(leaves, optim::sgd(0.01));
    auto makes = compile([&](const Tensor& x) {
      optimizer->zero_grad();
      backward(mean(square(model(x))));
    });
    auto adds = compile([&](const Tensor& x) { backward(mean(abs(model(x)))); });
    for (int i = 0; i < 20; ++i) {
      makes(noise({2, 3}, 10 + i));
      adds(noise({2, 3}, 40 + i));
      optimizer->step();
    }
    for (const CompileReport& report : {makes.report(), adds.report()}) {
      REQUIRE(report.entries.size() == 1);
      CHECK(report.entries[0].calls == 20);
      CHECK(report.entries[0].reason == "first call");
      CHECK(report.eager_calls == 0);
    }
  }
}

TEST_CASE("compile: a leaf created in the step does not affect later calls", "[compile]") {
  auto step = compile([](const Tensor& x) {
    const Tensor t = requires_grad_(detach(x));
    backward(sum(square(t)));
    return grad(t);
  });
  for (int i = 0; i < 12; ++i) CHECK(bits_of(step(input(i))) == bits_of(input(i) * 2));
  CHECK(step.report().entries.size() == 1);
  CHECK(step.report().eager_calls == 0);
}

TEST_CASE("compile: the reported gradient memory does not grow", "[compile]") {
  const Tensor w = leaf(1);
  auto step = compile([&](const Tensor& x) {
    zero_grad(w);
    backward(sum(square(w) * x));
  });
  std::vector<Tensor> kept;
  for (int i = 0; i < 40; ++i) {
    step(input(i));
    kept.push_back(grad(w));
  }
  CHECK(step.report().entries[0].reason ==
        "first call; gradients in new memory 39 times, since the caller still had references to "
        "the last ones");
}

TEST_CASE("compile: threads that add to one leaf lose nothing", "[compile]") {
  const Tensor w = requires_grad_(ones({512}));
  constexpr int kCalls = 400;
  const auto work = [&](double factor) {
    auto step = compile([&](const Tensor& x) { backward(sum(w * x)); });
    const Tensor x = full({512}, factor);
    for (int i = 0; i < kCalls; ++i) step(x);
  };
  backward(sum(w));
  std::thread other([&] { work(2); });
  work(1);
  other.join();
  CHECK(item(sum(grad(w))) == 512.0 * (1 + 3 * kCalls));
}
