// Draws, gathers and checks in fused kernels: eager's bits, and eager's errors.
#include <brrr/graph/compile.h>
#include <brrr/nn/losses.h>
#include <brrr/ops/functions.h>

#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/environment.h"
#include "tests/harness/fused_programs.h"

namespace brrr::test {

TEST_CASE("draws in a fused kernel are those of eager calls", "[fuse]") { check_fused_draws(cpu); }

TEST_CASE("dropout and its gradient draw once", "[fuse]") {
  const auto function = [](const Tensors& a) {
    const Tensor x = requires_grad_(detach(a[0]));
    const Tensor y = matmul(dropout(gelu(x), 0.4), a[1]);
    return Tensors{y, grad(sum(square(y)), x)};
  };
  const Tensors arguments = {noise({16, 32}, 1), noise({32, 8}, 2)};
  auto step = compile(function, {.mode = Mode::fused});
  manual_seed(3);
  const Tensors got = step(arguments);
  manual_seed(3);
  CHECK(bits_of(got) == bits_of(function(arguments)));
}

TEST_CASE("a bad index in a fused kernel has eager's error", "[fuse]") {
  const auto loss = [](const Tensor& x, const Tensor& target) {
    return nn::cross_entropy(x * 2.0, target);
  };
  const auto rows = [](const Tensor& x, const Tensor& index) {
    return embedding(x, index) * 3.0 + 1.0;
  };
  const Tensor x = noise({30000, 9}, 1);  // several ranges
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.substr(0, text.find('\n'));
    }
    return "";
  };
  const auto check = [&](auto function, const Tensor& good, const Tensor& bad) {
    auto step = compile(function, {.mode = Mode::fused});
    const Tensor wanted = function(x, good);
    CHECK(bits_of(step(x, good)) == bits_of(wanted));
    const std::string eager = message([&] { function(x, bad); });
    CHECK_THAT(eager, Catch::Contains("expected indices in"));
    for (int i = 0; i < 30; ++i)  // whichever range ends last
      CHECK_THAT(message([&] { step(x, bad); }), Catch::StartsWith(eager + " (at "));
    CHECK(bits_of(step(x, good)) == bits_of(wanted));
  };
  Tensor target = integers({30000}, 9, 2), wrong = clone(target);
  fill_(narrow(wrong, 0, 17, 1), 9);
  for (const int at : {3300, 9000, 17000, 29000}) fill_(narrow(wrong, 0, at, 1), -1);
  check(loss, target, wrong);
  Tensor index = integers({3, 50}, 30000, 3), out = clone(index);
  fill_(narrow(narrow(out, 0, 1, 1), 1, 5, 2), 30001);
  check(rows, index, out);
}

TEST_CASE("a gather from a sum is not in the sum's kernel", "[fuse]") {
  const auto function = [](const Tensor& index) {
    const Tensor total = sum(index, {0}, true);
    return Tensors{total, sum(gather(total, 0, remainder(index, 1)), 0)};
  };
  const Tensor index = integers({4}, 9, 1);
  auto step = compile(function, {.mode = Mode::fused});
  CHECK(bits_of(step(index)) == bits_of(function(index)));
}

TEST_CASE("nothing from outside is written by a kernel that checks", "[fuse]") {
  const Tensor table = noise({40, 9}, 1);
  Tensor x = noise({40, 9}, 2);
  auto step = compile([&](const Tensor& index) { add_(x, gather(table, 1, index)); },
                      {.mode = Mode::fused});
  step(integers({40, 9}, 9, 2));
  const auto before = bits_of(x);
  CHECK_THROWS(step(integers({40, 9}, 9, 2) + 1));
  CHECK(bits_of(x) == before);
  CHECK_THAT(step.explain(), Catch::Contains("1 checked"));
}

}  // namespace brrr::test
