// Writes in place while gradients are recorded: correct, or refused with the op and the operand.
#include <brrr/brrr.h>

#include "tests/harness/catch.h"
#include "tests/harness/doubles.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of, test::leaf, test::Numbers, test::numbers, test::wide;

TEST_CASE("computed values may be written in place", "[autograd][in-place]") {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 3;
  add_(y, x);
  mul_(y, 2.0);
  exp_(y);
  const Tensor expected = grad(sum(exp((x * 3 + x) * 2)), x);
  CHECK(numbers(grad(sum(y), x)) == numbers(expected));
  // A constant that something recorded is written into joins the tape.
  Tensor sum_so_far = zeros({2}, {f64, cpu});
  add_(sum_so_far, x * 5);
  CHECK(requires_grad(sum_so_far));
  CHECK(numbers(grad(sum(sum_so_far), x)) == Numbers{5, 5});
  // Overwritten by a constant, it depends on nothing any more.
  Tensor z = x * 2;
  fill_(z, 1.0);
  const Tensor rest = sum(z) + sum(x);
  CHECK(numbers(grad(rest, x)) == Numbers{1, 1});
  Tensor copied = x * 2;
  copy_(copied, x * 7);
  CHECK(numbers(grad(sum(copied), x)) == Numbers{7, 7});
}

TEST_CASE("a former leaf may be computed and overwritten by a constant", "[autograd][in-place]") {
  const Tensor w = leaf({5, 6});
  Tensor x = leaf({1, 2});
  const Tensor y = sum(x * 2 + w);
  requires_grad_(x, false);
  add_(x, w * 1);
  copy_(x, wide({7, 8}));
  CHECK((is_leaf(x) && !requires_grad(x)));
  backward(y);
  CHECK(numbers(grad(w)) == Numbers{1, 1});
  CHECK_FALSE(grad(x).defined());
}

TEST_CASE("a leaf is not written while gradients are recorded", "[autograd][in-place]") {
  Tensor x = leaf({1, 2});
  for (const auto& write : std::vector<std::function<void()>>{[&] { add_(x, 1.0); },
                                                              [&] {
                                                                add_(x, wide({1, 1}));
                                                              },
                                                              [&] { exp_(x); }}) {
    CHECK_THAT(error_of(write), Catch::Contains("_] expected a tensor that does not collect a "
                                                "gradient itself, got the leaf f64[2]") &&
                                    Catch::Contains("no_grad"));
  }
  CHECK_THAT(error_of([&] { fill_(x, 1.0); }), Catch::Contains("got the leaf f64[2]"));
  CHECK(numbers(x) == Numbers{1, 2});
  no_grad([&] { add_(x, 1.0); });
  CHECK(numbers(x) == Numbers{2, 3});
  CHECK(is_leaf(x));
  CHECK(requires_grad(x));
}

TEST_CASE("memory that another tensor sees is not written", "[autograd][in-place]") {
  const Tensor x = leaf({1, 2, 3, 4});
  Tensor y = x * 2;
  Tensor part = slice(y, 0, 0, 2);
  CHECK_THAT(error_of([&] { mul_(part, 2.0); }),
             Catch::Contains("[mul_] expected a tensor that shares its memory with no other while "
                             "gradients are recorded, got f64[2]"));
  CHECK_THAT(error_of([&] { mul_(y, 2.0); }),
             Catch::Contains("[mul_] expected a tensor that shares"));
  CHECK(numbers(y) == Numbers{2, 4, 6, 8});
  // A constant's memory too, when what is written is recorded.
  Tensor buffer = zeros({4}, {f64, cpu});
  Tensor head = slice(buffer, 0, 0, 2);
  CHECK_THAT(error_of([&] { add_(head, slice(x, 0, 0, 2)); }),
             Catch::Contains("[add_] expected a tensor that shares"));
  CHECK(numbers(buffer) == Numbers{0, 0, 0, 0});
  // Among constants nothing is in the way.
  add_(head, 1.0);
  CHECK(numbers(buffer) == Numbers{1, 1, 0, 0});
}

TEST_CASE("a result that its own gradient keeps is refused with that op's name",
          "[autograd][in-place]") {
  const Tensor w = leaf({1, 2});
  Tensor s = sigmoid(w), e = exp(w);
  CHECK(error_of([&] { s *= 2; }) ==
        "[mul_] expected a tensor that no gradient is computed from, got f64[2], a result that "
        "sigmoid's gradient keeps; use mul, or write under no_grad");
  CHECK_THAT(error_of([&] { add_(e, 1.0); }),
             Catch::Contains("[add_]") && Catch::Contains("that exp's gradient keeps"));
  // Through a view, too.
  Tensor first = slice(s, 0, 0, 1);
  CHECK_THAT(error_of([&] { mul_(first, 2.0); }), Catch::Contains("that sigmoid's gradient keeps"));
  backward(sum(s + e));
  CHECK(grad(w).defined());
  CHECK_THAT(error_of([&] { mul_(first, 2.0); }), !Catch::Contains("gradient keeps"));
}

TEST_CASE("a value that the write's own gradient reads is not overwritten",
          "[autograd][in-place]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  Tensor y = x * 2;
  CHECK_THAT(error_of([&] { mul_(y, w); }),
             Catch::Contains("[mul_] expected not to overwrite a value that a gradient is computed "
                             "from, got f64[2]") &&
                 Catch::Contains("use mul"));
  CHECK_THAT(error_of([&] { log_(y); }), Catch::Contains("[log_] expected not to overwrite"));
  CHECK_THAT(error_of([&] { mul_(y, y); }), Catch::Contains("[mul_] expected not to overwrite"));
  CHECK_THAT(error_of([&] { div_(y, y); }), Catch::Contains("[div_] expected not to overwrite"));
  CHECK(numbers(y) == Numbers{2, 4});
  mul_(y, detach(w));  // reads w alone
  CHECK(numbers(grad(sum(y), x)) == Numbers{6, 8});
}

TEST_CASE("a kept value that was written to since is refused by name", "[autograd][in-place]") {
  Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor product = sum(x * w);
  no_grad([&] { mul_(w, 2.0); });
  CHECK_THAT(error_of([&] { backward(product); }),
             Catch::Contains("[backward] mul needs operand 1, f64[2]") &&
                 Catch::Contains("written to in place since: it is at version"));
  CHECK_FALSE(grad(x).defined());
  CHECK_FALSE(grad(w).defined());

  Tensor e = exp(x);
  const Tensor top = sum(e);
  no_grad([&] { add_(e, 1.0); });
  CHECK_THAT(error_of([&] { backward(top); }),
             Catch::Contains("[backward] exp needs output 0, f64[2]"));

  // Also when it was written through another view, and when it is a value in the middle.
  Tensor base = wide({1, 2, 3, 4});
  const Tensor half = slice(base, 0, 0, 2);
  const Tensor scaled = sum(x * half);
  fill_(base, 0.0);
  CHECK_THAT(error_of([&] { backward(scaled); }),
             Catch::Contains("[backward] mul needs operand 1"));
  Tensor middle = x * 2;
  const Tensor squared = sum(middle * middle);
  add_(middle, 1.0);
  CHECK_THAT(error_of([&] { backward(squared); }),
             Catch::Contains("[backward] mul needs operand 0"));

  // What nobody reads may be written: add keeps nothing.
  Tensor a = x * 2;
  const Tensor plain = sum(a + w);
  no_grad([&] { zero_(a); });
  backward(plain);
  CHECK(numbers(grad(x)) == Numbers{2, 2});
}

TEST_CASE("a write on another CPU stream counts as a version from the call on",
          "[autograd][in-place]") {
  const Tensor x = leaf({1, 2});
  Tensor factor = ones({2}, {f64, cpu});
  const Tensor y = sum(x * factor);
  const Stream stream(cpu);
  {
    const StreamGuard guard(stream);
    add_(factor, 1.0);
  }
  CHECK_THAT(error_of([&] { backward(y); }), Catch::Contains("was written to in place since"));
  stream.synchronize();
}
