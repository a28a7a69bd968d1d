// The micro-benchmarks. Every result stands beside a limit that was measured in the same run: the
// same work done with as little as possible in between (a plain loop, a bare library call, a device
// copy).
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
  std::string unit;  // "ns" and "us": less is better; "GB/s", "GFLOP/s": more is better
  std::optional<double> limit;
  std::string limit_name;
  double spread = 0;  // of the samples behind the value, as a part of it

  std::optional<double> ratio() const {
    if (!limit || *limit == 0) return std::nullopt;
    return value / *limit;
  }
};

struct BenchOptions {
  Device device;
  std::uint64_t seed = 0;
  bool quick = false;  // small sizes and few samples: shows that it runs
  std::function<void(const std::string& name)> progress = [](const std::string&) {};

  Sampling sampling() const {
    return quick ? Sampling{.samples = 5, .sample_seconds = 2e-4, .budget_seconds = 0.01}
                 : Sampling{};
  }
};

using Results = std::vector<Result>;

Results bench_overhead(const BenchOptions& options);
Results bench_pointwise(const BenchOptions& options);
Results bench_matmul(const BenchOptions& options);
Results bench_reduce(const BenchOptions& options);

// The result of timings: a time in ns, or an amount of work (bytes, flops) over time in units of
// 1e9 a second.
Result time_result(std::string name, Device device, const Timing& ours, const Timing* limit,
                   std::string limit_name);
Result rate_result(std::string name, Device device, const char* unit, double work,
                   const Timing& ours, double limit_work, const Timing& limit,
                   std::string limit_name);

}  // namespace brrr::measure
