// Memory of a real GPU: no driver allocation in the steady state, exact statistics, out of memory
// as an error after which everything works, and pass-through, which frees every block at once.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "brrr/tensor/allocator.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "tests/gpu/delay.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/malloc_count.h"
#include "tests/harness/memory_checks.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

std::int64_t live() { return memory_stats(kGpu).live; }

// What the driver has left, with everything given back to it that nobody uses.
std::size_t free_on_device() {
  synchronize(kGpu);
  empty_cache(kGpu);
  cu::current_stream(kGpu);
  std::size_t free = 0, total = 0;
  BRRR_CUDA(cuMemGetInfo, &free, &total);
  return free;
}

Tensor bytes_on_gpu(std::size_t bytes) {
  return empty({static_cast<std::int64_t>(bytes / 4)}, {.device = kGpu});
}

// The table with calls in which the libraries may do as they like with host memory.
class UncountedLibraries {
 public:
  UncountedLibraries() {
    cu::open_library(cu::Library::nvrtc);
    cu::open_library(cu::Library::cublaslt);
    real() = cu::table();
    cu::Table wrapped = real();
    wrapped.cuLaunchKernel = [](auto... arguments) {
      const MallocPause pause;
      return real().cuLaunchKernel(arguments...);
    };
    wrapped.cublasLtMatmul = [](auto... arguments) {
      const MallocPause pause;
      return real().cublasLtMatmul(arguments...);
    };
    wrapped.cuMemcpyDtoHAsync = [](auto... arguments) {
      const MallocPause pause;
      return real().cuMemcpyDtoHAsync(arguments...);
    };
    wrapped.cuMemcpyHtoDAsync = [](auto... arguments) {
      const MallocPause pause;
      return real().cuMemcpyHtoDAsync(arguments...);
    };
    wrapped.cuStreamSynchronize = [](auto... arguments) {
      const MallocPause pause;
      return real().cuStreamSynchronize(arguments...);
    };
    cu::install_table(wrapped);
  }
  ~UncountedLibraries() { cu::uninstall_table(); }

 private:
  static cu::Table& real() {
    static cu::Table table;
    return table;
  }
};

}  // namespace

#if BRRR_COUNTS_MALLOC
TEST_CASE("eager CUDA ops allocate nothing in the steady state", "[gpu][runtime][memory]") {
  const Caching on;
  std::vector<SteadyOp> ops = steady_ops(kGpu);
  const Options halves{.dtype = bf16, .device = kGpu};
  const Tensor here = ones({1000}), there = to(here, kGpu), square = ones({64, 64}, halves);
  ops.push_back({"matmul of halves", [&] { matmul(square, square); }});
  ops.push_back({"to the device", [&] { to(here, kGpu); }});
  ops.push_back({"to the host", [&] { to(there, cpu); }});
  const UncountedLibraries uncounted;
  for (const SteadyOp& c : ops) {
    for (int i = 0; i < 200; ++i) c.run();
    synchronize(kGpu);
    const std::int64_t system = memory_stats(kGpu).system_allocations,
                       host = memory_stats(cpu).system_allocations;
    long mallocs;
    {
      const MallocCount count(MallocCount::Threads::this_one);  // the driver has threads of its own
      for (int i = 0; i < 200; ++i) c.run();
      mallocs = count.calls();
    }
    synchronize(kGpu);
    INFO(c.name << ": " << mallocs << " calls of malloc in 200 runs");
    CHECK(mallocs == 0);
    CHECK(memory_stats(kGpu).system_allocations == system);
    CHECK(memory_stats(cpu).system_allocations == host);
  }
}
#endif

TEST_CASE("the driver is called for memory as often as the statistics say",
          "[gpu][runtime][memory]") {
  const Caching on;
  synchronize(kGpu);
  empty_cache(kGpu);
  cu::count_calls(true);
  const std::int64_t before = memory_stats(kGpu).system_allocations;
  {
    std::vector<Tensor> kept;
    for (int i = 1; i < 40; ++i) kept.push_back(ones({i * 100000}, {.device = kGpu}));
    kept.clear();
    for (int i = 1; i < 40; ++i) kept.push_back(ones({i * 100000}, {.device = kGpu}));
  }
  const std::int64_t asked = memory_stats(kGpu).system_allocations - before;
  const long called = cu::call_count("cuMemAlloc");
  cu::count_calls(false);
  CHECK(asked == called);
  CHECK(asked > 0);
}

TEST_CASE("live and peak on CUDA are exact", "[gpu][runtime][memory]") {
  synchronize(kGpu);
  check_live_and_peak(kGpu);
  const Tensor x = empty({1000}, {.device = kGpu});
  CHECK(memory_stats(kGpu).reserved >= live());
}

TEST_CASE("a failure on CUDA leaks nothing", "[gpu][runtime][memory]") {
  const Tensor a = ones({2, 3}, {.device = kGpu}), b = ones({4, 5}, {.device = kGpu});
  const std::int64_t before = live();
  for (int i = 0; i < 50; ++i) {
    CHECK_THROWS_AS(add(a, b), Error);
    CHECK_THROWS_AS(matmul(a, b), Error);
    CHECK_THROWS_AS(cat({a, b}), Error);
    CHECK_THROWS_AS(layer_norm(a, 1, ones({7}, {.device = kGpu})), Error);
    CHECK_THROWS_AS(add(a, ones({2, 3})), Error);
  }
  CHECK(live() == before);
}

TEST_CASE("tensors on different devices are refused by name", "[gpu][runtime]") {
  const Tensor here = ones({3, 3}), there = ones({3, 3}, {.device = kGpu});
  const std::string tail = " expected all tensors on one device, got ";
  CHECK(error_of([&] { add(here, there); }) == "[add]" + tail + "cpu and cuda:0");
  CHECK(error_of([&] { add(there, here); }) == "[add]" + tail + "cuda:0 and cpu");
  CHECK(error_of([&] { matmul(here, there); }) == "[matmul]" + tail + "cpu and cuda:0");
  CHECK(error_of([&] { cat({there, here}); }) == "[cat]" + tail + "cuda:0 and cpu");
  CHECK(error_of([&] { where(gt(there, 0), there, here); }) ==
        "[where]" + tail + "cuda:0 and cuda:0 and cpu");
  CHECK(error_of([&] { index_select(there, 0, arange(2)); }) ==
        "[index_select]" + tail + "cuda:0 and cpu");
  Tensor target = clone(there);
  CHECK(error_of([&] { target += here; }) == "[add_]" + tail + "cuda:0 and cpu");
  CHECK(same_bits(target, there));
  CHECK(error_of([&] { ones({2}, {.device = cuda(15)}); }).find("cuda:15") != std::string::npos);
}

TEST_CASE("more CUDA memory than there is: a typed error, after which everything works",
          "[gpu][runtime][oom]") {
  const Caching on;
  const std::size_t free = free_on_device();
  const Tensor kept = full({1000}, 7, {.device = kGpu});
  const std::int64_t before = live();
  Tensor cached = full({1 << 22}, 1, {.device = kGpu});
  cached = Tensor();
  for (int round = 0; round < 20; ++round) {
    // Both what the driver refuses and what no driver need be asked.
    const std::size_t asked =
        round % 2 ? (free + (std::size_t{8} << 30)) / 4 * 4 : std::size_t{1} << 52;
    std::string text;
    std::size_t requested = 0;
    try {
      bytes_on_gpu(asked);
    } catch (const OutOfMemory& error) {
      text = error.what();
      requested = error.requested();
    }
    INFO(text);
    CHECK(requested == asked);
    CHECK(text.starts_with("[empty] out of memory on cuda:0: requested " + std::to_string(asked) +
                           " bytes, in use " + std::to_string(before) + ", cached "));
    CHECK(text.find(", free on the device ") != std::string::npos);
    CHECK(text.find(" of ") != std::string::npos);
    CHECK(live() == before);
    CHECK(item(sum(ones({10}, {.device = kGpu}))) == 10);
  }
  CHECK(item(sum(kept)) == 7000);
  // In the middle of an op, whose operands stay as they were.
  Tensor column = full({1 << 20, 1}, 2, {.device = kGpu}),
         row = full({1, 1 << 20}, 3, {.device = kGpu});
  try {
    add(column, row);
    FAIL("4 TiB were found");
  } catch (const OutOfMemory& error) {
    CHECK(std::string(error.what()).starts_with("[add] out of memory on cuda:0"));
  }
  CHECK(item(sum(column)) == 2.0 * (1 << 20));
  CHECK(item(sum(row)) == 3.0 * (1 << 20));
}

TEST_CASE("a cache that fills most of the card gives way", "[gpu][runtime][oom]") {
  const Caching on;
  const std::size_t free = free_on_device();
  const Stream other(kGpu);
  for (int round = 0; round < 20; ++round) {
    {
      // In one piece or many, on the default stream or another, with work still under way.
      const StreamGuard guard(round % 3 == 0 ? Stream::default_of(kGpu) : other);
      std::vector<Tensor> pieces;
      const std::size_t count = round % 2 ? 1 : 24;
      for (std::size_t i = 0; i < count; ++i) pieces.push_back(bytes_on_gpu(free / 10 * 6 / count));
      Tensor head = slice(pieces[0], 0, 0, 1000);
      fill_(head, 1);
      delay(500);
      fill_(head, 2);
    }
    CHECK(memory_stats(kGpu).cached() >= static_cast<std::int64_t>(free / 10 * 5));
    Tensor large;
    CHECK_NOTHROW(large = bytes_on_gpu(free / 10 * 8));
    REQUIRE(large.defined());
    Tensor head = slice(large, 0, 0, 1000),
           tail = slice(large, 0, large.numel() - 1000, large.numel());
    fill_(head, round);
    fill_(tail, round);
    CHECK(item(sum(head)) == 1000.0 * round);
    CHECK(item(sum(tail)) == 1000.0 * round);
    if (round % 5 == 4) {
      // Live memory is not given away.
      CHECK_THROWS_AS(bytes_on_gpu(free / 10 * 6), OutOfMemory);
      CHECK(item(sum(tail)) == 1000.0 * round);
    }
  }
  CHECK(free_on_device() + (std::size_t{64} << 20) >= free);
}

TEST_CASE("pass-through on CUDA gives every block back at once", "[gpu][runtime][memory]") {
  const Tensor warm = add(ones({100}, {.device = kGpu}), ones({100}, {.device = kGpu}));
  sum(warm);
  synchronize(kGpu);
  empty_cache(kGpu);
  const PassThrough on;
  const MemoryStats before = memory_stats(kGpu);
  for (int i = 1; i <= 10; ++i) {
    const Tensor a = empty({1000}, {.device = kGpu});
    const MemoryStats now = memory_stats(kGpu);
    CHECK(now.system_allocations == before.system_allocations + i);
    CHECK(now.live == before.live + 4000);
    CHECK(now.reserved == before.reserved + 4000);
  }
  CHECK(memory_stats(kGpu).live == before.live);
  CHECK(memory_stats(kGpu).reserved == before.reserved);
  for (int i = 0; i < 20; ++i) {
    CHECK(item(sum(add(ones({100}, {.device = kGpu}), ones({100}, {.device = kGpu})))) == 200);
    const Tensor x = randn({64, 64}, {.device = kGpu});
    const Tensor y = softmax(matmul(x, x), 1);
    CHECK(std::abs(item(sum(y)) - 64) < 1e-3);
  }
  // Used on another stream when it is dropped.
  const Stream other(kGpu);
  Tensor x = full({1000}, 3, {.device = kGpu});
  const Event written = Stream::default_of(kGpu).record();
  const StreamGuard guard(other);
  other.wait(written);
  delay(2000);
  const Tensor y = sum(x);
  x = Tensor();
  CHECK(item(y) == 3000);
}

TEST_CASE("emptying the cache gives CUDA memory back to the driver", "[gpu][runtime][oom]") {
  const Caching on;
  const std::size_t free = free_on_device();
  {
    std::vector<Tensor> many;
    for (int i = 0; i < 16; ++i) many.push_back(bytes_on_gpu(std::size_t{64} << 20));
  }
  std::size_t left = 0, total = 0;
  BRRR_CUDA(cuMemGetInfo, &left, &total);
  CHECK(left + (std::size_t{900} << 20) <= free);
  CHECK(memory_stats(kGpu).cached() >= std::int64_t{1} << 30);
  CHECK(free_on_device() + (std::size_t{4} << 20) >= free);
  CHECK(memory_stats(kGpu).cached() < std::int64_t{100} << 20);
}
