// Large pointwise ops, relative to memory bandwidth. Each case states the bytes that it must read
// and write.
#include "brrr/measure/bench.h"
#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

struct PointwiseCase {
  const char* name;
  double bytes;
  std::function<Tensor()> op;
};

// On n x n matrices; the same cases on both devices.
std::vector<PointwiseCase> cases(std::int64_t n, Device device) {
  const double elements = static_cast<double>(n) * static_cast<double>(n);
  const double f32_bytes = 4 * elements, half_bytes = 2 * elements;
  const auto make = [&](const Dims& shape, DType dtype) {
    return rand(shape, {.dtype = dtype, .device = device});
  };
  const Tensor a = make({n, n}, f32), b = make({n, n}, f32);
  const Tensor row = make({n}, f32), column = make({n, 1}, f32);
  const Tensor mask = gt(a, 0.5), at = transpose(a, 0, 1);
  const Tensor left = slice(a, 1, 0, n / 2), right = slice(b, 1, n / 2, n);
  const Tensor even = slice(a, 1, 0, n, 2), odd = slice(b, 1, 1, n, 2);
  const Tensor f16_a = make({n, n}, f16), f16_b = make({n, n}, f16);
  const Tensor bf16_a = make({n, n}, bf16), bf16_b = make({n, n}, bf16);
  return {
      {"pointwise/add", 3 * f32_bytes, [=] { return add(a, b); }},
      {"pointwise/cos", 2 * f32_bytes, [=] { return cos(a); }},
      {"pointwise/gelu", 2 * f32_bytes, [=] { return gelu(a); }},
      {"pointwise/where", 3 * f32_bytes + elements, [=] { return where(mask, a, b); }},
      {"pointwise/mul by a number", 2 * f32_bytes, [=] { return mul(a, 1.5); }},
      {"pointwise/add row", 2 * f32_bytes, [=] { return add(a, row); }},
      {"pointwise/add column", 2 * f32_bytes, [=] { return add(a, column); }},
      {"pointwise/add row to column", f32_bytes, [=] { return add(row, column); }},
      {"pointwise/add transposed", 3 * f32_bytes, [=] { return add(b, at); }},
      {"pointwise/add both transposed", 3 * f32_bytes,
       [=] { return add(transpose(a, 0, 1), transpose(b, 0, 1)); }},
      {"pointwise/add half of each row", 1.5 * f32_bytes, [=] { return add(left, right); }},
      // Whole cache lines are read, though half of each is used.
      {"pointwise/add every second", 2.5 * f32_bytes, [=] { return add(even, odd); }},
      {"pointwise/add f16", 3 * half_bytes, [=] { return add(f16_a, f16_b); }},
      {"pointwise/add bf16", 3 * half_bytes, [=] { return add(bf16_a, bf16_b); }},
      {"pointwise/cos f16", 2 * half_bytes, [=] { return cos(f16_a); }},
      {"pointwise/cos bf16", 2 * half_bytes, [=] { return cos(bf16_a); }},
      {"pointwise/cast f32 to bf16", f32_bytes + half_bytes, [=] { return cast(a, bf16); }},
  };
}

}  // namespace

void bench_pointwise(const BenchOptions& options, Results& results) {
  manual_seed(options.seed);
  const Device device = options.device;
  const Sampling sampling = options.sampling();
  // 8M floats on the CPU and 2^28 on a GPU exceed any cache.
  const std::int64_t side = options.quick ? 256 : device.is_cpu() ? 2896 : 16384;
  const BandwidthLimit limit = bandwidth_limit(
      options, {device.is_cpu() ? plain_add(side * side, num_threads()) : Batch(),
                12.0 * static_cast<double>(side * side), "plain loop of adds, as many threads"});
  for (const PointwiseCase& one : cases(side, device)) {
    options.progress(one.name);
    const auto [ours, bare] =
        time_both(device_batch(device, [&] { one.op(); }), limit.batch, sampling);
    results.push_back(
        rate_result(one.name, device, "GB/s", one.bytes, ours, limit.bytes, bare, limit.name));
  }
}

}  // namespace brrr::measure
