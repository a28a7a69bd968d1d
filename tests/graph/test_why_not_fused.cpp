// The reasons for values that go from kernel to kernel in a fused step, and require_fused.
#include <algorithm>
#include <functional>
#include <string>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

namespace brrr::test {
namespace {

using Function = std::function<Tensors(const Tensors&)>;

// The edges of a function, fused.
std::vector<UnfusedEdge> edges_of(const Function& function, const std::vector<Dims>& shapes) {
  Tensors arguments;
  for (const Dims& shape : shapes) arguments.push_back(noise(shape, 1, f32));
  auto step = compile(function, {.mode = Mode::fused});
  step(arguments);
  return step.unfused();
}

std::string reasons_of(const std::vector<UnfusedEdge>& edges) {
  std::string text;
  for (const UnfusedEdge& edge : edges) {
    text += (text.empty() ? "" : ", ") + edge.producer + " -> " + edge.consumer + ": " +
            name_of(edge.why) + (edge.opaque.empty() ? "" : " " + edge.opaque);
  }
  return text;
}

struct EdgeCase {
  const char* reasons;
  std::vector<Dims> arguments;
  Function function;
};

void check_edges(const std::vector<EdgeCase>& cases) {
  for (const EdgeCase& each : cases) {
    std::vector<UnfusedEdge> edges = edges_of(each.function, each.arguments);
    std::ranges::sort(edges, {},
                      [](const UnfusedEdge& e) { return e.producer + " " + e.consumer; });
    CHECK(reasons_of(edges) == each.reasons);
  }
}

}  // namespace

TEST_CASE("each edge that is not fused has its reason", "[fuse]") {
  const std::vector<EdgeCase> cases = {
      {"", {{6, 9}}, [](const Tensors& a) { return Tensors{exp(a[0]) * 2.0}; }},
      {"matmul -> exp: opaque call matmul",
       {{6, 9}, {9, 5}},
       [](const Tensors& a) { return Tensors{exp(matmul(a[0], a[1]))}; }},
      {"exp -> matmul: opaque call matmul",
       {{6, 9}, {9, 5}},
       [](const Tensors& a) { return Tensors{matmul(exp(a[0]), a[1])}; }},
      {"exp -> mul: no correspondence of spaces",
       {{4, 6}},
       [](const Tensors& a) {
         const Tensor flat = reshape(exp(a[0]), {24});
         return Tensors{reshape(narrow(flat, 0, 1, 20), {5, 4}) * 2.0};
       }},
      {"exp -> add: different reads",
       {{6, 6}},
       [](const Tensors& a) {
         const Tensor x = exp(a[0]);
         return Tensors{x + transpose(x, 0, 1)};
       }},
      {"exp -> mul: in place",
       {{50, 80}},
       [](const Tensors& a) {
         Tensor x = narrow(a[0], 0, 1, 49);
         mul_(x, exp(narrow(a[0], 0, 0, 49)));
         return Tensors{};
       }},
      {"exp -> mul: needed outside",
       {{8, 10}},
       [](const Tensors& a) {
         const Tensor x = exp(a[0]);
         return Tensors{x, narrow(x, 1, 2, 5) * 3.0};
       }},
      {"exp -> cat: opaque call cat, mul -> cat: opaque call cat",
       {{8, 10}, {8, 6}},
       [](const Tensors& a) {
         return Tensors{cat({exp(a[0]), a[1] * 2.0}, 1)};
       }},
      {"exp -> unslice: recomputes too much, mul -> unslice: recomputes too much",
       {{8, 10}, {8, 6}},
       [](const Tensors& a) {
         return Tensors{unslice(exp(a[0]), 1, 0, 16) + unslice(a[1] * 2.0, 1, 10, 16)};
       }},
  };
  check_edges(cases);
}

TEST_CASE("each edge of reductions and products that is not fused has its reason", "[fuse]") {
  const std::vector<EdgeCase> cases = {
      {"sum -> mul: part of the rows",
       {{9, 70}},
       [](const Tensors& a) { return Tensors{narrow(sum(a[0], {1}), 0, 2, 3) * 2.0}; }},
      {"sum -> sub: too few rows",
       {{2, 10000}},
       [](const Tensors& a) { return Tensors{a[0] - sum(a[0], {1}, true)}; }},
      {"sum -> max: unequal rows",
       {{12, 10}},
       [](const Tensors& a) { return Tensors{max(sum(a[0], {0}), {0})}; }},
      {"exp -> add: would make a cycle, exp -> matmul: opaque call matmul, matmul -> add: opaque "
       "call matmul",
       {{6, 6}, {6, 6}},
       [](const Tensors& a) {
         const Tensor x = exp(a[0]);
         return Tensors{matmul(x, a[1]) + x};
       }},
  };
  check_edges(cases);
}

TEST_CASE("a kernel has a limited number of operands", "[fuse]") {
  const auto add_all = [](const Tensors& a) {
    Tensor sum = a[0];
    for (std::size_t i = 1; i < a.size(); ++i) sum = sum + a[i];
    return Tensors{sum};
  };
  const std::vector<UnfusedEdge> edges = edges_of(add_all, std::vector<Dims>(20, Dims{5, 7}));
  CHECK(reasons_of(edges) == "add -> add: too many operands");
}

TEST_CASE("a kernel has a limited number of calls", "[fuse]") {
  const auto chain = [](const Tensors& a) {
    Tensor x = a[0];
    for (int i = 0; i < 300; ++i) x = tanh(x);
    return Tensors{x};
  };
  CHECK(reasons_of(edges_of(chain, {{5, 7}})) == "tanh -> tanh: too many values");
}

TEST_CASE("an expensive value that several elements need is computed once", "[fuse]") {
  static const Op costly =
      register_op({.name = "test_costly",
                   .expression = "exp(a) + exp(-a) * tanh(a) + sin(a) * cos(a) - a * a"});
  const auto spread = [](const Tensors& a) { return Tensors{call_op(costly, {a[0]}) * a[1]}; };
  CHECK(reasons_of(edges_of(spread, {{9}, {500, 9}})) == "test_costly -> mul: recomputes too much");
}

TEST_CASE("explain groups the edges of a fused step by reason", "[fuse]") {
  auto step = compile(
      [](const Tensor& x, const Tensor& w) {
        Tensor y = x;
        for (int i = 0; i < 3; ++i) y = tanh(matmul(y, w));
        return y;
      },
      {.mode = Mode::fused});
  step(noise({6, 6}, 1, f32), noise({6, 6}, 2, f32));
  const std::string text = step.explain();
  CHECK_THAT(text,
             Catch::Contains("5 values go from kernel to kernel:\n    5 opaque call (computed "
                             "by a kernel of its own): 5 matmul\n"));
  CHECK_THAT(text, Catch::Contains("f32[6, 6]: matmul (at "));
  CHECK_THAT(text, Catch::Contains("test_why_not_fused.cpp:"));
  CHECK_THAT(text, Catch::Contains(") -> tanh (at "));

  auto unfused = compile([](const Tensor& x) { return exp(x * 2.0); });
  unfused(ones({4}));
  CHECK(unfused.unfused().empty());
  CHECK_THAT(unfused.explain(), !Catch::Contains("kernel to kernel"));
}

TEST_CASE("require_fused accepts what is in one kernel and does nothing elsewhere", "[fuse]") {
  const auto function = [](const Tensor& x) {
    const Tensor weights = softmax(x * 0.5, 1), scaled = weights * 3.0;
    require_fused(weights, scaled);
    require_fused(scaled, scaled);
    return scaled;
  };
  const Tensor x = noise({9, 65}, 1, f32);
  const Tensor eager = function(x);
  auto graph = compile(function), fused = compile(function, {.mode = Mode::fused});
  CHECK(bits_of(graph(x)) == bits_of(eager));
  fused(x);
  CHECK(fused.report().entries.at(0).nodes == 1);
}

TEST_CASE("require_fused names what stands between two kernels", "[fuse]") {
  const auto function = [](const Tensor& x, const Tensor& w) {
    const Tensor a = exp(x), b = tanh(matmul(a, w));
    require_fused(a, b);
    return b;
  };
  const Tensor x = noise({6, 6}, 1, f32), w = noise({6, 6}, 2, f32);
  function(x, w);
  auto graph = compile(function);
  graph(x, w);
  auto fused = compile(function, {.mode = Mode::fused, .name = "attend"});
  const std::string error = error_of([&] { fused(x, w); });
  CHECK_THAT(error, Catch::StartsWith("[attend] require_fused expected one kernel for "));
  CHECK_THAT(error, Catch::Contains("f32[6, 6] = exp (at "));
  CHECK_THAT(error, Catch::Contains("f32[6, 6] = tanh (at "));
  CHECK_THAT(error,
             Catch::Contains("got two: opaque call (matmul): computed by a kernel of its own"));
  CHECK_THAT(error, Catch::Contains("; then opaque call (matmul)"));
  CHECK_THAT(error, Catch::Contains("test_why_not_fused.cpp:"));
  // The order does not matter, and a failed compilation leaves no entry.
  CHECK(fused.report().entries.empty());
}

TEST_CASE("require_fused follows values that kernels compute again", "[fuse]") {
  const auto attend = [](const Tensors& a) {
    const Tensor scores = requires_grad_(detach(a[0]));
    const Tensor wide = cast(scores, f32), weights = cast(softmax(wide, 1), bf16);
    require_fused(wide, weights);
    const Tensor chosen = gather(wide, 1, a[3]);
    require_fused(chosen, chosen);
    const Tensor loss = sum(square(matmul(weights, a[1])) * a[2]) + cast(sum(chosen), bf16);
    return Tensors{grad(loss, scores), detach(loss)};
  };
  const Tensors arguments = {noise({96, 64}, 1, bf16), noise({64, 32}, 2, bf16),
                             noise({96, 32}, 3, bf16), integers({96, 1}, 64, 4)};
  auto step = compile(attend, {.mode = Mode::fused});
  CHECK(bits_of(step(arguments)) == bits_of(attend(arguments)));
  auto separate = compile(
      [&](const Tensors& a) {
        const Tensors results = attend(a);
        const Tensor sums = cumsum(results[0], 0);
        require_fused(results[0], sums);
        return Tensors{sums, results[1]};
      },
      {.mode = Mode::fused});
  CHECK_THROWS_WITH(separate(arguments), Catch::Contains("opaque call (cumsum)"));
}

TEST_CASE("require_fused follows values through passes and writes in place", "[fuse]") {
  const Tensor x = noise({5, 7}, 1, f32);
  // Both are the same call once equal ones are merged.
  auto equal = compile(
      [](const Tensor& v) {
        const Tensor a = exp(v), b = exp(v), c = a * b;
        require_fused(b, c);
        return c;
      },
      {.mode = Mode::fused});
  equal(x);
  CHECK(equal.report().entries.at(0).nodes == 1);
  // The write that was the last one where require_fused stands, not a later one.
  const Tensor w = noise({7, 7}, 2, f32);
  auto written = compile(
      [&](const Tensor& v) {
        Tensor a = exp(v);
        const Tensor b = a * 2.0;
        require_fused(a, b);
        const Tensor c = matmul(b, w);
        copy_(a, c);
        return std::pair(a, b);
      },
      {.mode = Mode::fused});
  written(x);
  CHECK_THAT(written.graph_text(), Catch::Contains("fused[exp, mul]"));
}

TEST_CASE("require_fused refuses what no call of the step makes", "[fuse]") {
  const Tensor x = noise({5, 7}, 1, f32);
  const auto error = [&](auto function) {
    auto step = compile(function, {.mode = Mode::fused});
    return error_of([&] { step(x); });
  };
  CHECK_THAT(error([&](const Tensor& v) {
               const Tensor y = exp(v);
               require_fused(x, y);
               return y;
             }),
             Catch::Contains("[require_fused] cannot be part of the compiled function \"step\": "
                             "expected tensors that the step makes (the latest are ") &&
                 Catch::Contains(", got f32[5, 7]"));
  CHECK_THAT(error([](const Tensor& v) {
               require_fused(v, exp(v));
               return exp(v) * 2.0;
             }),
             Catch::Contains("no call of a replay makes input0 f32[5, 7]"));
  CHECK_THAT(error([](const Tensor& v) {
               const Tensor y = exp(v), unused = tanh(y);
               require_fused(y, unused);
               return y;
             }),
             Catch::Contains("no call of a replay makes %"));
  CHECK_THAT(error([](const Tensor& v) {
               const Tensor y = exp(v), z = sum(v, {0});
               require_fused(y, z);
               return std::pair(y, z);
             }),
             Catch::Contains("got two: no value goes from one to the other"));
  CHECK_THAT(error_of([] { require_fused(Tensor(), Tensor()); }),
             Catch::Contains("[require_fused] expected two tensors, got an undefined one"));
}

}  // namespace brrr::test
