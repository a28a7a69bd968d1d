// Gradients between calls of compiled steps: looked at, kept, given, moved to other tensors, shared
// by several steps. Each story is told eagerly and compiled, and must read the same.
#include <functional>
#include <thread>

#include "autograd/autograd.h"
#include "nn/mlp.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizers.h"
#include "nn/parameters.h"
#include "tests/catch.h"
#include "tests/compile_check.h"
#include "tests/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

namespace {

using Lines = std::vector<std::string>;
using Story = std::function<void(Mode mode, Lines& lines)>;

struct Named {
  const char* name;
  Story tell;
};

void check_stories(const std::vector<Named>& stories) {
  for (const auto& [name, tell] : stories) {
    INFO(name);
    Lines eager, graph;
    manual_seed(3);
    tell(Mode::eager, eager);
    manual_seed(3);
    tell(Mode::graph, graph);
    CHECK(eager.size() > 1);
    CHECK(graph == eager);
  }
}

Tensor leaf(std::uint64_t seed, const Dims& shape = {3}) {
  return requires_grad_(noise(shape, seed));
}
Tensor input(int call) { return noise({3}, static_cast<std::uint64_t>(1000 + call)); }

CompileOptions in(Mode mode) { return {.mode = mode, .frozen_rate = OnFrozenRate::ignore}; }

}  // namespace

TEST_CASE("compile: a gradient that a step looks at is the one that is there", "[compile]") {
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

TEST_CASE("compile: what was so when a step was traced is made so by replays", "[compile]") {
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

TEST_CASE("compile: a gradient that the step lets out and then adds to", "[compile]") {
  const auto adds = [](const char* name, auto let_out) {
    return Named{name, [let_out](Mode mode, Lines& lines) {
                   const Tensor w = leaf(1), v = leaf(2);
                   backward(sum(w)), backward(sum(square(v)));
                   auto step = compile(
                       [&](const Tensor& x) {
                         const std::vector<Tensor> out = let_out(w, v);
                         backward(sum(w * x));
                         return out;
                       },
                       in(mode));
                   std::vector<Tensor> kept;
                   for (int i = 0; i < 5; ++i) {
                     for (const Tensor& each : step(input(i))) kept.push_back(each);
                     lines.push_back(bits_of(grad(w)) + bits_of(grad(v)));
                   }
                   for (const Tensor& each : kept) lines.push_back(bits_of(each));
                 }};
  };
  check_stories({
      adds("as a result", [](auto& w, auto&) { return std::vector{grad(w)}; }),
      adds("a part of it", [](auto& w, auto&) { return std::vector{slice(grad(w), 0, 0, 2)}; }),
      adds("to another leaf",
           [](auto& w, auto& v) {
             set_grad(v, grad(w));
             return std::vector<Tensor>{};
           }),
      adds("two leaves swap theirs",
           [](auto& w, auto& v) {
             const Tensor of_w = grad(w), of_v = grad(v);
             set_grad(w, of_v), set_grad(v, of_w);
             return std::vector<Tensor>{};
           }),
  });
}

TEST_CASE("compile: gradients that share memory by other handles are told apart", "[compile]") {
  const auto shared = [](const char* name, auto share) {
    return Named{name, [share](Mode mode, Lines& lines) {
                   const Tensor w = leaf(1), v = leaf(2);
                   auto makes = compile(
                       [&](const Tensor& x) {
                         zero_grad(v);
                         backward(sum(square(v) * x));
                         return grad(v);
                       },
                       in(mode));
                   auto adds = compile([&](const Tensor& x) { backward(sum(w * x)); }, in(mode));
                   for (int i = 0; i < 4; ++i) {
                     const Tensor result = makes(input(i));
                     const Tensor kept = grad(v);
                     share(w, v, result);
                     adds(input(20 + i));
                     lines.push_back(bits_of(grad(w)) + bits_of(grad(v)) + bits_of(kept));
                   }
                 }};
  };
  check_stories({
      shared("another handle", [](auto& w, auto& v, auto&) { set_grad(w, detach(grad(v))); }),
      shared("another handle, and the leaf forgets it",
             [](auto& w, auto& v, auto&) {
               set_grad(w, detach(grad(v)));
               zero_grad(v);
             }),
      shared("a result", [](auto& w, auto&, auto& result) { set_grad(w, result); }),
      {"a group that is gone",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1), v = leaf(2);
         auto step = compile([&](const Tensor& x) { backward(sum(square(w * v) * x)); }, in(mode));
         auto both = std::make_unique<GradientGroup>(std::vector{w, v});
         for (int i = 0; i < 3; ++i) step(input(i));
         const Tensor kept = both->flat();
         both.reset();
         const GradientGroup one({v});
         for (int i = 0; i < 3; ++i) {
           step(input(i));
           lines.push_back(bits_of(kept) + bits_of(grad(w)) + bits_of(grad(v)));
         }
       }},
  });
}

TEST_CASE("compile: who keeps a gradient keeps its values", "[compile]") {
  const auto makes = [](const Tensor& w, Mode mode) {
    return compile(
        [w](const Tensor& x) {
          zero_grad(w);
          backward(sum(square(w) * x));
        },
        in(mode));
  };
  const auto adds = [](const Tensor& w, Mode mode) {
    return compile([w](const Tensor& x) { backward(sum(square(w) * x)); }, in(mode));
  };
  check_stories({
      {"after the leaf forgot it",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = makes(w, mode);
         for (int i = 0; i < 5; ++i) {
           step(input(i));
           const Tensor kept = grad(w);
           zero_grad(w);
           step(input(50 + i));
           lines.push_back(bits_of(kept));
         }
       }},
      {"while other shapes are stepped",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = makes(w, mode);
         step(input(0)), step(noise({2, 3}, 9));
         for (int i = 0; i < 5; ++i) {
           step(input(i));
           const Tensor kept = grad(w);
           step(noise({2, 3}, 60 + i));
           step(input(80 + i));
           lines.push_back(bits_of(kept));
         }
       }},
      {"after an eager backward",
       [&](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = makes(w, mode);
         for (int i = 0; i < 5; ++i) {
           step(input(i));
           const Tensor kept = grad(w);
           zero_grad(w);
           backward(sum(w));
           step(input(50 + i));
           lines.push_back(bits_of(kept));
         }
       }},
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

TEST_CASE("compile: a leaf's gradient may be any tensor", "[compile]") {
  check_stories({
      {"an argument",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = compile([&](const Tensor& x) { set_grad(w, x); }, in(mode));
         for (int i = 0; i < 4; ++i) {
           step(input(i));
           lines.push_back(bits_of(grad(w)));
         }
       }},
      {"a part of an argument, for a group",
       [](Mode mode, Lines& lines) {
         const Tensor a = leaf(1), b = leaf(2, {2});
         GradientGroup group({a, b});
         auto step = compile([&](const Tensor& x) { group.set_flat(slice(x, 0, 1, 6)); }, in(mode));
         for (int i = 0; i < 4; ++i) {
           step(noise({7}, 20 + i));
           lines.push_back(bits_of(grad(a)) + bits_of(grad(b)) + bits_of(group.flat()));
         }
       }},
      {"one from outside",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         Tensor other = input(5);
         auto step = compile(
             [&](const Tensor& x) {
               set_grad(w, other);
               return x + 1;
             },
             in(mode));
         for (int i = 0; i < 4; ++i) {
           step(input(i));
           add_(other, 1);
           lines.push_back(bits_of(grad(w)));
         }
       }},
      {"a fixed argument",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         const Tensor slots[] = {input(5), input(6)};
         auto step = compile([&](const Tensor& x) { set_grad(w, x); }, in(mode));
         for (int i = 0; i < 4; ++i) {
           step(fixed(slots[i % 2]));
           lines.push_back(bits_of(grad(w)));
         }
       }},
      {"another leaf's",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1), v = leaf(2);
         auto swap = compile(
             [&] {
               const Tensor of_w = grad(w), of_v = grad(v);
               set_grad(w, of_v), set_grad(v, of_w);
             },
             in(mode));
         backward(sum(square(w) * v));
         for (int i = 0; i < 5; ++i) {
           swap();
           if (i == 2) backward(sum(w));
           lines.push_back(bits_of(grad(w)) + bits_of(grad(v)));
         }
       }},
      {"a value that is returned too",
       [](Mode mode, Lines& lines) {
         const Tensor w = leaf(1);
         auto step = compile(
             [&](const Tensor& x) {
               const Tensor y = x * 2;
               set_grad(w, y);
               return y;
             },
             in(mode));
         std::vector<Tensor> kept;
         for (int i = 0; i < 4; ++i) {
           kept.push_back(step(input(i)));
           lines.push_back(bits_of(grad(w)));
         }
         for (const Tensor& each : kept) lines.push_back(bits_of(each));
       }},
  });
}

TEST_CASE("compile: groups come and go between calls", "[compile]") {
  check_stories({
      {"made",
       [](Mode mode, Lines& lines) {
         const Tensor a = leaf(1), b = leaf(2);
         auto step = compile([&](const Tensor& x) { backward(sum(square(a * b) * x)); }, in(mode));
         step(input(0)), step(input(1));
         const GradientGroup group({a, b});
         for (int i = 0; i < 4; ++i) {
           step(input(i));
           lines.push_back(bits_of(grad(a)) + bits_of(grad(b)) + bits_of(group.flat()));
         }
       }},
      {"destroyed",
       [](Mode mode, Lines& lines) {
         const Tensor a = leaf(1), b = leaf(2);
         auto group = std::make_unique<GradientGroup>(std::vector{a, b});
         auto step = compile(
             [&](const Tensor& x) {
               if (group) {
                 group->clear();
               } else {
                 zero_grad(a), zero_grad(b);
               }
               backward(sum(square(a * b) * x));
             },
             in(mode));
         for (int i = 0; i < 6; ++i) {
           step(input(i));
           lines.push_back(bits_of(grad(a)) + bits_of(grad(b)));
           if (i == 2) group.reset();
         }
       }},
      {"a leaf that becomes a constant",
       [](Mode mode, Lines& lines) {
         Tensor w = leaf(1);
         const Tensor v = leaf(2);
         auto step = compile(
             [&](const Tensor& x) {
               zero_grad(v);
               if (requires_grad(w)) zero_grad(w);
               backward(sum(square(w * v) * x));
             },
             in(mode));
         for (int i = 0; i < 6; ++i) {
           if (i == 2) zero_grad(w), requires_grad_(w, false);
           if (i == 4) requires_grad_(w);
           step(input(i));
           lines.push_back(bits_of(grad(w)) + bits_of(grad(v)));
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

TEST_CASE("compile: a leaf of the step's own is no matter of later calls", "[compile]") {
  auto step = compile([](const Tensor& x) {
    const Tensor t = requires_grad_(detach(x));
    backward(sum(square(t)));
    return grad(t);
  });
  for (int i = 0; i < 12; ++i) CHECK(bits_of(step(input(i))) == bits_of(input(i) * 2));
  CHECK(step.report().entries.size() == 1);
  CHECK(step.report().eager_calls == 0);
}

TEST_CASE("compile: what a report says of kept gradients does not grow", "[compile]") {
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
        "first call; planned again 39 times, since somebody kept a gradient");
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
