// One job at a time, published through one atomic word, the gate: an epoch, whether the job is
// open, and how many workers are inside. A worker enters by raising the count while the gate is
// open; the caller closes the gate and waits for the count to fall to zero, after which no worker
// reads the job.
#include "brrr/tensor/thread_pool.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr {
namespace {

constexpr int kMaxThreads = 256;
constexpr std::int64_t kMostChunks = 256;
constexpr auto kSpin = std::chrono::microseconds(30);

constexpr std::uint64_t kCount = 0xffff;     // workers inside
constexpr std::uint64_t kOpen = 0x10000;     // the job may be entered
constexpr std::uint64_t kEpoch = 0x1000000;  // one job

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int default_threads() {
  const int machine = static_cast<int>(std::thread::hardware_concurrency());
  return count_setting("BRRR_THREADS", machine < 1 ? 1 : std::min(machine, kMaxThreads),
                       kMaxThreads);
}

// The chunks are divided into one stretch for each thread. A thread begins with its own stretch,
// since memory is fastest when read in order, and then takes chunks from others.
struct Stretch {
  alignas(64) std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;
};

struct Job {
  detail::RangeFn run = nullptr;
  void* body = nullptr;
  std::int64_t n = 0, chunk = 0;
  int count = 0;  // of stretches
  Stretch stretches[kMaxThreads];
  alignas(64) std::atomic<int> joined{0};
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // written by the thread that sets `failed`

  void deal(std::int64_t chunks, int threads) {
    count = chunks < threads ? static_cast<int>(chunks) : threads;
    for (int i = 0; i < count; ++i) {
      stretches[i].next.store(chunks * i / count, std::memory_order_relaxed);
      stretches[i].end = chunks * (i + 1) / count;
    }
    joined.store(0, std::memory_order_relaxed);
  }

  void work() {
    const int own = joined.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < count; ++i) {
      Stretch& stretch = stretches[(own + i) % count];
      for (;;) {
        const std::int64_t number = stretch.next.fetch_add(1, std::memory_order_relaxed);
        if (number >= stretch.end || failed.load(std::memory_order_relaxed)) break;
        const std::int64_t begin = number * chunk;
        try {
          run(body, begin, begin + chunk < n ? begin + chunk : n);
        } catch (...) {
          if (!failed.exchange(true, std::memory_order_acq_rel)) failure = std::current_exception();
        }
      }
    }
  }
};

class ThreadPool {
 public:
  int threads() const { return threads_.load(std::memory_order_relaxed); }

  // A loop that is under way keeps its threads, so this never waits, not even inside a body.
  void set_threads(int count) { threads_.store(count, std::memory_order_relaxed); }

  // False when another caller has the workers, or there are none.
  bool try_run(std::int64_t n, std::int64_t chunk, std::int64_t chunks, detail::RangeFn run,
               void* body) {
    std::unique_lock owner(owner_, std::try_to_lock);
    if (!owner) return false;
    const int wanted = threads() - 1;
    if (started_ < wanted) start(wanted);
    if (started_ == 0 || wanted == 0) return false;

    job_.run = run;
    job_.body = body;
    job_.n = n;
    job_.chunk = chunk;
    job_.deal(chunks, wanted + 1);
    gate_.store((gate_.load(std::memory_order_relaxed) + kEpoch) | kOpen,
                std::memory_order_seq_cst);
    wake(chunks - 1);

    thread_context.in_parallel_loop = true;
    job_.work();
    thread_context.in_parallel_loop = false;

    gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spins = 0; gate_.load(std::memory_order_acquire) & kCount; ++spins) {
      if (spins < 2000) {
        relax();
      } else {
        std::this_thread::yield();
      }
    }
    if (job_.failed.load(std::memory_order_relaxed)) {
      job_.failed.store(false, std::memory_order_relaxed);
      std::exception_ptr failure = std::move(job_.failure);
      job_.failure = nullptr;
      owner.unlock();
      std::rethrow_exception(failure);
    }
    return true;
  }

 private:
  // If the system refuses more threads, the pool works with those that run.
  void start(int wanted) {
    try {
      for (; started_ < wanted; ++started_)
        std::thread([this, i = started_] { serve(i); }).detach();
    } catch (const std::system_error&) {
    }
  }

  void wake(std::int64_t helpers) {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    std::lock_guard lock(sleep_);  // locked by a worker from its last check to its sleep
    if (helpers >= started_) {
      bell_.notify_all();
    } else {
      for (std::int64_t i = 0; i < helpers; ++i) bell_.notify_one();
    }
  }

  void serve(int index) {
    thread_context.in_parallel_loop = true;
    std::uint64_t seen = 0;
    const auto has_work = [&] {
      const std::uint64_t gate = gate_.load(std::memory_order_seq_cst);
      return (gate & kOpen) && gate / kEpoch != seen && index < threads() - 1;
    };
    for (;;) {
      const auto start = std::chrono::steady_clock::now();
      bool found = false;
      while (!(found = has_work())) {
        for (int i = 0; i < 8; ++i) relax();
        if (std::chrono::steady_clock::now() - start > kSpin) break;
      }
      if (!found) {
        std::unique_lock lock(sleep_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        bell_.wait(lock, has_work);
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
      }
      std::uint64_t gate = gate_.load(std::memory_order_acquire);
      bool entered = false;
      while ((gate & kOpen) && !entered) {
        entered = gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel);
      }
      seen = gate / kEpoch;
      if (!entered) continue;
      job_.work();
      gate_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  std::mutex owner_;  // locked by the caller of the current job
  int started_ = 0;
  std::atomic<int> threads_{default_threads()};
  Job job_;
  alignas(64) std::atomic<std::uint64_t> gate_{0};
  std::atomic<int> sleepers_{0};
  std::mutex sleep_;
  std::condition_variable bell_;
};

// Workers are detached and may look at the pool until the process ends, so it is never destroyed.
ThreadPool& pool() {
  static ThreadPool* pool = new ThreadPool;
  return *pool;
}

}  // namespace

int num_threads() { return pool().threads(); }

void set_num_threads(int count) {
  if (count < 1) fail("[set_num_threads] expected at least 1, got {}", count);
  pool().set_threads(count < kMaxThreads ? count : kMaxThreads);
}

void detail::run_chunks(std::int64_t n, std::int64_t grain, RangeFn run, void* body) {
  if (grain < 1) grain = 1;
  const std::int64_t grains = (n - 1) / grain + 1;
  const std::int64_t chunk = grain * ((grains - 1) / kMostChunks + 1);
  const std::int64_t chunks = (n - 1) / chunk + 1;
  if (chunks > 1 && !thread_context.in_parallel_loop && pool().try_run(n, chunk, chunks, run, body))
    return;
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    run(body, begin, begin + chunk < n ? begin + chunk : n);
  }
}

}  // namespace brrr
