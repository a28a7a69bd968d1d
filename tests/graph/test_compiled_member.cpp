// Compiled steps as members of classes: Compiled<R(A...)>, whatever the function's type.
#include <memory>

#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// A move-only function.
struct Scale {
  std::unique_ptr<double> factor;
  Tensor operator()(const Tensor& x) { return x * *factor; }
};

class Trainer {
 public:
  explicit Trainer(Mode mode)
      : step_(compile([this](const Tensor& x, const Tensor& y) { return x * weight_ + y; },
                      {.mode = mode, .name = "trainer"})) {}
  Tensor operator()(const Tensor& x, const Tensor& y) { return step_(x, y); }
  CompileReport report() const { return step_.report(); }

 private:
  Tensor weight_ = full({3}, 2);
  Compiled<Tensor(Tensor, Tensor)> step_;
};

}  // namespace

TEST_CASE("compile: a step is a member of a class by its signature", "[compile]") {
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    Trainer trainer(mode);
    for (int i = 0; i < 3; ++i)
      CHECK(equal(trainer(full({3}, i), ones({3})), full({3}, 2 * i + 1)));
    if (mode == Mode::eager) continue;
    REQUIRE(trainer.report().entries.size() == 1);
    CHECK(trainer.report().entries[0].calls == 3);
  }
}

TEST_CASE("compile: steps of one signature are assigned", "[compile]") {
  Compiled<Tensor(Tensor)> step;
  CHECK_FALSE(step);
  CHECK(error_of([&] { step(ones({2})); }) ==
        "[compile] expected a compiled step, got an empty one");
  CHECK(error_of([&] { step.explain(); }) ==
        "[compile] expected a compiled step, got an empty one");
  step = compile([](const Tensor& x) { return x + 1; });
  CHECK(step);
  CHECK(equal(step(ones({2})), full({2}, 2)));
  step = compile(Scale{std::make_unique<double>(3)});
  CHECK(equal(step(ones({2})), full({2}, 3)));
  CHECK(equal(step(fixed(ones({2}))), full({2}, 3)));
  Compiled<Tensor(Tensor)> moved = std::move(step);
  CHECK_FALSE(step);  // NOLINT: moved from
  CHECK(equal(moved(ones({2})), full({2}, 3)));
}

TEST_CASE("compile: signatures with numbers, lists and no result", "[compile]") {
  Compiled<std::pair<Tensor, Tensor>(std::vector<Tensor>, double)> pair =
      compile([](const std::vector<Tensor>& list, double factor) {
        return std::pair(list[0] * factor, list[1] + factor);
      });
  const auto [product, sum] = pair(std::vector{ones({2}), ones({3})}, 4.0);
  CHECK(equal(product, full({2}, 4)));
  CHECK(equal(sum, full({3}, 5)));

  const Tensor total = zeros({2});
  Compiled<void(const Tensor&)> add_up = compile([&](const Tensor& x) {
    Tensor into = total;
    return add_(into, x);
  });
  for (int i = 0; i < 3; ++i) add_up(ones({2}));
  CHECK(equal(total, full({2}, 3)));
  STATIC_REQUIRE_FALSE(std::is_constructible_v<Compiled<Tensor(Tensor, Tensor)>, Compiled<Scale>>);
}
