// Host overhead on the CPU, part by part: a tensor, a view, a dispatch, a small op; and the number
// of system allocations of each.
#include <benchmark/benchmark.h>
#include <brrr/brrr.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "brrr/dispatch/dispatch.h"

namespace {
std::atomic<long> system_allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  system_allocations.fetch_add(1, std::memory_order_relaxed);
  void* block = nullptr;
  if (posix_memalign(&block, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) != 0) {
    throw std::bad_alloc();
  }
  return block;
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace {

using namespace brrr;

template <class Op>
void measure(benchmark::State& state, Op op) {
  for (int i = 0; i < 100; ++i) op();
  const long before = system_allocations.load();
  const std::int64_t blocks = memory_stats(cpu).system_allocations;
  for (auto _ : state) {
    auto result = op();
    benchmark::DoNotOptimize(result);
  }
  const double calls = static_cast<double>(state.iterations());
  state.counters["news"] = static_cast<double>(system_allocations.load() - before) / calls;
  state.counters["blocks"] =
      static_cast<double>(memory_stats(cpu).system_allocations - blocks) / calls;
}

void handle_copy(benchmark::State& state) {
  const Tensor a = ones({1});
  measure(state, [&] { return Tensor(a); });
}
void call_and_lookup(benchmark::State& state) {
  const Tensor a = ones({1}), b = ones({1});
  const Tensor* inputs[] = {&a, &b};
  measure(state, [&] {
    Call call(Op::add, inputs, 2);
    benchmark::DoNotOptimize(call);
    return keys_of(call);
  });
}
void meta_add(benchmark::State& state) {
  const Tensor a = meta({1}), b = meta({1});
  measure(state, [&] { return add(a, b); });
}
void empty_1(benchmark::State& state) {
  const Dims shape{1};
  measure(state, [&] { return empty(shape); });
}
void view_1(benchmark::State& state) {
  const Tensor a = ones({1});
  const Dims shape{1, 1};
  measure(state, [&] { return view(a, shape); });
}
void transpose_2d(benchmark::State& state) {
  const Tensor a = ones({4, 4});
  measure(state, [&] { return transpose(a, 0, 1); });
}
void add_n(benchmark::State& state) {
  const Tensor a = ones({state.range(0)}), b = ones({state.range(0)});
  measure(state, [&] { return add(a, b); });
}
void add_in_place(benchmark::State& state) {
  Tensor a = ones({1});
  const Tensor b = zeros({1});
  measure(state, [&] { return &add_(a, b); });
}
void add_number(benchmark::State& state) {
  const Tensor a = ones({1});
  measure(state, [&] { return add(a, 2.0); });
}
void add_broadcast(benchmark::State& state) {
  const Tensor a = ones({2, 1}), b = ones({1, 2});
  measure(state, [&] { return add(a, b); });
}
void add_promoted(benchmark::State& state) {
  const Tensor a = ones({1}), b = ones({1}, {.dtype = i64});
  measure(state, [&] { return add(a, b); });
}
void sum_64(benchmark::State& state) {
  const Tensor a = ones({64});
  measure(state, [&] { return sum(a); });
}
void matmul_n(benchmark::State& state) {
  const Tensor a = ones({state.range(0), state.range(0)});
  measure(state, [&] { return matmul(a, a); });
}

BENCHMARK(handle_copy);
BENCHMARK(call_and_lookup);
BENCHMARK(meta_add);
BENCHMARK(empty_1);
BENCHMARK(view_1);
BENCHMARK(transpose_2d);
BENCHMARK(add_n)->Arg(1)->Arg(16)->Arg(1024);
BENCHMARK(add_in_place);
BENCHMARK(add_number);
BENCHMARK(add_broadcast);
BENCHMARK(add_promoted);
BENCHMARK(sum_64);
BENCHMARK(matmul_n)->Arg(4)->Arg(64);

}  // namespace

BENCHMARK_MAIN();
