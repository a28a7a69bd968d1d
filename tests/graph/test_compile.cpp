// Compiled functions have eager's bits: ops of every kind, writes in place, views, users' own ops.
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: ops of every kind have eager's bits", "[compile]") {
  check_all({
      {"pointwise",
       [](auto& c, auto& a) {
         return Tensors{exp(a[0]) * c[0] + 2.5, where(gt(a[0], c[0]), a[0], 0)};
       }},
      {"broadcasting",
       [](auto& c, auto& a) { return Tensors{c[0] * a[0] - a[1]}; },
       {{3, 1}},
       {{1, 4}, {2, 1, 4}}},
      {"reductions",
       [](auto&, auto& a) {
         return Tensors{sum(a[0]), mean(a[0], {1}),  max(a[0], {0}, true), argmax(a[0], 1),
                        var(a[0]), any(gt(a[0], 1)), logsumexp(a[0], {0})};
       }},
      {"products",
       [](auto& c, auto& a) {
         return Tensors{matmul(a[0], transpose(c[0], 0, 1)), matmul(a[0], c[1]),
                        affine(a[0], c[2], c[1])};
       },
       {{3, 4}, {4}, {4, 4}}},
      {"joins and cuts",
       [](auto& c, auto& a) {
         Tensors all = split(cat({c[0], a[0]}, 1), 3, 1);
         all.push_back(stack({a[0], c[0], a[0]}));
         all.push_back(cat({a[0] * 2, c[0] + 1}));
         all.push_back(roll(flip(a[0], 0), 2, 1));
         return all;
       }},
      {"concatenation of adjacent parts",
       [](auto&, auto& a) {
         const Tensor first = a[0] * 2, second = a[0] + 1;
         return Tensors{cat({first, second}), sum(first), exp(cat({square(a[0]), neg(a[0])}))};
       },
       {},
       {{64, 2}}},
      {"composites",
       [](auto& c, auto& a) {
         return Tensors{softmax(a[0], 1), layer_norm(a[0], 1), rms_norm(a[0], 2, c[0]),
                        log_softmax(a[0], 0)};
       }},
      {"indexing",
       [](auto& c, auto& a) {
         const Tensor index = cast(remainder(floor(abs(a[0] * 10)), 3), i64);
         return Tensors{gather(c[0], 0, index),
                        index_select(c[0], 1, select(index, 1, 0)),
                        scatter_add(c[0], 0, index, a[0]),
                        tril(a[0]),
                        cumsum(a[0], 1),
                        one_hot(index, 3)};
       }},
  });
}

TEST_CASE("compile: creation, conversions and tensors of odd shapes and types have eager's bits",
          "[compile]") {
  check_all({
      {"creation",
       [](auto&, auto& a) {
         return Tensors{zeros({2}), full({3}, 7),    arange(5),        linspace(0, 1, 4),
                        eye(3),     ones_like(a[0]), zeros_like(a[0]), scalar_tensor(3)};
       }},
      {"conversions",
       [](auto& c, auto& a) {
         return Tensors{cast(a[0], f16),         cast(cast(a[0] * 3, i32), f64),    gt(a[0], c[0]),
                        cast(a[0], bf16) + a[0], contiguous(transpose(a[0], 0, 1)), clone(c[0])};
       }},
      {"the same twice",
       [](auto& c, auto& a) {
         return Tensors{exp(a[0]) + exp(a[0]), exp(a[0]), c[0] * 2, c[0] * 2};
       }},
      {"tensors of host values",
       [](auto&, auto& a) {
         return Tensors{a[0] * tensor({1, 2, 3, 4})};
       }},
      {"0-d tensors",
       [](auto& c, auto& a) {
         return Tensors{a[0] * c[0], sum(a[0]), a[0] + 1, reshape(a[0], {1, 1})};
       },
       {{}},
       {{}}},
      {"empty tensors",
       [](auto& c, auto& a) {
         return Tensors{a[0] * c[0], sum(a[0]), cat({a[0], c[0]}),
                        matmul(transpose(a[0], 0, 1), c[0]), sum(a[0], {0})};
       },
       {{0, 4}},
       {{0, 4}}},
      {"nothing computed", [](auto&, auto&) { return Tensors{}; }},
      {"f64",
       [](auto& c, auto& a) {
         return Tensors{matmul(a[0], transpose(c[0], 0, 1)), softmax(a[0], 0)};
       },
       {{3, 4}},
       {{3, 4}},
       f64},
      {"bf16",
       [](auto& c, auto& a) {
         return Tensors{matmul(a[0], transpose(c[0], 0, 1)), softmax(a[0], 0), sum(a[0] * 3)};
       },
       {{3, 4}},
       {{3, 4}},
       bf16},
      {"f16",
       [](auto& c, auto& a) {
         return Tensors{matmul(a[0], transpose(c[0], 0, 1)), softmax(a[0], 0), sum(a[0] * 3)};
       },
       {{3, 4}},
       {{3, 4}},
       f16},
  });
}

TEST_CASE("compile: writes in place have eager's bits", "[compile]") {
  check_all({
      {"to a captured tensor",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         add_(x, a[0]);
         return Tensors{x * 2};
       }},
      {"to an argument",
       [](auto& c, auto& a) {
         Tensor x = a[0];
         mul_(x, c[0]);
         return Tensors{x + 1};
       }},
      {"to a view of a captured tensor",
       [](auto& c, auto& a) {
         Tensor row = select(c[0], 0, 1), columns = slice(transpose(c[0], 0, 1), 0, 0, 4, 2);
         mul_(row, 0.5);
         add_(columns, slice(transpose(a[0], 0, 1), 0, 1, 3));
         return Tensors{row, columns * 2};
       }},
      {"to a view of an argument",
       [](auto&, auto& a) {
         Tensor part = slice(a[0], 1, 1, 3);
         fill_(part, 4);
         return Tensors{a[0] * 2, part};
       }},
      {"to a view of a temporary",
       [](auto& c, auto& a) {
         Tensor t = a[0] * c[0];
         Tensor part = select(t, 1, 2);
         zero_(part);
         Tensor other = slice(t, 0, 1, 3);
         add_(other, 1);
         return Tensors{t};
       }},
      {"and reads between them",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         const Tensor before = x * 2;
         add_(x, a[0]);
         const Tensor after = x * 2;
         add_(x, a[0]);
         return Tensors{before, after, x * 2};
       }},
      {"of temporaries that were read",
       [](auto&, auto& a) {
         Tensor t = exp(a[0]);
         const Tensor u = t * 3;
         neg_(t);
         const Tensor v = t * 3;
         return Tensors{u, v, t};
       }},
  });
}

TEST_CASE("compile: writes of other shapes and types have eager's bits", "[compile]") {
  check_all({
      {"over a broadcast source",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         copy_(x, select(a[0], 0, 0));
         Tensor column = select(x, 1, 0);
         fill_(column, 2);
         return Tensors{};
       }},
      {"of another type",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         copy_(x, cast(a[0] * 3, i32));
         return Tensors{x};
       }},
      {"twice over",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         copy_(x, a[0]);
         copy_(x, a[0] * 2);
         return Tensors{};
       }},
      {"swapped",
       [](auto& c, auto&) {
         Tensor x = c[0], y = c[1];
         const Tensor t = clone(x);
         copy_(x, y);
         copy_(y, t);
         return Tensors{};
       },
       {{5}, {5}}},
      {"nobody reads",
       [](auto&, auto& a) {
         Tensor t = exp(a[0]);
         add_(t, 1);
         return Tensors{};
       }},
      {"with several operands",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         addcmul_(x, a[0], a[0], 0.5);
         lerp_(x, a[0], 0.25);
         clamp_max_(x, 1);
         masked_fill_(x, gt(a[0], 0), -1);
         return Tensors{};
       }},
      {"of halves",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         add_(x, a[0] * 3);
         return Tensors{};
       },
       {{3, 4}},
       {{3, 4}},
       f16},
  });
}

TEST_CASE("compile: results of every kind have eager's bits", "[compile]") {
  check_all({
      {"an argument", [](auto&, auto& a) { return Tensors{a[0]}; }},
      {"a view of an argument",
       [](auto&, auto& a) {
         return Tensors{transpose(a[0], 0, 1), slice(a[0], 1, 1, 4, 2),
                        expand(select(a[0], 0, 0), {2, 4})};
       }},
      {"a captured tensor", [](auto& c, auto&) { return Tensors{c[0]}; }},
      {"a view of a captured tensor",
       [](auto& c, auto&) {
         return Tensors{transpose(c[0], 0, 1), select(c[0], 0, 2)};
       }},
      {"a captured tensor that is written",
       [](auto& c, auto& a) {
         Tensor x = c[0];
         add_(x, a[0]);
         return Tensors{x, select(x, 0, 1)};
       }},
      {"the same twice",
       [](auto&, auto& a) {
         const Tensor t = a[0] * 2;
         return Tensors{t, t, t};
       }},
      {"views of one temporary",
       [](auto&, auto& a) {
         const Tensor t = a[0] * 2;
         return Tensors{transpose(t, 0, 1), select(t, 0, 1), slice(t, 1, 1, 4, 2), t};
       }},
      {"a part alone", [](auto&, auto& a) { return Tensors{slice(exp(a[0]), 0, 1, 2)}; }},
      {"an undefined tensor",
       [](auto&, auto& a) {
         return Tensors{Tensor(), a[0] + 1, Tensor()};
       }},
      {"uninitialized and then written",
       [](auto&, auto& a) {
         Tensor x = empty({3, 4});
         copy_(x, a[0]);
         return Tensors{x};
       }},
  });
}

TEST_CASE("compile: ops registered by a user have eager's bits", "[compile]") {
  static const Op cube = register_op(
      PointwiseOp{.name = "test_compile_cube",
                  .expression = "a * a * a",
                  .gradient = [](Gradient& r) { r.set(0, r.g() * (3 * square(r.operand(0)))); },
                  .needs = "a"});
  // Rows in reverse, and their sums.
  static const Op turn = register_op(StructuredOp{
      .name = "test_compile_turn",
      .inputs = 1,
      .outputs = 2,
      .attributes = "scale:double",
      .infer =
          [](const Call& call, OutputSpec* outputs) {
            const Tensor& x = call.input(0);
            outputs[0] = {x.dtype(), x.device(), Dims(x.shape())};
            outputs[1] = {x.dtype(), x.device(), {x.size(0)}};
          },
      .cpu =
          [](const Call& call, Tensor* outputs) {
            const Tensor x = call.input(0);
            const std::int64_t rows = x.size(0), columns = x.size(1);
            for (std::int64_t i = 0; i < rows; ++i) {
              float total = 0;
              for (std::int64_t k = 0; k < columns; ++k) {
                const float value = x.data<float>()[i * x.stride(0) + k * x.stride(1)];
                outputs[0].data<float>()[(rows - 1 - i) * columns + k] =
                    value * static_cast<float>(call.attrs[0].d());
                total += value;
              }
              outputs[1].data<float>()[i] = total;
            }
          },
      .cost = cost_of_moving,
      .gradient = [](Gradient& r) { r.set(0, flip(r.g(0), 0) * 2 + unsqueeze(r.g(1), 1)); }});
  check_all({
      {"pointwise",
       [](auto& c, auto& a) {
         zero_grad(c[0]);
         backward(sum(call_op(cube, {c[0] * a[0]})));
         return Tensors{call_op(cube, {a[0]})};
       },
       {{3, 4}},
       {{3, 4}},
       f32,
       true},
      {"structured",
       [](auto& c, auto& a) {
         zero_grad(c[0]);
         const Tensors rotated = call_op(turn, {c[0] * a[0]}, {2.0});
         backward(sum(square(rotated[0])) + sum(exp(rotated[1])));
         return Tensors{rotated[0], rotated[1], call_op(turn, {transpose(a[0], 0, 1)}, {2.0})[0]};
       },
       {{3, 4}},
       {{3, 4}},
       f32,
       true},
  });
}
