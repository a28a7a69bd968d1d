// Compiled steps when something goes wrong or overlaps: functions that throw, steps in steps,
// threads, tensors that have no values, memory that is shared.
#include <thread>

#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile pain: a function that throws leaves nothing behind", "[compile]") {
  const Tensor w = requires_grad_(noise({4}, 1));
  backward(sum(w * 3));
  Tensor counter = zeros({});
  nn::MLP model({4, 3});
  nn::Parameters parameters(model);
  bool throws = true;
  auto step = compile([&](const Tensor& x) {
    add_(counter, 1);
    const Tensor y = dropout(x, 0.5) * w;
    next_random_step();
    Tensor argument = x;
    mul_(argument, 2);
    zero_grad(w);
    backward(sum(square(y)) + sum(model(x)));
    if (throws) throw std::runtime_error("the user's");
    return y;
  });
  manual_seed(4);
  const std::string drawn = bits_of(rand({4}));
  manual_seed(4);
  const Tensor x = noise({4}, 2);
  const std::string gradient = bits_of(grad(w)), argument = bits_of(x);
  const std::uint32_t version = counter.version(), x_version = x.version();
  const std::int64_t live = memory_stats(cpu).live;
  for (int call = 0; call < 3; ++call) {
    CHECK_THROWS_WITH(step(x), "the user's");
    CHECK(bits_of(grad(w)) == gradient);
    CHECK_FALSE(parameters.gradients()[0].defined());
    CHECK(bits_of(x) == argument);
    CHECK(item(counter) == 0);
    CHECK(counter.version() == version);
    CHECK(x.version() == x_version);
    CHECK(memory_stats(cpu).live == live);
    CHECK(step.report().entries.empty());
  }
  CHECK(bits_of(rand({4})) == drawn);
  manual_seed(4);
  throws = false;
  const std::string got = bits_of(step(x));
  CHECK(item(counter) == 1);
  manual_seed(4);
  const Tensor again = noise({4}, 2);
  CHECK(got == bits_of(dropout(again, 0.5) * detach(w)));
}

TEST_CASE("compile pain: writes of a step are seen by what was recorded before it", "[compile]") {
  const Tensor kept = noise({4}, 1), w = requires_grad_(noise({4}, 2));
  auto step = compile([&] {
    Tensor x = kept;
    add_(x, 1);
  });
  for (int call = 0; call < 3; ++call) {
    const Tensor loss = sum(w * kept);
    step();
    CHECK_THAT(error_of([&] { backward(loss); }), Catch::Contains("mul"));
  }
}

TEST_CASE("compile pain: a replay that writes to an argument spoils what backward kept of it",
          "[compile]") {
  const Tensor w = requires_grad_(noise({4}, 2));
  auto step = compile([](Tensor x) { mul_(x, 2); });
  const Tensor whole = noise({2, 4}, 1), once = noise({4}, 3);
  for (int call = 0; call < 3; ++call) {
    const Tensor row = select(whole, 0, call % 2);
    for (const bool is_fixed : {false, true}) {
      const Tensor spoiled = sum(w * row), through_whole = sum(w * whole),
                   untouched = sum(w * once);
      is_fixed ? step(fixed(row)) : step(row);
      for (const Tensor& loss : {spoiled, through_whole}) {
        CHECK_THAT(
            error_of([&] { backward(loss); }),
            Catch::Contains("mul") && Catch::Contains("which was written to in place since"));
      }
      zero_grad(w);
      backward(untouched);
      CHECK(bits_of(grad(w)) == bits_of(once));
    }
  }
  CHECK(step.report().eager_calls == 0);
}

TEST_CASE("compile pain: results outlive the step that made them", "[compile]") {
  const Tensor w = requires_grad_(noise({4}, 1));
  Tensors kept;
  std::string bits, gradient;
  const std::int64_t live = memory_stats(cpu).live;
  {
    auto step = compile([&](const Tensor& x) {
      zero_grad(w);
      const Tensor y = w * x;
      backward(sum(square(y)));
      return y;
    });
    kept = {step(noise({4}, 2)), step(noise({4}, 2))};
    bits = bits_of(kept[0]);
    gradient = bits_of(grad(w));
    step.clear();
    CHECK(bits_of(kept[1]) == bits);
    CHECK(bits_of(grad(w)) == gradient);
    kept.push_back(step(noise({4}, 2)));
  }
  for (const Tensor& x : kept) CHECK(bits_of(x) == bits);
  CHECK(bits_of(grad(w)) == gradient);
  kept.clear();
  zero_grad(w);
  CHECK(memory_stats(cpu).live == live);
}

TEST_CASE("compile pain: a step may be part of another", "[compile]") {
  Tensor total = zeros({3});
  int calls = 0;
  auto inner = compile([&](const Tensor& x) {
    ++calls;
    add_(total, x);
    return x * 2;
  });
  auto outer = compile([&](const Tensor& x) { return inner(x) + inner(x + 1); });
  const Tensor x = noise({3}, 1);
  for (int call = 0; call < 3; ++call) CHECK(bits_of(outer(x)) == bits_of(x * 2 + (x + 1) * 2));
  CHECK(calls == 2);  // traced with the outer one
  CHECK(inner.report().entries.empty());
  CHECK(bits_of(inner(x)) == bits_of(x * 2));
  CHECK(inner.report().entries.size() == 1);
  CHECK(bits_of(total) ==
        bits_of(((((((zeros({3}) + x) + (x + 1)) + x) + (x + 1)) + x) + (x + 1)) + x));
}

TEST_CASE("compile pain: a step compiled while another is traced", "[compile]") {
  auto outer = compile([](const Tensor& x) {
    auto inner = compile([](const Tensor& y) { return y * 3; });
    return inner(x) + 1;
  });
  for (int call = 0; call < 3; ++call) CHECK(bits_of(outer(ones({2}))) == bits_of(full({2}, 4)));
}

TEST_CASE("compile pain: two threads may call one step", "[compile]") {
  const Tensor w = noise({32}, 1);
  auto step = compile([&](const Tensor& x) { return exp(x * w) + x; });
  std::vector<std::string> expected;
  for (unsigned i = 0; i < 8; ++i) {
    const Tensor x = noise({32}, i);
    expected.push_back(bits_of(exp(x * w) + x));
  }
  int wrong[2] = {0, 0};
  const auto work = [&](int& mistakes) {
    for (unsigned call = 0; call < 400; ++call) {
      mistakes += bits_of(step(noise({32}, call % 8))) != expected[call % 8];
    }
  };
  std::thread first([&] { work(wrong[0]); }), second([&] { work(wrong[1]); });
  first.join();
  second.join();
  CHECK(wrong[0] + wrong[1] == 0);
  CHECK(step.report().entries.size() == 1);
  CHECK(step.report().entries[0].calls == 800);
}

TEST_CASE("compile pain: other threads run for real while one traces", "[compile]") {
  auto step = compile([](const Tensor& x) {
    Tensor there;
    std::thread other([&] { there = ones({2}) + 1; });
    other.join();
    return x * there;  // met as any tensor from outside
  });
  for (int call = 0; call < 3; ++call) CHECK(bits_of(step(ones({2}))) == bits_of(full({2}, 2)));
}

TEST_CASE("compile pain: a traced tensor that was not returned is refused", "[compile]") {
  Tensor leaked, loss;
  const Tensor w = requires_grad_(noise({3}, 1));
  auto step = compile([&](const Tensor& x) {
    leaked = x * 2;
    loss = sum(x * w);
    return x + 1;
  });
  step(ones({3}));
  const std::string rest =
      " expected a tensor with values, got f32[3] of a step that was traced, which has none: "
      "return "
      "it from the step, or write to a tensor from outside with copy_";
  CHECK(error_of([&] { leaked + 1; }) == "[add]" + rest);
  CHECK(error_of([&] { sum(leaked); }) == "[sum]" + rest);
  CHECK(error_of([&] { fill_(leaked, 1); }) == "[fill_]" + rest);
  Tensor outside = ones({3});
  CHECK(error_of([&] { copy_(outside, leaked); }) == "[copy_]" + rest);
  CHECK_THAT(error_of([&] { item(loss); }),
             Catch::Contains("[item] expected a tensor with values"));
  CHECK_THAT(error_of([&] { to_vector<float>(leaked); }),
             Catch::Contains("[to_vector] expected a tensor with values"));
  CHECK_THAT(error_of([&] { backward(loss); }), Catch::Contains("of a step that was traced"));
  CHECK_FALSE(grad(w).defined());
  CHECK_THAT(error_of([&] { step(leaked); }),
             Catch::Contains("[step] expected tensors with values"));
  auto other = compile([&](const Tensor& x) { return x + leaked; });
  CHECK(error_of([&] { other(ones({3})); }) == "[add]" + rest);
  auto returns = compile([&](const Tensor&) { return leaked; }, {.name = "returns"});
  CHECK(error_of([&] { returns(ones({3})); }) == "[returns]" + rest);
  CHECK(bits_of(step(ones({3}))) == bits_of(full({3}, 2)));
}

TEST_CASE("compile pain: an argument that is also met outside is refused", "[compile]") {
  const Tensor w = noise({4}, 1);
  auto step = compile([&](const Tensor& x) { return x + w; }, {.name = "shared"});
  const std::string refusal =
      "argument 0 shares memory with f32[4], which the step captured; use the argument, or leave "
      "it "
      "out";
  CHECK_THAT(error_of([&] { step(w); }), Catch::Contains(refusal));
  CHECK(error_of([&] { step(slice(cat({w, w}), 0, 0, 4)); }) == "");
  CHECK(bits_of(step(ones({4}))) == bits_of(w + 1));
}

TEST_CASE("compile pain: an argument that shares memory with what a step writes", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    const Tensor state = noise({4}, 1);
    auto step = compile(
        [&](const Tensor& x) {
          Tensor target = state;
          const Tensor before = exp(x * 2);
          add_(target, 1);
          return std::pair(before, x * 2 + 3);
        },
        {.mode = mode});
    for (const Tensor& x : {noise({4}, 2), noise({4}, 3), state, noise({4}, 4)}) {
      const auto [before, after] = step(x);
      for (const Tensor& result : {before, after, state})
        bits[mode == Mode::graph].push_back(bits_of(result));
    }
    if (mode == Mode::eager) continue;
    CHECK(step.report().eager_reasons ==
          std::vector<std::string>{
              "argument 0 shares memory with a captured tensor that the step writes to"});
    CHECK(step.report().entries[0].calls == 3);
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile pain: arguments that share memory, one of which is written", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    auto step = compile(
        [](const Tensor& a, const Tensor& b) {
          const Tensor before = exp(b * 2);
          Tensor target = a;
          add_(target, 1);
          return std::pair(before, b * 2 + 3);
        },
        {.mode = mode});
    const Tensor whole = noise({8}, 2);
    // One after another, then over one another.
    for (const std::int64_t start : {4, 1, 0, 4}) {
      const auto [before, after] = step(slice(whole, 0, 0, 4), slice(whole, 0, start, start + 4));
      for (const Tensor& result : {before, after, whole})
        bits[mode == Mode::graph].push_back(bits_of(result));
    }
    if (mode == Mode::eager) continue;
    CHECK(step.report().eager_reasons ==
          std::vector<std::string>{"arguments 1 and 0 share memory, and the step writes to 0"});
    CHECK(step.report().entries[0].calls == 2);
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile pain: an argument that is written is also read from outside", "[compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    const Tensor w = noise({4}, 1);
    auto step = compile(
        [&](Tensor x) {
          const Tensor before = w * 2;
          add_(x, 1);
          return std::pair(before, w * 3);
        },
        {.mode = mode});
    for (const Tensor& x : {noise({4}, 2), w, noise({4}, 3)}) {
      const auto [before, after] = step(x);
      for (const Tensor& result : {before, after, x, w})
        bits[mode == Mode::graph].push_back(bits_of(result));
    }
    if (mode == Mode::eager) continue;
    CHECK(step.report().eager_reasons ==
          std::vector<std::string>{"argument 0, which the step writes to, shares memory with a "
                                   "tensor that it captured"});
  }
  CHECK(bits[1] == bits[0]);
}

TEST_CASE("compile pain: one tensor as two arguments that are only read", "[compile]") {
  auto step = compile([](const Tensor& a, const Tensor& b) { return a * b; });
  const Tensor x = noise({4}, 1);
  for (int call = 0; call < 3; ++call) CHECK(bits_of(step(x, x)) == bits_of(x * x));
}

TEST_CASE("compile pain: arguments that cannot be replayed are refused by name", "[compile]") {
  auto step = compile([](const Tensor& x, const Tensor& y) { return x * y; }, {.name = "strict"});
  const Tensor good = ones({2});
  const Tensor leaf = requires_grad_(ones({2}));
  CHECK(error_of([&] { step(good, Tensor()); }) ==
        "[strict] expected tensors, got an undefined one as argument 1");
  CHECK(error_of([&] { step(meta({2}), good); }) ==
        "[strict] expected tensors with values, got f32[2] without memory as argument 0");
  CHECK(
      error_of([&] { step(good, leaf); }) ==
      "[strict] expected arguments that require no gradient, got f32[2] as argument 1; make it one "
      "in the step, with requires_grad_(detach(x))");
  CHECK(
      error_of([&] { step(good, leaf * 2); }) ==
      "[strict] expected arguments that require no gradient, got f32[2] as argument 1; make it one "
      "in the step, with requires_grad_(detach(x))");
  CHECK(step.report().entries.empty());
  for (int call = 0; call < 3; ++call) CHECK(bits_of(step(good, good)) == bits_of(good));
  const NoGrad constant;
  CHECK(bits_of(step(good, leaf)) == bits_of(good));
}

TEST_CASE("compile pain: after a replay that throws the next one works", "[compile]") {
  const Tensor table = noise({4, 2}, 1);
  const Tensor w = requires_grad_(noise({2}, 3));
  auto step = compile([&](const Tensor& index) {
    zero_grad(w);
    const Tensor y = embedding(table, index) * w;
    backward(sum(y));
    return dropout(detach(y), 0.5);
  });
  const auto at = [](std::int64_t i) { return tensor<std::int64_t>({0, i}); };
  manual_seed(8);
  step(at(1));
  const std::string second = bits_of(step(at(2)));
  const std::string gradient = bits_of(grad(w));
  manual_seed(8);
  step(at(1));
  const std::int64_t live = memory_stats(cpu).live;
  for (int call = 0; call < 3; ++call)
    CHECK_THAT(error_of([&] { step(at(9)); }),
               Catch::StartsWith("[embedding] expected indices in [0, 4), got 9") &&
                   Catch::Contains(" (at ") && Catch::Contains("test_misuse.cpp:"));
  CHECK(memory_stats(cpu).live == live);
  CHECK(bits_of(step(at(2))) == second);
  CHECK(bits_of(grad(w)) == gradient);
}

TEST_CASE("compile pain: a replay refuses the values that the trace did not see", "[compile]") {
  auto classes = compile([](const Tensor& index) { return one_hot(index, 3); });
  auto looks = compile([](const Tensor& x) {
    checked(x, 0, 4);  // nobody reads the copy
    return x * 2;
  });
  CHECK(looks(full({2}, 3)).defined());
  for (int call = 0; call < 2; ++call)
    CHECK_THAT(error_of([&] { looks(full({2}, 5)); }),
               Catch::StartsWith("[checked] expected values in [0, 4], got 5 at position 0"));
  auto draws = compile([](const Tensor& p) { return bernoulli(p); });
  const auto at = [](std::int64_t i) { return tensor<std::int64_t>({0, i}); };
  for (int call = 0; call < 3; ++call) {
    CHECK(bits_of(classes(at(2))) == bits_of(one_hot(at(2), 3)));
    CHECK_THAT(error_of([&] { classes(at(9)); }),
               Catch::StartsWith("[one_hot] expected values in [0, 2], got 9 at position 1"));
    draws(full({2}, 0.5));
    CHECK_THAT(error_of([&] { draws(full({2}, 1.5)); }),
               Catch::StartsWith("[bernoulli] expected values in [0, 1], got 1.5 at position 0"));
  }
}

TEST_CASE("compile pain: the function's object lives in the step", "[compile]") {
  auto make = [] {
    const auto w = std::make_shared<Tensor>(noise({3}, 1));
    return compile([w](const Tensor& x) { return x * *w; });
  };
  auto step = make();
  auto moved = std::move(step);
  const Tensor x = noise({3}, 2);
  for (int call = 0; call < 3; ++call) CHECK(bits_of(moved(x)) == bits_of(x * noise({3}, 1)));
}

TEST_CASE("compile pain: asking for an entry that is not there", "[compile]") {
  auto step = compile([](const Tensor& x) { return x + 1; }, {.name = "asked"});
  CHECK(error_of([&] { step.graph_text(); }) ==
        "[asked] expected an entry below 0, got 0; call the step first");
  step(ones({2}));
  CHECK_THAT(step.graph_dot(0), Catch::StartsWith("digraph"));
  CHECK(error_of([&] { step.graph_json(-1); }) ==
        "[asked] expected an entry below 1, got -1; call the step first");
  CHECK(error_of([] { compile([] {}, {.most_entries = 0}); }) ==
        "[compile] expected at least one entry, got 0");
}

TEST_CASE("compile: a step may ask for its own report", "[compile]") {
  std::function<CompileReport()> report;
  std::size_t entries = 0;
  auto step = compile([&](const Tensor& x) {
    if (report) entries = report().entries.size();
    return x + 1;
  });
  report = [&] { return step.report(); };
  CHECK(item(step(ones({1}))) == 2);
  CHECK(item(step(ones({}))) == 2);
  CHECK(entries == 1);
}

TEST_CASE("compile: a replay that throws halfway has counted what it wrote", "[compile]") {
  Tensor state = zeros({4});
  const Tensor table = noise({3, 2}, 1);
  auto step = compile([&](const Tensor& index) {
    add_(state, 1);
    return index_select(table, 0, index);
  });
  step(tensor(std::vector<std::int64_t>{0, 2}, {2}));
  const auto before = state.version();
  CHECK_THROWS_WITH(step(tensor(std::vector<std::int64_t>{0, 3}, {2})),
                    Catch::Contains("[index_select]"));
  CHECK(state.version() > before);
  CHECK(bits_of(state) == bits_of(full({4}, 2)));
  CHECK(bits_of(step(tensor(std::vector<std::int64_t>{1, 1}, {2}))) ==
        bits_of(index_select(table, 0, tensor(std::vector<std::int64_t>{1, 1}, {2}))));
}
