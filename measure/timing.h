// How long something takes: medians of many samples, each long enough to be read well, after
// warming up. Two things that are to be compared are sampled in turn, so that a slow moment of the
// machine falls on both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <brrr/tensor/device.h>

namespace brrr::measure {

// Seconds per call over all samples.
struct Timing {
  double median = 0;
  double least = 0;
  double most = 0;
  double spread = 0;  // distance between the quartiles, as a part of the median
  int samples = 0;

  // The quartiles lie so far apart that the median says little.
  bool disturbed() const { return spread > 0.10; }
};

struct Sampling {
  int samples = 25;
  double sample_seconds = 2e-3;  // a sample repeats the call until it lasts about this long
  double budget_seconds =
      1.0;  // fewer samples, but at least five, where all of them would last longer
  // Calls before the first sample: a card at its power limit settles on a clock in that time.
  double warm_seconds = 0;
};

// Makes `n` calls and returns the seconds that they took.
using Batch = std::function<double(long n)>;

double host_seconds();  // a clock that only goes forward

// By the host's clock, without waiting for a device.
template <class Call>
Batch host_batch(Call call) {
  return [call = std::move(call)](long n) mutable {
    const double start = host_seconds();
    for (long i = 0; i < n; ++i) call();
    return host_seconds() - start;
  };
}

// By the host's clock, from the first call until the device is done with the last.
Batch synchronized_batch(Device device, std::function<void()> call);

// By the device's own events; on the CPU the same as host_batch.
Batch device_batch(Device device, std::function<void()> call);

Timing time(const Batch& batch, const Sampling& sampling = {});
std::pair<Timing, Timing> time_both(const Batch& first, const Batch& second,
                                    const Sampling& sampling = {});

// So many calls of so many launches each that a stream takes them without making the host wait.
long calls_in_queue(std::int64_t launches);

// What a call takes on the device alone: its stream is held up until `calls` of them are queued, so
// that the device never waits for the host. Nothing on the CPU, and where a stream does not take
// that much.
std::optional<Timing> time_queued(Device device, const std::function<void()>& call, long calls,
                                  int samples);

// What a call takes of the host's time: `calls` of them, few enough that none waits for the device,
// on a stream that was idle.
Timing time_host(Device device, const std::function<void()>& call, long calls, int samples);
std::pair<Timing, Timing> time_host_both(Device device, const std::function<void()>& first,
                                         const std::function<void()>& second, long calls,
                                         int samples);

}  // namespace brrr::measure
