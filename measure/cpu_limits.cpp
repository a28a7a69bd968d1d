// The CPU's limits: plain loops over arrays, split over plain threads, and direct BLAS calls.
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "brrr/measure/limits.h"
#include "brrr/ops/cpu/blas.h"
#include "brrr/tensor/sanitizers.h"

// Each loop is compiled twice; an ifunc resolver chooses. Resolvers run before sanitizers can.
#if defined(__x86_64__) && !BRRR_ASAN && !BRRR_TSAN
#define BRRR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define BRRR_CLONES
#endif

namespace brrr::measure {
namespace {

BRRR_CLONES void add_loop(const float* __restrict a, const float* __restrict b, float* __restrict c,
                          long n) {
  for (long i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

BRRR_CLONES void sum_loop(const float* __restrict a, float* result, long n) {
  float parts[64] = {};
  long i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int j = 0; j < 64; ++j) parts[j] += a[i + j];
  }
  for (; i < n; ++i) parts[0] += a[i];
  float total = 0;
  for (float part : parts) total += part;
  *result = total;
}

template <class T>
constexpr int kChains = 384 / sizeof(T);  // 12 registers of AVX2
constexpr long kRounds = 1 << 18;

template <class T>
[[gnu::always_inline]] inline void multiply_add_rounds(T* x, T a, T b) {
  T chains[kChains<T>];
  for (int j = 0; j < kChains<T>; ++j) chains[j] = x[j];
  for (long i = 0; i < kRounds; ++i) {
    for (int j = 0; j < kChains<T>; ++j) chains[j] = chains[j] * a + b;
  }
  for (int j = 0; j < kChains<T>; ++j) x[j] = chains[j];
}
BRRR_CLONES void multiply_adds(float* x, float a, float b) { multiply_add_rounds(x, a, b); }
BRRR_CLONES void multiply_adds(double* x, double a, double b) { multiply_add_rounds(x, a, b); }

// A fork-join team of threads, synchronized by a barrier.
class Team {
 public:
  explicit Team(int threads) : size_(threads), gate_(threads) {
    for (int i = 1; i < threads; ++i) {
      threads_.emplace_back([this, i] {
        for (;;) {
          gate_.arrive_and_wait();
          if (!work_) return;
          work_(i);
          gate_.arrive_and_wait();
        }
      });
    }
  }
  ~Team() {
    work_ = nullptr;
    gate_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }
  void run(std::function<void(int)> work) {
    work_ = std::move(work);
    gate_.arrive_and_wait();
    work_(0);
    gate_.arrive_and_wait();
  }

 private:
  int size_;
  std::barrier<> gate_;
  std::function<void(int)> work_;
  std::vector<std::thread> threads_;
};

struct FreeMemory {
  void operator()(float* memory) const { std::free(memory); }
};
using Floats = std::unique_ptr<float, FreeMemory>;

Floats random_floats(std::int64_t n, unsigned seed) {
  const std::size_t bytes = (static_cast<std::size_t>(n) * sizeof(float) + 63) / 64 * 64;
  float* values = static_cast<float*>(std::aligned_alloc(64, bytes));
  if (!values) throw std::bad_alloc();
  std::minstd_rand engine(seed);
  for (std::int64_t i = 0; i < n; ++i)
    values[i] = static_cast<float>(engine() & 0xffff) / 65536.f - 0.5f;
  return Floats(values);
}

// A team and its arrays. Each thread gets a range of whole cache lines.
struct Shared {
  Team team;
  std::int64_t n;
  Floats a, b, c;

  std::pair<std::int64_t, std::int64_t> share(int thread) const {
    const std::int64_t lines = (n + 15) / 16, size = team.size();
    return {lines * thread / size * 16, std::min(n, lines * (thread + 1) / size * 16)};
  }
};

template <class Loop>
Batch team_batch(std::int64_t n, int threads, bool binary, Loop loop) {
  const std::shared_ptr<Shared> shared(new Shared{Team(threads), n, random_floats(n, 1),
                                                  binary ? random_floats(n, 2) : nullptr,
                                                  random_floats(n, 3)});
  return host_batch([shared, loop] {
    shared->team.run([&](int thread) {
      const auto [begin, end] = shared->share(thread);
      loop(*shared, thread, begin, end - begin);
    });
  });
}

}  // namespace

Batch plain_add(std::int64_t elements, int threads, int rounds) {
  return team_batch(elements, threads, true, [rounds](Shared& s, int, long begin, long n) {
    for (int i = 0; i < rounds; ++i) {
      add_loop(s.a.get() + begin, s.b.get() + begin, s.c.get() + begin, n);
      asm volatile("" : : : "memory");
    }
  });
}

CacheSizes cache_sizes() {
  const auto size = [](int name, std::int64_t usual) {
    const std::int64_t bytes = ::sysconf(name);
    return bytes > 0 ? bytes : usual;
  };
  return {size(_SC_LEVEL1_DCACHE_SIZE, 32 << 10), size(_SC_LEVEL2_CACHE_SIZE, 512 << 10),
          size(_SC_LEVEL3_CACHE_SIZE, 16 << 20)};
}

Batch plain_sum(std::int64_t elements, int threads) {
  // Each thread writes its partial sum to a cache line of its own.
  return team_batch(elements, threads, false, [](Shared& s, int thread, long begin, long n) {
    sum_loop(s.a.get() + begin, s.c.get() + thread * 16L, n);
  });
}

MultiplyAdds plain_multiply_adds(DType dtype, int threads) {
  const auto team = std::make_shared<Team>(threads);
  const auto run = [&](auto number) -> MultiplyAdds {
    using T = decltype(number);
    return {host_batch([team] {
              team->run([](int thread) {
                T x[kChains<T>];
                for (int j = 0; j < kChains<T>; ++j) x[j] = static_cast<T>(j + thread);
                multiply_adds(x, static_cast<T>(0.75), static_cast<T>(0.25));
                asm volatile("" : : "r"(x) : "memory");
              });
            }),
            2.0 * kChains<T> * kRounds * threads};
  };
  return dtype == DType::f64 ? run(0.0) : run(0.f);
}

Batch plain_small_add(std::int64_t elements) {
  std::shared_ptr<float> a = random_floats(elements, 1), b = random_floats(elements, 2);
  return host_batch([a, b, elements] {
    float* c = static_cast<float*>(std::malloc(static_cast<std::size_t>(elements) * sizeof(float)));
    add_loop(a.get(), b.get(), c, elements);
    asm volatile("" : : "r"(c) : "memory");
    std::free(c);
  });
}

Batch plain_malloc(std::size_t bytes) {
  return host_batch([bytes] {
    void* block = std::malloc(bytes);
    asm volatile("" : : "r"(block) : "memory");
    std::free(block);
  });
}

Batch bare_gemm(std::int64_t size, int threads) {
  const std::int64_t n = size * size;
  std::shared_ptr<float> a = random_floats(n, 1), b = random_floats(n, 2), c = random_floats(n, 3);
  return [=, m = static_cast<int>(size)](long calls) {
    const int before = blas_is_openblas() ? openblas_get_num_threads() : 0;
    if (blas_is_openblas()) openblas_set_num_threads(threads);
    const double start = host_seconds();
    for (long i = 0; i < calls; ++i) {
      cblas_sgemm(kBlasRowMajor, kBlasAsIs, kBlasAsIs, m, m, m, 1.f, a.get(), m, b.get(), m, 0.f,
                  c.get(), m);
    }
    const double seconds = host_seconds() - start;
    if (blas_is_openblas()) openblas_set_num_threads(before);
    return seconds;
  };
}

}  // namespace brrr::measure
