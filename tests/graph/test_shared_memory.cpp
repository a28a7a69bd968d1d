// In-place writes that record gradients: refused where another tensor shares the memory, eagerly
// and in traces alike. A trace's own references, and those of compiled steps, do not count.
#include "tests/harness/catch.h"
#include "tests/harness/remat_check.h"

namespace brrr::test {
namespace {

using Reads = std::function<Tensors(const Tensor&)>;

// Reads `c`, adds to it in place, and returns c and the gradient. What `reads` returns is alive
// during the write.
Tensors written(const Tensor& w, Tensor& c, const Reads& reads) {
  const Tensor x = full({4}, 3);
  zero_grad(w);
  const Tensors alive = reads(c);
  add_(c, w * x);
  backward(sum(c * c));
  return {detach(c) * 1, grad(w) * 1};
}

// The results of a run with a fresh state, or the error.
struct Outcome {
  Tensors results;
  std::string error;
};

Outcome outcome_of(const Reads& reads, bool compiled, Mode mode = Mode::graph) {
  const Tensor w = requires_grad_(full({4}, 2));
  Tensor c = noise({4}, 5);
  Outcome outcome;
  outcome.error = error_of([&] {
    if (!compiled) {
      outcome.results = written(w, c, reads);
      return;
    }
    auto step = compile([&] { return written(w, c, reads); }, {.mode = mode});
    outcome.results = step();
  });
  return outcome;
}

void check_alike(const Reads& reads, bool accepted) {
  const Outcome eager = outcome_of(reads, false);
  CHECK(eager.error.empty() == accepted);
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    const Outcome traced = outcome_of(reads, true, mode);
    CHECK(traced.error == eager.error);
    CHECK(bits_of(traced.results) == bits_of(eager.results));
  }
}

}  // namespace

TEST_CASE("shared memory: a trace's views of a captured tensor do not share it", "[graph]") {
  check_alike([](const Tensor&) { return Tensors{}; }, true);
  check_alike([](const Tensor& c) { return Tensors{c * 2}; }, true);
  check_alike([](const Tensor& c) { return Tensors{c[0] * 2}; }, true);
  check_alike(
      [](const Tensor& c) {
        return Tensors{c[0] * 2 + c[3], slice(c, 0, 1, 3) * 2};
      },
      true);
  check_alike(
      [](const Tensor& c) {
        const Tensor rows = reshape(c, {2, 2});
        return Tensors{transpose(rows, 0, 1)[1] * 2};
      },
      true);
}

TEST_CASE("shared memory: views that are alive are refused in traces as by eager", "[graph]") {
  check_alike([](const Tensor& c) { return Tensors{c[0]}; }, false);
  check_alike([](const Tensor& c) { return Tensors{c[0] * 2, c[1]}; }, false);
  check_alike(
      [](const Tensor& c) {
        return Tensors{reshape(reshape(c, {2, 2})[1], {2, 1})};
      },
      false);
  check_alike([](const Tensor& c) { return Tensors{detach(c)}; }, false);
}

TEST_CASE("shared memory: a view from outside of the step is refused as by eager", "[graph]") {
  const Tensor w = requires_grad_(full({4}, 2));
  const auto error = [&](bool compiled) {
    Tensor c = noise({4}, 5);
    const Tensor view = c[1];
    const Reads none = [](const Tensor&) { return Tensors{}; };
    return error_of([&] {
      if (!compiled) {
        written(w, c, none);
      } else {
        compile([&] { return written(w, c, none); })();
      }
    });
  };
  CHECK_THAT(error(false),
             Catch::Contains("expected a tensor that shares its memory with no other"));
  CHECK(error(true) == error(false));
}

TEST_CASE("shared memory: two writes in one trace", "[graph]") {
  const Tensor w = requires_grad_(full({4}, 2));
  const auto twice = [&](Tensor& c) {
    zero_grad(w);
    add_(c, w);
    mul_(c, 2);
    add_(c, w * 3);
    backward(sum(c));
    return Tensors{detach(c) * 1, grad(w) * 1};
  };
  Tensor eager = noise({4}, 5), compiled = noise({4}, 5);
  const Tensors expected = twice(eager);
  auto step = compile([&] { return twice(compiled); });
  CHECK(bits_of(step()) == bits_of(expected));
}

TEST_CASE("shared memory: eager writes to what a compiled step has captured", "[graph]") {
  const Tensor w = requires_grad_(full({4}, 2));
  Tensor c = noise({4}, 5);
  auto reads = compile([&] { return c * 2; });
  auto reads_too = compile([&] { return c[0] + 1; });
  reads();
  reads_too();
  add_(c, w);
  backward(sum(c));
  CHECK(grad(w).defined());
}

}  // namespace brrr::test
