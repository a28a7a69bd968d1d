// Memory: eager ops in the steady state ask the system for nothing, the statistics are exact to the
// byte, and a failure leaks nothing.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <functional>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "brrr/ops/functions.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/thread_pool.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/malloc_count.h"
#include "tests/harness/memory_checks.h"
#include "tests/harness/samples.h"
#include "tests/harness/skip.h"

using namespace brrr;
using brrr::testing::Caching, brrr::testing::PassThrough;

namespace {

// Calls of malloc and of the allocator to the system during 200 runs, after a few to warm up.
struct Calls {
  long mallocs;
  std::int64_t system;
};

Calls calls_of(const std::function<void()>& action) {
  for (int i = 0; i < 20; ++i) action();
  const std::int64_t before = memory_stats(cpu).system_allocations;
  const testing::MallocCount mallocs;
  for (int i = 0; i < 200; ++i) action();
  return {mallocs.calls(), memory_stats(cpu).system_allocations - before};
}

std::int64_t live() { return memory_stats(cpu).live; }

}  // namespace

TEST_CASE("the counter of allocations counts", "[memory]") {
  if (!BRRR_COUNTS_MALLOC) {
    testing::skip("malloc is not glibc's own in this build, so no test counts its calls");
    return;
  }
  const testing::MallocCount mallocs;
  void* volatile block = std::malloc(10);
  int* volatile number = new int(1);
  const long calls = mallocs.calls();
  std::free(block);
  delete number;
  CHECK(calls == 2);
}

TEST_CASE("eager ops allocate nothing in the steady state", "[memory]") {
  const Caching on;
  for (const testing::SteadyOp& c : testing::steady_ops(cpu)) {
    const Calls calls = calls_of(c.run);
    INFO(c.name << ": in 200 runs " << calls.mallocs << " calls of malloc, " << calls.system
                << " of the allocator");
    CHECK(calls.mallocs == 0);
    CHECK(calls.system == 0);
  }
}

TEST_CASE("live and peak are exact", "[memory]") {
  testing::check_live_and_peak(cpu);
  const Tensor x = ones({1000});
  const std::int64_t before = live();
  const Tensor total = sum(x);
  CHECK(live() == before + 4);
}

TEST_CASE("a view keeps the storage, the last one frees it", "[memory]") {
  const std::int64_t before = live();
  Tensor part;
  {
    const Tensor whole = ones({1000});
    part = slice(whole, 0, 500, 501);
  }
  CHECK(live() == before + 4000);
  CHECK(item(part) == 1);
  part = Tensor();
  CHECK(live() == before);
}

TEST_CASE("a failure leaks nothing", "[memory]") {
  const Tensor a = ones({2, 3}), b = ones({4, 5});
  const std::int64_t before = live();
  for (int i = 0; i < 50; ++i) {
    CHECK_THROWS_AS(add(a, b), Error);
    CHECK_THROWS_AS(matmul(a, b), Error);
    CHECK_THROWS_AS(cat({a, b}), Error);
    CHECK_THROWS_AS(layer_norm(a, 1, ones({7})), Error);
  }
  CHECK(live() == before);
}

TEST_CASE("too much memory is a typed error and the next allocation works", "[memory]") {
  const std::int64_t before = live();
  const std::int64_t elements = std::int64_t{1} << 50;
  long right = 0;
  std::string text;
  const int times = BRRR_ASAN || BRRR_TSAN ? 2 : 100;  // sanitizers write lines about each
  for (int i = 0; i < times; ++i) {
    try {
      empty({elements});
    } catch (const OutOfMemory& error) {
      text = error.what();
      right += error.requested() == static_cast<std::size_t>(elements) * 4 &&
               item(sum(ones({10}))) == 10;
    }
  }
  CHECK(right == times);
  INFO(text);
  CHECK(text.starts_with("[empty]"));
  CHECK(text.find(std::to_string(elements * 4)) != std::string::npos);
  CHECK(live() == before);
}

TEST_CASE("pass-through gives every block back at once", "[memory]") {
  const PassThrough on;
  empty_cache(cpu);
  const MemoryStats before = memory_stats(cpu);
  for (int i = 1; i <= 10; ++i) {
    const Tensor a = empty({1000});
    const MemoryStats now = memory_stats(cpu);
    CHECK(now.system_allocations == before.system_allocations + i);
    CHECK(now.live == before.live + 4000);
    CHECK(now.reserved >= before.reserved + 4000);
  }
  CHECK(memory_stats(cpu).live == before.live);
  CHECK(memory_stats(cpu).reserved == before.reserved);
  CHECK(item(sum(add(ones({100}), ones({100})))) == 200);
}

TEST_CASE("emptying the cache gives memory back", "[memory]") {
  const Caching on;
  for (int i = 0; i < 3; ++i) {
    std::vector<Tensor> many;
    for (int k = 1; k < 50; ++k) many.push_back(empty({k * 1000}));
  }
  const MemoryStats full = memory_stats(cpu);
  CHECK(full.cached() > 0);
  empty_cache(cpu);
  const MemoryStats after = memory_stats(cpu);
  CHECK(after.live == full.live);
  CHECK(after.reserved < full.reserved);
  CHECK(after.reserved >= after.live);
}

TEST_CASE("blocks freed on other threads come back", "[memory]") {
  const std::int64_t before = live();
  std::mutex mutex;
  std::vector<Tensor> shelf;
  std::vector<std::thread> threads;
  std::atomic<long> wrong{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      test::Random random(static_cast<std::uint64_t>(t));
      for (int i = 0; i < 1500; ++i) {
        const std::int64_t n = 1 + random.below(3000);
        Tensor mine = full({n}, static_cast<double>(n));
        Tensor other;
        {
          const std::lock_guard lock(mutex);
          if (shelf.size() > 40 || (!shelf.empty() && random.below(2))) {
            const auto at =
                static_cast<std::size_t>(random.below(static_cast<std::int64_t>(shelf.size())));
            other = shelf[at];
            shelf[at] = shelf.back();
            shelf.pop_back();
          }
          shelf.push_back(mine);
        }
        if (!other.defined()) continue;
        const float* data = other.data<float>();
        const auto size = static_cast<float>(other.numel());
        if (data[0] != size || data[other.numel() - 1] != size) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
  std::int64_t held = 0;
  for (const Tensor& t : shelf) held += static_cast<std::int64_t>(t.bytes());
  CHECK(live() == before + held);
  shelf.clear();
  CHECK(live() == before);
}

TEST_CASE("memory that one thread makes and another frees does not pile up", "[memory]") {
  const Caching on;
  std::mutex mutex;
  std::condition_variable changed;
  Tensor slot;
  bool done = false;
  std::thread consumer([&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return slot.defined() || done; });
      if (!slot.defined()) return;
      slot = Tensor();
      changed.notify_all();
    }
  });
  const std::int64_t before = memory_stats(cpu).reserved;
  for (int i = 0; i < 3000; ++i) {
    Tensor made = empty({25000});
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !slot.defined(); });
    slot = std::move(made);
    changed.notify_all();
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  consumer.join();
  CHECK(memory_stats(cpu).reserved - before < 3000 * 100000 / 4);
}

#if defined(__linux__) && !BRRR_ASAN && !BRRR_TSAN  // a sanitizer maps terabytes
TEST_CASE("out of memory a hundred times: the error counts, and the next allocation works",
          "[memory]") {
  const Caching on;
  // As much address space as there is in use, and 256 MiB.
  struct Limit {
    rlimit before{};
    Limit() {
      std::ifstream statm("/proc/self/statm");
      std::size_t pages = 0;
      statm >> pages;
      ::getrlimit(RLIMIT_AS, &before);
      rlimit tight = before;
      tight.rlim_cur = pages * static_cast<std::size_t>(::getpagesize()) + (std::size_t{256} << 20);
      REQUIRE(::setrlimit(RLIMIT_AS, &tight) == 0);
    }
    ~Limit() { ::setrlimit(RLIMIT_AS, &before); }
  } limit;
  const std::int64_t before = live();
  for (int round = 0; round < 100; ++round) {
    std::string text;
    {
      std::vector<Tensor> taken;
      try {
        for (int i = 0; i < 1000; ++i) taken.push_back(empty({(24 + round % 16) << 18}));
      } catch (const OutOfMemory& error) {
        text = error.what();
        CHECK(error.requested() == (24u + static_cast<unsigned>(round) % 16) << 20);
      }
      CHECK(taken.size() >= 2);
      const std::string used = "in use " + std::to_string(live());
      CHECK(text.find("[empty] out of memory on cpu: requested ") == 0);
      CHECK(text.find(used) != std::string::npos);
      CHECK(text.find(", cached ") != std::string::npos);
      std::smatch match;
      REQUIRE(std::regex_search(text, match, std::regex(", free (\\d+) \\(RLIMIT_AS\\)$")));
      // At most 39 MiB, and 2 MiB more to align them to large pages, did not fit.
      CHECK(std::stoll(match[1]) < (std::int64_t{43} << 20));
      CHECK(item(sum(ones({1000}))) == 1000);  // with everything still held
    }
    CHECK(live() == before);
    CHECK(item(sum(ones({1 << 20}))) == 1 << 20);
    empty_cache(cpu);
  }
}
#endif

TEST_CASE("without a limit, an error states the machine's free memory", "[memory]") {
  try {
    empty({std::int64_t{1} << 58});
    FAIL("so much memory");
  } catch (const OutOfMemory& error) {
    CHECK(std::regex_search(error.what(), std::regex(", free \\d+ \\(\\w+\\)$")));
  }
}

TEST_CASE("every write through an op counts, from any thread", "[memory]") {
  Tensor x = zeros({4, 16});
  const std::uint32_t before = x.version();
  constexpr std::uint32_t kWrites = BRRR_TSAN ? 3000 : 4000000;
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ready, row = select(x, 0, t)]() mutable {
      ++ready;
      while (ready < 4) std::this_thread::yield();  // so that all write at a time
      for (std::uint32_t i = 0; i < kWrites; ++i) add_(row, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(x.version() == before + 4 * kWrites);
  CHECK(item(sum(x)) == 4 * 16 * static_cast<double>(kWrites));
}
