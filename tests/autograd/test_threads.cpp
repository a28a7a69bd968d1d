// Several threads over graphs that share nodes and leaves.
#include <brrr/brrr.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/harness/catch.h"

using namespace brrr;

namespace {

using Numbers = std::vector<double>;
Numbers numbers(const Tensor& x) { return to_vector<double>(x); }
Tensor leaf(double value) { return requires_grad_(full({3}, value, {f64, cpu})); }

// Runs f(i) on n threads that start together; what one throws fails the test.
template <class F>
void on_threads(int n, F f) {
  std::atomic<int> waiting{n};
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting.load() > 0) std::this_thread::yield();
      try {
        f(i);
      } catch (const std::exception&) {
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
}

// A trunk that two tops stand on.
Tensor trunk(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < 50; ++i) y = tanh(y * 0.9 + x);
  return y;
}

}  // namespace

TEST_CASE("two threads differentiate a graph that they share", "[autograd][threads]") {
  const Tensor x = leaf(0.3);
  const Tensor shared = trunk(x);
  const Tensor tops[] = {sum(shared * 2), sum(square(shared))};
  const Numbers expected[] = {numbers(grad(tops[0], x, {.retain_graph = true})),
                              numbers(grad(tops[1], x, {.retain_graph = true}))};
  for (int round = 0; round < 50; ++round) {
    Numbers got[2];
    on_threads(2, [&](int i) { got[i] = numbers(grad(tops[i], x, {.retain_graph = true})); });
    CHECK(got[0] == expected[0]);
    CHECK(got[1] == expected[1]);
  }
}

TEST_CASE("two threads add to the gradient of one leaf", "[autograd][threads]") {
  const Tensor x = leaf(0.3), w = leaf(2);
  const Tensor shared = trunk(x) * w;
  const Tensor tops[] = {sum(shared), sum(shared)};
  const Tensor once = grad(tops[0], w, {.retain_graph = true});
  const int rounds = 30;
  on_threads(2, [&](int i) {
    for (int round = 0; round < rounds; ++round) backward(tops[i], {.retain_graph = true});
  });
  // Every one of them counts: sums of one number have one value in whatever order.
  Tensor expected = once;
  for (int i = 1; i < 2 * rounds; ++i) expected = expected + once;
  CHECK(numbers(grad(w)) == numbers(expected));
}

// What these do is little more than the addition to the leaf's gradient.
TEST_CASE("short backwards that race for one leaf all count", "[autograd][threads]") {
  // Lets the other thread run between an addition and the replacement of the gradient, also on one
  // core.
  struct Slow : Observer {
    void after(const Call& call, std::span<const Tensor>) override {
      if (call.op == Op::add) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } slow;
  const auto race = [](int rounds) {
    const Tensor w = leaf(2);
    on_threads(2, [&](int) {
      const Tensor top = sum(w);
      for (int round = 0; round < rounds; ++round) backward(top, {.retain_graph = true});
    });
    CHECK(numbers(grad(w)) == Numbers(3, 2.0 * rounds));
  };
  {
    const Observing observing(slow);
    race(200);
  }
  race(5000);
}

TEST_CASE("threads record over the same leaves, each its own graph", "[autograd][threads]") {
  const Tensor x = leaf(0.3);
  const Numbers expected = numbers(grad(sum(trunk(x)), x));
  std::vector<Numbers> got(4);
  on_threads(4, [&](int i) {
    for (int round = 0; round < 20; ++round)
      got[static_cast<std::size_t>(i)] = numbers(grad(sum(trunk(x)), x));
  });
  for (const Numbers& each : got) CHECK(each == expected);
}

TEST_CASE("a backward on another thread than the one that recorded", "[autograd][threads]") {
  const Tensor x = leaf(0.3);
  const Tensor y = sum(checkpoint([](const Tensor& v) { return exp(trunk(v)); }, trunk(x)));
  const Numbers expected = numbers(grad(sum(exp(trunk(trunk(x)))), x));
  Numbers got;
  on_threads(1, [&](int) { got = numbers(grad(y, x)); });
  CHECK(got == expected);
}

TEST_CASE("no_grad applies to its thread", "[autograd][threads]") {
  const Tensor x = leaf(1);
  const NoGrad constant;
  bool recorded = false;
  on_threads(1, [&](int) { recorded = requires_grad(x * 2); });
  CHECK(recorded);
  CHECK_FALSE(requires_grad(x * 2));
}

TEST_CASE("graphs are freed on the thread that releases them last", "[autograd][threads]") {
  const std::int64_t before = memory_stats(cpu).live;
  {
    const Tensor x = leaf(0.3);
    for (int round = 0; round < 20; ++round) {
      const Tensor shared = trunk(x);
      std::vector<Tensor> tops = {shared * 2.0, shared * 3.0};
      on_threads(2, [&, mine = &tops](int i) {
        Tensor top = std::move((*mine)[static_cast<std::size_t>(i)]);
        if (round % 2) top = exp(top);
      });
    }
  }
  CHECK(memory_stats(cpu).live == before);
}
