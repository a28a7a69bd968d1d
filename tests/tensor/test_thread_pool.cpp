// The fork-join pool: every element once, chunks that depend on the range only, exceptions,
// nesting, many callers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "brrr/tensor/error.h"
#include "brrr/tensor/thread_pool.h"
#include "tests/harness/catch.h"

namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

class Threads {
 public:
  explicit Threads(int count) : before_(brrr::num_threads()) { brrr::set_num_threads(count); }
  ~Threads() { brrr::set_num_threads(before_); }

 private:
  int before_;
};

std::vector<Range> chunks_of(std::int64_t n, brrr::Grain grain) {
  std::mutex mutex;
  std::vector<Range> chunks;
  brrr::parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    std::lock_guard lock(mutex);
    chunks.emplace_back(begin, end);
  });
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

}  // namespace

TEST_CASE("chunks cover a range once and do not depend on the number of threads", "[thread_pool]") {
  for (const auto& [n, grain] :
       {Range{0, 10}, {1, 10}, {10, 10}, {11, 10}, {1000, 1}, {100003, 7}, {5, 0}}) {
    std::vector<std::vector<Range>> seen;
    for (int threads : {1, 2, 4}) {
      Threads guard(threads);
      seen.push_back(chunks_of(n, grain));
    }
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
    std::int64_t at = 0;
    for (const auto& [begin, end] : seen[0]) {
      CHECK(begin == at);
      CHECK(begin < end);
      CHECK((end - begin >= grain || end == n));
      at = end;
    }
    CHECK(at == n);
  }
}

TEST_CASE("an exception in a body reaches the caller, and the pool works on", "[thread_pool]") {
  Threads guard(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ran{0};
    CHECK_THROWS_AS(brrr::parallel_for(1000, 1,
                                       [&](std::int64_t begin, std::int64_t) {
                                         ++ran;
                                         if (begin >= 500) throw std::runtime_error("half way");
                                       }),
                    std::runtime_error);
    CHECK(ran.load() >= 1);
    std::atomic<std::int64_t> sum{0};
    brrr::parallel_for(1000, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    CHECK(sum.load() == 1000);
  }
}

TEST_CASE("a loop inside a loop runs in place", "[thread_pool]") {
  Threads guard(4);
  std::atomic<std::int64_t> sum{0};
  brrr::parallel_for(64, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      brrr::parallel_for(100, 7, [&](std::int64_t b, std::int64_t e) { sum += e - b; });
    }
  });
  CHECK(sum.load() == 6400);
}

TEST_CASE("several callers share the pool", "[thread_pool]") {
  Threads guard(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      std::vector<std::int64_t> values(5000);
      for (int round = 0; round < 100; ++round) {
        brrr::parallel_for(5000, 50, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            values[static_cast<std::size_t>(i)] = i * (c + 1);
        });
        if (std::accumulate(values.begin(), values.end(), std::int64_t{0}) != 12497500 * (c + 1))
          ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("the number of threads can change between loops and must be positive", "[thread_pool]") {
  Threads guard(2);
  for (int threads : {1, 5, 2, 8, 1, 3}) {
    brrr::set_num_threads(threads);
    CHECK(brrr::num_threads() == threads);
    std::atomic<std::int64_t> sum{0};
    brrr::parallel_for(10000, 10,
                       [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    CHECK(sum.load() == 10000);
  }
  CHECK_THROWS_AS(brrr::set_num_threads(0), brrr::Error);
}

TEST_CASE("a pool has as many threads as it has ranges, and no more", "[thread_pool]") {
  constexpr int most = 256;  // threads, and chunks of a loop
  Threads guard(2);
  for (const int threads : {most - 1, most, most + 1}) {
    brrr::set_num_threads(threads);
    CHECK(brrr::num_threads() == std::min(threads, most));
    for (const std::int64_t n : {most - 1, most, most + 1, 2 * most, 2 * most + 1}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(n));
      brrr::parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      CHECK(std::ranges::all_of(visits, [](const auto& count) { return count.load() == 1; }));
      CHECK(chunks_of(n, 1).size() <= most);
    }
  }
}

TEST_CASE("the number of threads may be set inside a loop, for the next one", "[thread_pool]") {
  Threads guard(3);
  for (int round = 0; round < 20; ++round) {
    const int next = 1 + round % 4;
    std::atomic<std::int64_t> sum{0};
    brrr::parallel_for(1000, 1, [&](std::int64_t begin, std::int64_t end) {
      brrr::set_num_threads(next);
      sum += end - begin;
    });
    CHECK(sum.load() == 1000);
    CHECK(brrr::num_threads() == next);
  }
}

namespace {

// The threads that run the chunks of one loop, each of which takes so long.
std::set<std::thread::id> threads_of(std::int64_t chunks, brrr::Grain grain,
                                     std::chrono::microseconds time) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  brrr::parallel_for(chunks, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto until = std::chrono::steady_clock::now() + (end - begin) * time;
    while (std::chrono::steady_clock::now() < until) {
    }
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return threads;
}

constexpr brrr::Grain kShort(1, 1000);  // wakes no worker

void let_workers_sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

}  // namespace

TEST_CASE("chunks are of the grain that threads share, whatever wakes them", "[thread_pool]") {
  for (int threads : {1, 2, 4}) {
    Threads guard(threads);
    CHECK(chunks_of(1000, {10, 100000}) == chunks_of(1000, 10));
    CHECK(chunks_of(100003, {7, 50}) == chunks_of(100003, 7));
  }
}

TEST_CASE("loops of few chunks, one after another, run each chunk once", "[thread_pool]") {
  Threads guard(8);
  std::int64_t wrong = 0;
  for (std::int64_t round = 0; round < 20000; ++round) {
    const std::int64_t chunks = 2 + round % 5;
    std::atomic<std::int64_t> sum{0};
    brrr::parallel_for(chunks, {1, round % 3 ? 1 : 1000},
                       [&](std::int64_t begin, std::int64_t end) {
                         for (; begin < end; ++begin) sum += begin + 1;
                       });
    wrong += sum.load() != chunks * (chunks + 1) / 2;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a short loop wakes no worker", "[thread_pool]") {
  Threads guard(2);
  std::size_t fewest = 2;
  for (int round = 0; round < 10 && fewest > 1; ++round) {
    let_workers_sleep();
    fewest = std::min(fewest, threads_of(2, kShort, std::chrono::microseconds(500)).size());
  }
  CHECK(fewest == 1);
}

TEST_CASE("short loops in close succession wake workers", "[thread_pool]") {
  Threads guard(2);
  let_workers_sleep();
  std::size_t most = 1;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (most < 2 && std::chrono::steady_clock::now() < until)
    most = std::max(most, threads_of(2, kShort, std::chrono::microseconds(10)).size());
  CHECK(most == 2);
}
