// Gradients set by set_grad, in steps and between calls: arguments, captured tensors, gradients of
// other leaves; groups that are created and destroyed.
#include <memory>

#include "tests/harness/compile_stories.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: a gradient that the step returns and then adds to", "[compile]") {
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

TEST_CASE("compile: gradients that share memory through other handles are distinguished",
          "[compile]") {
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
  });
}

TEST_CASE("compile: a leaf's gradient may be a fixed argument, another leaf's, or a result",
          "[compile]") {
  check_stories({
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
