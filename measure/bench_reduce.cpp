// Reductions, relative to the bandwidth at which their input can be read.
#include <algorithm>

#include "brrr/measure/bench.h"
#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

struct ReduceCase {
  const char* name;
  std::function<Tensor(const Tensor&)> op;
};

const ReduceCase kCases[] = {
    {"reduce/sum rows", [](const Tensor& x) { return sum(x, {1}); }},
    {"reduce/sum columns", [](const Tensor& x) { return sum(x, {0}); }},
    {"reduce/sum all", [](const Tensor& x) { return sum(x); }},
    {"reduce/max rows", [](const Tensor& x) { return max(x, {1}); }},
    {"reduce/max columns", [](const Tensor& x) { return max(x, {0}); }},
    {"reduce/norm all", [](const Tensor& x) { return norm(x); }},
    {"reduce/argmax rows", [](const Tensor& x) { return argmax(x, 1); }},
};

}  // namespace

void bench_reduce(const BenchOptions& options, Results& results) {
  manual_seed(options.seed);
  const Device device = options.device;
  const std::int64_t rows = options.quick ? 256 : device.is_cpu() ? 4096 : 16384;
  const std::int64_t columns = options.quick ? 256 : 4096;
  const double bytes = 4.0 * static_cast<double>(rows * columns);

  // On a GPU calls cycle through several inputs, so that none is cached.
  const int sets = device.is_cpu() ? 1 : 4;
  const BandwidthLimit limit = bandwidth_limit(
      options, {device.is_cpu() ? plain_sum(rows * columns, num_threads()) : Batch(), bytes,
                "plain loop, as many threads"});

  const auto run = [&](const std::string& name, DType dtype, const ReduceCase& one) {
    options.progress(name);
    std::vector<Tensor> inputs;
    for (int i = 0; i < sets; ++i)
      inputs.push_back(rand({rows, columns}, {.dtype = dtype, .device = device}));
    std::size_t next = 0;
    const Batch ours = device_batch(device, [&] { one.op(inputs[next++ % inputs.size()]); });
    const auto [timing, bare] = time_both(ours, limit.batch, options.sampling());
    const double read = bytes / 4 * static_cast<double>(size_of(dtype));
    results.push_back(
        rate_result(name, device, "GB/s", read, timing, limit.bytes, bare, limit.name));
  };
  for (const ReduceCase& one : kCases) run(one.name, f32, one);
  for (const ReduceCase& one : std::span(kCases, 3))
    run(std::string(one.name) + " bf16", bf16, one);
}

}  // namespace brrr::measure
