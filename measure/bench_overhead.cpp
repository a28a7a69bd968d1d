// The overhead of an op on tiny tensors, allocation and release of its result included.

#include "brrr/autograd/autograd.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/limits.h"
#include "brrr/measure/watch.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

template <class Op>
Result system_allocations(Device device, Op op) {
  constexpr int kCalls = 10000;
  for (int i = 0; i < 100; ++i) op();
  synchronize(device);
  const std::int64_t before = memory_stats(device).system_allocations;
  for (int i = 0; i < kCalls; ++i) op();
  synchronize(device);
  const std::int64_t made = memory_stats(device).system_allocations - before;
  return {.name = "overhead/system allocations",
          .device = device,
          .value = static_cast<double>(made) / kCalls,
          .unit = "an op",
          .limit = {},
          .limit_name = {}};
}

// Seconds of backward, per node, in chains of multiplications; recording the chain is not timed.
Batch backward_of_chain(const Tensor& leaf, const Tensor& factor) {
  constexpr long kNodes = 1000;
  return [=](long nodes) {
    const long chains = (nodes + kNodes - 1) / kNodes;
    double seconds = 0;
    for (long chain = 0; chain < chains; ++chain) {
      Tensor y = leaf;
      for (long i = 0; i < kNodes; ++i) y = mul(y, factor);
      const double start = host_seconds();
      backward(y);
      seconds += host_seconds() - start;
      zero_grad(leaf);
    }
    return seconds * static_cast<double>(nodes) / static_cast<double>(chains * kNodes);
  };
}

// The time of replays under a watch, that sees every call or, once it knows the step, some.
void overhead_of_watch(const BenchOptions& options, Results& results) {
  constexpr int kKnown = 5000;  // calls until a watch knows a step
  const Tensor x = rand({64}, {.dtype = f32, .device = cpu});
  for (const double seconds : {60.0, 0.0}) {
    const char* const name =
        seconds > 0 ? "overhead/replay, every call watched" : "overhead/replay, some calls watched";
    options.progress(name);
    auto step = compile([&] { return x + 1.0; });
    const Batch replays = host_batch([&] { step(); });
    replays(kKnown);
    const Timing alone = time(replays, options.sampling());
    const Watch watch({.seconds = seconds});
    replays(kKnown);
    const Timing watched = time(replays, options.sampling());
    results.push_back(time_result(name, cpu, watched, &alone, "a replay that nobody watches"));
  }
}

void overhead_on_cpu(const BenchOptions& options, Results& results) {
  const Options here{.dtype = f32, .device = cpu};
  const Sampling sampling = options.sampling();
  const auto add_batch = [&](const char* name, const Batch& batch, const Batch& limit,
                             const char* limit_name) {
    options.progress(name);
    const auto [ours, bare] = time_both(batch, limit, sampling);
    results.push_back(time_result(name, cpu, ours, &bare, limit_name));
  };
  const auto add_result = [&](const char* name, auto op, const Batch& limit,
                              const char* limit_name) {
    add_batch(name, host_batch(op), limit, limit_name);
  };
  constexpr const char* kSmallAdd = "malloc, plain loop, free";
  constexpr const char* kMalloc = "malloc, free";

  const Tensor a = rand({1}, here), b = rand({1}, here);
  const Tensor column = rand({2, 1}, here), row = rand({1, 2}, here);
  const Tensor p = rand({1024}, here), q = rand({1024}, here), r = rand({64}, here);
  const Tensor x = rand({64, 64}, here), y = rand({64, 64}, here);
  const Dims one{1}, square{1, 1};
  add_result(
      "overhead/add 1", [&] { return add(a, b); }, plain_small_add(1), kSmallAdd);
  add_result(
      "overhead/add [2,1]+[1,2]", [&] { return add(column, row); }, plain_small_add(4), kSmallAdd);
  add_result(
      "overhead/add 1024", [&] { return add(p, q); }, plain_small_add(1024), kSmallAdd);
  const Tensor w = requires_grad_(ones({1}, here));
  add_result(
      "overhead/add 1, recorded", [&] { return add(w, b); }, plain_small_add(1), kSmallAdd);
  add_batch("overhead/backward, a node of 1000 mul", backward_of_chain(w, b), plain_small_add(1),
            kSmallAdd);
  add_result(
      "overhead/view", [&] { return view(a, square); }, plain_malloc(64), kMalloc);
  add_result(
      "overhead/empty", [&] { return empty(one, here); }, plain_malloc(64), kMalloc);
  add_result(
      "overhead/sum 64", [&] { return sum(r); }, plain_sum(64, 1), "plain loop");
  add_result(
      "overhead/matmul 64x64", [&] { return matmul(x, y); }, bare_gemm(64, 1),
      "bare sgemm, one thread");
  results.push_back(system_allocations(cpu, [&] { return add(a, b); }));
  overhead_of_watch(options, results);
}

void overhead_on_cuda(const BenchOptions& options, Results& results) {
  const Device device = options.device;
  const Options here{.dtype = f32, .device = device};
  const Sampling sampling = options.sampling();
  const auto add_result = [&](const char* name, const std::function<Tensor()>& op) {
    options.progress(name);
    const std::optional<BareLaunches> bare = bare_launches(device, op);
    if (!bare) fail("[bench] expected {} to launch kernels and nothing else", name);
    const auto [ours, limit] = time_both(synchronized_batch(device, op),
                                         synchronized_batch(device, bare->launch), sampling);
    results.push_back(time_result(name, device, ours, &limit, "bare launches of the same kernels"));
  };
  const Tensor a = rand({256}, here), b = rand({256}, here), x = rand({64, 64}, here),
               y = rand({64, 64}, here);
  add_result("overhead/add 256", [&] { return add(a, b); });
  add_result("overhead/add [64,1]+[1,64]",
             [c = rand({64, 1}, here), r = rand({1, 64}, here)] { return add(c, r); });
  add_result("overhead/sum 64x64", [&] { return sum(x); });

  options.progress("overhead/matmul 64x64");
  const MatmulProblem problem{.m = 64, .n = 64, .k = 64};
  const BareMatmul bare = bare_matmul(device, problem, {&x, 1}, {&y, 1});
  const auto [ours, limit] =
      time_both(synchronized_batch(device, [&] { matmul(x, y); }), bare.synchronized, sampling);
  results.push_back(
      time_result("overhead/matmul 64x64", device, ours, &limit, "bare cublasLtMatmul"));

  const Dims square{16, 16}, one{1};
  const Timing view_time = time(host_batch([&] { return view(a, square); }), sampling);
  results.push_back(time_result("overhead/view", device, view_time, nullptr, ""));
  const Timing empty_time = time(host_batch([&] { return empty(one, here); }), sampling);
  results.push_back(time_result("overhead/empty", device, empty_time, nullptr, ""));
  results.push_back(system_allocations(device, [&] { return add(a, b); }));
}

}  // namespace

void bench_overhead(const BenchOptions& options, Results& results) {
  manual_seed(options.seed);
  options.device.is_cpu() ? overhead_on_cpu(options, results) : overhead_on_cuda(options, results);
}

}  // namespace brrr::measure
