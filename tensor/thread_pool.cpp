// Runs one job at a time, published through one atomic word, the gate. The gate holds an epoch, the
// number of workers that the job has chunks for, whether the job is open, and the number of workers
// inside. A worker enters by incrementing the latter while the gate is open and the limit is not
// reached. The caller closes the gate and waits until no worker is inside; from then on no worker
// reads the job.
#include "brrr/tensor/thread_pool.h"

#include <sched.h>

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
using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(30);
// Waking workers costs about as much time as the caller loses by doing this much work alone.
constexpr auto kWorthWaking = std::chrono::microseconds(15);

constexpr std::uint64_t kCount = 0xffff;    // workers inside
constexpr std::uint64_t kOpen = 0x10000;    // the job may be entered
constexpr std::uint64_t kHelper = 0x20000;  // one worker that the job has chunks for
constexpr std::uint64_t kHelpers = kHelper * 0xff;
constexpr std::uint64_t kEpoch = kHelper * 0x100;  // one job

bool has_place(std::uint64_t gate) {
  return (gate & kOpen) && (gate & kCount) < (gate & kHelpers) / kHelper;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int default_threads() {
  return count_setting("BRRR_THREADS", std::min(available_processors(), kMaxThreads), kMaxThreads);
}

// Consecutive chunks of one thread. A thread first takes chunks from its own range, since memory is
// fastest when read in order, and then from the ranges of others.
struct ChunkRange {
  alignas(64) std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;
};

struct Job {
  core::RangeFn run = nullptr;
  void* body = nullptr;
  std::int64_t n = 0, chunk = 0;
  int count = 0;  // of ranges
  ChunkRange ranges[kMaxThreads];
  alignas(64) std::atomic<bool> failed{false};
  std::exception_ptr failure;  // written by the thread that sets `failed`

  void deal(std::int64_t chunks, int threads) {
    count = chunks < threads ? static_cast<int>(chunks) : threads;
    for (int i = 0; i < count; ++i) {
      ranges[i].next.store(chunks * i / count, std::memory_order_relaxed);
      ranges[i].end = chunks * (i + 1) / count;
    }
  }

  // Starts with range `own`. That of the caller is always range 0, so that successive loops over
  // the same data find it in the caches of the same cores.
  void work(int own) {
    for (int i = 0; i < count; ++i) {
      ChunkRange& range = ranges[(own + i) % count];
      for (;;) {
        const std::int64_t number = range.next.fetch_add(1, std::memory_order_relaxed);
        if (number >= range.end || failed.load(std::memory_order_relaxed)) break;
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

  // A running loop keeps its threads, so this never waits and may be called inside a body.
  void set_threads(int count) { threads_.store(count, std::memory_order_relaxed); }

  // Returns false if another caller uses the workers, if there are none, or if all sleep and the
  // job is too short to wake one (unless it is `large`).
  bool try_run(std::int64_t n, std::int64_t chunk, std::int64_t chunks, bool large,
               core::RangeFn run, void* body) {
    std::unique_lock owner(owner_, std::try_to_lock);
    if (!owner) return false;
    const int wanted = threads() - 1;
    if (started_ < wanted) start(wanted);
    if (started_ == 0 || wanted == 0) return false;
    const int helpers = chunks - 1 < wanted ? static_cast<int>(chunks - 1) : wanted;
    const bool all_asleep = sleepers_.load(std::memory_order_relaxed) >= started_;
    if (all_asleep && !large && !is_in_burst()) return false;

    job_.run = run;
    job_.body = body;
    job_.n = n;
    job_.chunk = chunk;
    job_.deal(chunks, wanted + 1);
    const std::uint64_t epoch = gate_.load(std::memory_order_relaxed) / kEpoch + 1;
    gate_.store(epoch * kEpoch + static_cast<std::uint64_t>(helpers) * kHelper + kOpen,
                std::memory_order_seq_cst);
    if (large || all_asleep) wake(helpers);

    thread_context.in_parallel_loop = true;
    job_.work(0);
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

  void wake(int helpers) {
    const int sleepers = sleepers_.load(std::memory_order_seq_cst);
    const int missing = helpers - (started_ - sleepers);
    if (sleepers == 0 || missing <= 0) return;
    std::lock_guard lock(sleep_);  // workers hold it from their last check until they sleep
    if (missing >= sleepers || started_ >= threads()) {
      bell_.notify_all();
    } else {
      for (int i = 0; i < missing; ++i) bell_.notify_one();
    }
  }

  void serve(int index) {
    thread_context.in_parallel_loop = true;
    std::uint64_t seen = 0;
    const auto has_work = [&] {
      const std::uint64_t gate = gate_.load(std::memory_order_seq_cst);
      return has_place(gate) && gate / kEpoch != seen && index < threads() - 1;
    };
    for (;;) {
      if (!spin(has_work)) {
        std::unique_lock lock(sleep_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        bell_.wait(lock, has_work);
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
      }
      std::uint64_t gate = gate_.load(std::memory_order_acquire);
      bool entered = false;
      while (has_place(gate) && !entered) {
        entered = gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel);
      }
      if (!entered) continue;
      seen = gate / kEpoch;
      job_.work(static_cast<int>(gate & kCount) + 1);
      gate_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  template <class Condition>
  static bool spin(const Condition& condition) {
    const auto start = Clock::now();
    do {
      for (int i = 0; i < 16; ++i) {
        if (condition()) return true;
        relax();
      }
    } while (Clock::now() - start < kSpin);
    return false;
  }

  // Whether short jobs have followed one another for so long that more are likely to follow. Then
  // waking a worker pays: it spins from one job to the next and stays awake.
  bool is_in_burst() {
    const auto now = Clock::now();
    if (now - last_small_ > kSpin) burst_ = now;
    last_small_ = now;
    return now - burst_ >= kWorthWaking;
  }

  std::mutex owner_;  // locked by the caller of the current job
  int started_ = 0;
  Clock::time_point burst_, last_small_;  // when small jobs found all workers asleep
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

int core::available_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return std::max(1,
                  static_cast<int>(std::thread::hardware_concurrency()));  // over 1024 processors
}
void set_num_threads(int count) {
  if (count < 1) fail("[set_num_threads] expected at least 1, got {}", count);
  pool().set_threads(count < kMaxThreads ? count : kMaxThreads);
}

void core::run_chunks(std::int64_t n, Grain grain, RangeFn run, void* body) {
  const std::int64_t least = grain.shares < 1 ? 1 : grain.shares;
  const std::int64_t grains = (n - 1) / least + 1;
  const std::int64_t chunk = least * ((grains - 1) / kMostChunks + 1);
  const std::int64_t chunks = (n - 1) / chunk + 1;
  if (chunks > 1 && !thread_context.in_parallel_loop &&
      pool().try_run(n, chunk, chunks, n > grain.wakes, run, body))
    return;
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    run(body, begin, begin + chunk < n ? begin + chunk : n);
  }
}

}  // namespace brrr
