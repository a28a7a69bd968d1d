// Arguments and results of a compiled function: containers, numbers, shapes and layouts.
#include <array>
#include <tuple>

#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

#include "brrr/tensor/tensor_impl.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: results that share memory do so after each call", "[compile]") {
  const Tensor outside = noise({4}, 1);
  auto step = compile([&](const Tensor& x) {
    const Tensor made = x * 2;
    return std::vector<Tensor>{made, made, select(made, 0, 1), x, slice(x, 0, 1, 3), outside};
  });
  for (int call = 0; call < 3; ++call) {
    const Tensor x = noise({4}, 2);
    const std::vector<Tensor> got = step(x);
    CHECK(got[0].shares_storage_with(got[1]));
    CHECK(got[0].shares_storage_with(got[2]));
    CHECK(got[3].shares_storage_with(x));
    CHECK(got[4].data() == static_cast<float*>(x.data()) + 1);
    CHECK(TensorImpl::of(got[5]) == TensorImpl::of(outside));
    CHECK_FALSE(got[0].shares_storage_with(x));
  }
}

TEST_CASE("compile: a function may return nothing, tensors, and containers of them", "[compile]") {
  const Tensor x = noise({3}, 1), y = noise({3}, 2);
  const std::string product = bits_of(x * y), sum = bits_of(x + y), difference = bits_of(x - y);
  auto one = compile([](const Tensor& a, const Tensor& b) { return a * b; });
  auto pair = compile([](const Tensor& a, const Tensor& b) { return std::pair(a * b, a + b); });
  auto tuple =
      compile([](const Tensor& a, const Tensor& b) { return std::tuple(a * b, a + b, a - b); });
  auto array = compile([](const Tensor& a, const Tensor& b) {
    return std::array<Tensor, 2>{a * b, a + b};
  });
  auto list = compile([](const Tensors& all) { return Tensors{all[0] * all[1], all[0] + all[1]}; });
  auto lists = compile([](const Tensors& a, const Tensor& between, const Tensors& b) {
    return a[0] * between + b[0];
  });
  Tensor total = zeros({3});
  auto nothing = compile([&](const Tensor& a) { add_(total, a); });
  for (int call = 0; call < 3; ++call) {
    CHECK(bits_of(one(x, y)) == product);
    const auto [p, s] = pair(x, y);
    CHECK(bits_of(p) == product);
    CHECK(bits_of(s) == sum);
    CHECK(bits_of(std::get<2>(tuple(x, y))) == difference);
    CHECK(bits_of(array(x, y)[1]) == sum);
    CHECK(bits_of(list(Tensors{x, y})) == std::vector{product, sum});
    CHECK(bits_of(lists(Tensors{x}, y, Tensors{x, y})) == bits_of(x * y + x));
    nothing(x);
  }
  CHECK(bits_of(total) == bits_of(zeros({3}) + x + x + x));
  CHECK(lists.report().entries.size() == 1);
  // Lists of other lengths are other steps.
  CHECK(bits_of(lists(Tensors{x}, y, Tensors{y})) == bits_of(x * y + y));
  CHECK(lists.report().entries.size() == 2);
}

TEST_CASE("compile: each number among the arguments has its own entry", "[compile]") {
  enum class Kind { plain, twice };
  auto step = compile([](const Tensor& x, int n, double factor, bool negate, Kind kind) {
    Tensor y = x;
    for (int i = 0; i < n; ++i) y = y * factor;
    if (negate) y = -y;
    return kind == Kind::twice ? y + y : y + 0;
  });
  const Tensor x = noise({3}, 1);
  for (int call = 0; call < 2; ++call) {
    CHECK(bits_of(step(x, 2, 0.5, false, Kind::plain)) == bits_of(x * 0.5 * 0.5 + 0));
    CHECK(bits_of(step(x, 1, 0.5, false, Kind::plain)) == bits_of(x * 0.5 + 0));
    CHECK(bits_of(step(x, 1, 0.25, true, Kind::plain)) == bits_of(-(x * 0.25) + 0));
    CHECK(bits_of(step(x, 1, 0.25, true, Kind::twice)) == bits_of(-(x * 0.25) + -(x * 0.25)));
  }
  const CompileReport report = step.report();
  REQUIRE(report.entries.size() == 4);
  CHECK(report.entries[0].reason == "first call");
  CHECK(report.entries[1].reason == "argument 1 is 1, and was 2");
  for (const CompiledEntry& entry : report.entries) CHECK(entry.calls == 2);
}

TEST_CASE("compile: arguments of other shapes, dtypes and layouts have their own entries",
          "[compile]") {
  auto step = compile([](const Tensor& x) { return exp(x) * 2; }, {.most_entries = 16});
  const Tensor wide = noise({4, 6}, 1);
  const Tensors forms = {wide,
                         transpose(wide, 0, 1),
                         slice(wide, 1, 1, 5, 2),
                         select(wide, 0, 2),
                         expand(select(wide, 0, 1), {3, 6}),
                         cast(wide, f64),
                         noise({2, 2}, 4),
                         slice(noise({8, 6}, 5), 0, 0, 8, 2),
                         transpose(noise({6, 4}, 6), 0, 1),
                         slice(noise({4, 12}, 7), 1, 0, 12, 2)};
  for (int call = 0; call < 3; ++call) {
    for (const Tensor& x : forms) CHECK(bits_of(step(x)) == bits_of(exp(x) * 2));
  }
  const CompileReport report = step.report();
  CHECK(report.entries.size() == forms.size());
  CHECK(report.eager_calls == 0);
  CHECK(report.entries[1].reason == "argument 0 is f32[6, 4], and was f32[4, 6]");
  CHECK(report.entries[0].signature == "(f32[4, 6])");
  // Its offset in its storage is not part of the signature.
  CHECK(bits_of(step(select(wide, 0, 3))) == bits_of(exp(select(wide, 0, 3)) * 2));
  CHECK(step.report().entries.size() == forms.size());
}

TEST_CASE("compile: arguments with gaps may be written", "[compile]") {
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    auto step = compile(
        [](const Tensor& x) {
          Tensor target = x;
          add_(target, 1);
          mul_(target, x);
          return x * 1.5;
        },
        {.mode = mode});
    for (int call = 0; call < 3; ++call) {
      const Tensor whole = noise({4, 6}, 3);
      const Tensor part = slice(whole, 1, 1, 6, 2);
      Tensor expected = clone(whole);
      Tensor place = slice(expected, 1, 1, 6, 2);
      copy_(place, square(part + 1));
      const Tensor got = step(part);
      CHECK(bits_of(whole) == bits_of(expected));
      CHECK(bits_of(got) == bits_of(place * 1.5));
    }
  }
}

TEST_CASE("compile: an argument of no elements may be a view at an offset", "[compile]") {
  const Tensor whole = noise({31, 2}, 1);
  for (const Tensor& none : {transpose(slice(whole, 0, 31, 31), 0, 1), slice(whole, 1, 2, 2),
                             slice(transpose(whole, 0, 1), 1, 16, 16),
                             slice(slice(noise({4, 31}, 2), 0, 2, 2), 1, 1, 31, 2)}) {
    INFO(none.describe());
    for (const Mode mode : {Mode::graph, Mode::fused}) {
      auto step = compile([](const Tensor& x) { return std::pair(exp(x) + 1, sum(x)); },
                          {.mode = mode, .fallback = OnFallback::refuse});
      for (int call = 0; call < 2; ++call) {
        const auto [same, total] = step(none);
        CHECK(Dims(same.shape()) == Dims(none.shape()));
        CHECK(item(total) == 0);
      }
    }
  }
}

TEST_CASE("compile: an expanded argument is refused when it is written", "[compile]") {
  const Tensor x = expand(noise({3}, 1), {2, 3});
  const auto write = [](const Tensor& a) {
    Tensor target = a;
    add_(target, 1);
    return target;
  };
  const std::string eager = error_of([&] { write(x); });
  const std::string graph = error_of([&] { compile(write)(x); });
  CHECK_THAT(eager, Catch::Contains("[add_] expected an output whose elements are distinct"));
  CHECK(graph == eager);
}

TEST_CASE("compile: a fixed argument is read and written in its place", "[compile]") {
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    Tensor slots[2] = {zeros({3}), zeros({3})};
    Tensor total = zeros({3});
    auto step = compile(
        [&](Tensor x, const Tensor& y, const std::vector<Tensor>& rest) {
          add_(x, y);
          copy_(total, x + rest[0] * rest[1]);
          return x * 2;
        },
        {.mode = mode});
    const std::vector<Tensor> rest = {noise({3}, 7), noise({3}, 8)};
    for (int call = 0; call < 8; ++call) {
      Tensor& slot = slots[call % 2];
      const Tensor y = noise({3}, static_cast<std::uint64_t>(call));
      copy_(slot, noise({3}, static_cast<std::uint64_t>(100 + call)));
      const Tensor sum = slot + y;
      CHECK(bits_of(step(fixed(slot), y, fixed(rest))) == bits_of(sum * 2));
      CHECK(bits_of(slot) == bits_of(sum));
      CHECK(bits_of(total) == bits_of(sum + rest[0] * rest[1]));
    }
    if (mode == Mode::eager) continue;
    const CompileReport report = step.report();
    REQUIRE(report.entries.size() == 2);
    CHECK(report.entries[1].reason == "a fixed argument is another tensor");
    CHECK(report.entries[1].calls == 4);
    CHECK(report.eager_calls == 0);
    // What was written to one slot through the other's name.
    auto both = compile([](Tensor a, const Tensor& b) {
      add_(a, 1);
      return b * 2;
    });
    for (int call = 0; call < 3; ++call) {
      const Tensor expected = (slots[0] + 1) * 2;
      CHECK(bits_of(both(fixed(slots[0]), fixed(slots[0]))) == bits_of(expected));
    }
    CHECK(both.report().eager_calls == 0);
  }
}

TEST_CASE("compile: a fixed argument may be a leaf, and another of its shape is another entry",
          "[compile]") {
  const Tensor x = noise({4}, 1), a = requires_grad_(noise({4}, 2)), b = noise({4}, 3);
  auto step = compile([](const Tensor& leaf, const Tensor& input) {
    if (!requires_grad(leaf)) return sum(leaf * input);
    zero_grad(leaf);
    const Tensor loss = sum(square(leaf) * input);
    backward(loss);
    return detach(loss);
  });
  for (int call = 0; call < 3; ++call) {
    CHECK(bits_of(step(fixed(a), x)) == bits_of(sum(square(detach(a)) * x)));
    CHECK(bits_of(grad(a)) == bits_of(detach(a) * 2 * x));
    CHECK(bits_of(step(fixed(b), x)) == bits_of(sum(b * x)));
  }
  CHECK(step.report().entries.size() == 2);
  // Also a call of a known signature: a write to one would be seen through the other.
  CHECK_THAT(error_of([&] { step(fixed(b), b); }),
             Catch::Contains("] expected arguments with memory of their own, got f32[") &&
                 Catch::Contains("] as argument 0 and f32[") &&
                 Catch::Contains("] as fixed argument 0 of one storage; use the fixed argument for "
                                 "both, or pass a clone"));
  CHECK(error_of([&] { step(fixed(Tensor()), x); }) ==
        "[step] expected tensors, got an undefined one as fixed argument 0");
}

// As the lines of a cache: one storage, one shape, addresses of one alignment.
TEST_CASE("compile: fixed slices of one tensor are distinguished by their offset", "[compile]") {
  Tensor cache = noise({8, 16}, 1);
  const Tensor other = noise({16}, 2);
  auto read = compile([](const Tensor& x, const Tensor& y) { return x * y; });
  auto write = compile([](Tensor x, const Tensor& y) { add_(x, y); });
  for (int call = 0; call < 3; ++call) {
    for (const std::int64_t line : {0, 3, 7}) {
      Tensor expected = clone(cache), part = select(expected, 0, line);
      CHECK(bits_of(read(fixed(select(cache, 0, line)), other)) == bits_of(part * other));
      add_(part, other);
      write(fixed(select(cache, 0, line)), other);
      CHECK(bits_of(cache) == bits_of(expected));
    }
  }
  CHECK(read.report().entries.size() == 3);
  CHECK(write.report().eager_calls == 0);
}

TEST_CASE("compile: mode eager passes calls through", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 1));
  int calls = 0;
  auto step = compile(
      [&](const Tensor& x) {
        ++calls;
        return item(sum(x)) > 0 ? w * x : w + x;  // values may be read
      },
      {.mode = Mode::eager});
  const Tensor y = step(ones({3}));
  step(-ones({3}));
  CHECK(calls == 2);
  CHECK(requires_grad(y));
  CHECK(step.report().entries.empty());
  CHECK(step.report().eager_calls == 0);
}

TEST_CASE("compile: replays do not call the function", "[compile]") {
  int calls = 0;
  auto step = compile([&](const Tensor& x) {
    ++calls;
    return x + 1;
  });
  for (int call = 0; call < 5; ++call) step(noise({3}, 1));
  CHECK(calls == 1);
  CHECK(step.report().entries[0].calls == 5);
  step.clear();
  CHECK(step.report().entries.empty());
  step(noise({3}, 1));
  CHECK(calls == 2);
}
