// Timing: medians of many samples after warm-up, each long enough for the clock's resolution.
// Batches to be compared are sampled alternately, so that disturbances of the machine affect both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <brrr/tensor/device.h>

namespace brrr::measure {

// Seconds per call over all samples.
struct Timing {
  double median = 0;
  double least = 0;
  double most = 0;
  double spread = 0;  // interquartile range, relative to the median
  int samples = 0;

  // The spread is too large for the median to be reliable.
  bool disturbed() const { return spread > 0.10; }
};

struct Sampling {
  int samples = 25;
  double sample_seconds = 2e-3;  // a sample repeats the call until it lasts about this long
  // Limits the number of samples, to at least five.
  double budget_seconds = 1.0;
  // Calls before the first sample, in which a GPU at its power limit settles on a clock.
  double warm_seconds = 0;
  // Idle time before each sample, relative to the one before. A GPU at its power limit lowers its
  // clock; with pauses it keeps the highest.
  double pause = 0;
  // Asked after each round of samples: true ends them.
  std::function<bool()> stop = {};
};

// Makes `n` calls and returns the seconds that they took.
using Batch = std::function<double(long n)>;

double host_seconds();            // a monotonic clock
std::int64_t host_nanoseconds();  // the same

// The median, range and spread of samples in seconds.
Timing summarize(std::vector<double> seconds);

// By the host's clock, without waiting for a device.
template <class Call>
Batch host_batch(Call call) {
  return [call = std::move(call)](long n) mutable {
    const double start = host_seconds();
    for (long i = 0; i < n; ++i) call();
    return host_seconds() - start;
  };
}

// By the host's clock, from the first call until the device has finished the last.
Batch synchronized_batch(Device device, std::function<void()> call);

// By the host's clock, until the last call returns, on a stream that was idle before the first.
Batch enqueued_batch(Device device, std::function<void()> call);

// By device events; on the CPU the same as host_batch.
Batch device_batch(Device device, std::function<void()> call);

Timing time(const Batch& batch, const Sampling& sampling = {});
std::vector<Timing> time_all(std::span<const Batch> batches, const Sampling& sampling = {});
std::pair<Timing, Timing> time_both(const Batch& first, const Batch& second,
                                    const Sampling& sampling = {});

// The time of a call of `batch` relative to that of a call of `unit`, sample by sample: what slows
// the machine down for a while affects both, and not their ratio.
Timing time_relative(const Batch& batch, const Batch& unit, const Sampling& sampling = {});

// The number of calls, of `launches` launches each, that a stream can queue without blocking the
// host.
long calls_in_queue(std::int64_t launches);

// Device time of a call. The stream is blocked until `calls` calls are queued, so that the device
// never waits for the host. Empty on the CPU, or if the stream cannot queue that many calls.
std::optional<Timing> time_queued(Device device, const std::function<void()>& call, long calls,
                                  int samples);

// Host time of a call: the mean of `calls` calls on an idle stream, few enough that none waits for
// the device.
Timing time_host(Device device, const std::function<void()>& call, long calls, int samples);
std::pair<Timing, Timing> time_host_both(Device device, const std::function<void()>& first,
                                         const std::function<void()>& second, long calls,
                                         int samples);

}  // namespace brrr::measure
