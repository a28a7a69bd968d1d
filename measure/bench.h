// Micro-benchmarks. Every result is compared with a limit measured in the same run: the same work
// done by a plain loop, a bare library call or a device copy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <brrr/measure/timing.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

struct Result {
  std::string name;
  Device device;
  double value = 0;
  std::string unit;  // "ns", "us": lower is better; "GB/s", "GFLOP/s": higher is better
  std::optional<double> limit;
  std::string limit_name;
  double spread = 0;  // interquartile range of the samples, relative to their median

  bool disturbed() const { return spread > 0.10; }
  std::optional<double> ratio() const {
    if (!limit || *limit == 0) return std::nullopt;
    return value / *limit;
  }
};

struct BenchOptions {
  Device device;
  std::uint64_t seed = 0;
  bool quick = false;  // small sizes and few samples: a smoke test
  std::function<void(const std::string& name)> progress = [](const std::string&) {};

  Sampling sampling() const {
    return quick ? Sampling{.samples = 5, .sample_seconds = 2e-4, .budget_seconds = 0.01}
                 : Sampling{};
  }
};

using Results = std::vector<Result>;

// Each adds its results as they are found: `progress` may throw between them.
void bench_overhead(const BenchOptions& options, Results& results);
void bench_pointwise(const BenchOptions& options, Results& results);
void bench_matmul(const BenchOptions& options, Results& results);
void bench_reduce(const BenchOptions& options, Results& results);
void bench_fused(const BenchOptions& options, Results& results);
void bench_remat(const BenchOptions& options, Results& results);

// A result from timings: a time in ns, or work (bytes, FLOPs) per second in units of 1e9.
Result time_result(std::string name, Device device, const Timing& ours, const Timing* limit,
                   std::string limit_name);
Result rate_result(std::string name, Device device, const char* unit, double work,
                   const Timing& ours, double limit_work, const Timing& limit,
                   std::string limit_name);

// Three significant digits, without an exponent.
std::string number_text(double value);

// The limit of work that is bound by memory bandwidth, and the bytes that one call moves.
struct BandwidthLimit {
  Batch batch;
  double bytes = 0;
  const char* name = nullptr;
};
// A device copy on CUDA, `on_cpu` on the CPU.
BandwidthLimit bandwidth_limit(const BenchOptions& options, const BandwidthLimit& on_cpu);

}  // namespace brrr::measure
