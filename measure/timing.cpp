// The measuring method: calibrate, warm up, sample, summarize by quartiles.
#include "brrr/measure/timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "brrr/tensor/stream.h"

namespace brrr::measure {

namespace {

// Calls per sample. Calibration also warms up.
long calls_per_sample(const Batch& batch, const Sampling& sampling) {
  batch(1);
  long calls = 1;
  for (;;) {
    const double seconds = std::max(batch(calls), 1e-9);
    if (seconds >= sampling.sample_seconds / 2) {
      const double fitting = sampling.sample_seconds / seconds * static_cast<double>(calls);
      return std::max(1L, std::lround(fitting));
    }
    const double factor = std::clamp(sampling.sample_seconds / seconds, 2.0, 64.0);
    calls = static_cast<long>(static_cast<double>(calls) * factor);
  }
}

int samples_in_budget(const Sampling& sampling, double seconds_a_sample) {
  const double fit = sampling.budget_seconds / std::max(seconds_a_sample, 1e-9);
  return static_cast<int>(std::clamp(fit, 5.0, std::max(5.0, double(sampling.samples))));
}

}  // namespace

double host_seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

std::int64_t host_nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Timing summarize(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    return seconds[static_cast<std::size_t>(
        std::lround(part * static_cast<double>(seconds.size() - 1)))];
  };
  const double median = at(0.5);
  return {.median = median,
          .least = seconds.front(),
          .most = seconds.back(),
          .spread = median > 0 ? (at(0.75) - at(0.25)) / median : 0,
          .samples = static_cast<int>(seconds.size())};
}

Batch synchronized_batch(Device device, std::function<void()> call) {
  return [device, call = std::move(call)](long n) {
    synchronize(device);
    const double start = host_seconds();
    for (long i = 0; i < n; ++i) call();
    synchronize(device);
    return host_seconds() - start;
  };
}

Batch enqueued_batch(Device device, std::function<void()> call) {
  return [device, call = std::move(call)](long n) {
    synchronize(device);
    const double start = host_seconds();
    for (long i = 0; i < n; ++i) call();
    return host_seconds() - start;
  };
}

Batch device_batch(Device device, std::function<void()> call) {
  if (device.is_cpu()) return host_batch(std::move(call));
  return [device, call = std::move(call), start = Event(device, true),
          end = Event(device, true)](long n) mutable {
    const Stream stream = Stream::current(device);
    start.record(stream);
    for (long i = 0; i < n; ++i) call();
    end.record(stream);
    end.synchronize();
    return end.milliseconds_since(start) * 1e-3;
  };
}

namespace {

// The batch that sample `sample` times as its `turn`th of `n`. Samples begin with each batch
// equally often, and every other n samples run in reverse: a batch that leaves the GPU with a lower
// clock does not always precede the same one.
std::size_t batch_of(int sample, std::size_t turn, std::size_t n) {
  const std::size_t first = static_cast<std::size_t>(sample) % n;
  const bool reversed = static_cast<std::size_t>(sample) / n % 2 == 1;
  return (first + (reversed ? n - turn : turn)) % n;
}

// Seconds per call of each batch, sampled alternately.
std::vector<std::vector<double>> sample_all(std::span<const Batch> batches,
                                            const Sampling& sampling) {
  const std::size_t n = batches.size();
  std::vector<long> calls;
  for (const Batch& batch : batches) calls.push_back(calls_per_sample(batch, sampling));
  const auto run_all = [&] {
    double seconds = 0;
    for (std::size_t i = 0; i < n; ++i) seconds += batches[i](calls[i]);
    return seconds;
  };
  for (const double start = host_seconds(); host_seconds() - start < sampling.warm_seconds;) {
    run_all();
  }
  double took = run_all();
  const int samples = samples_in_budget(sampling, took * (1 + sampling.pause));
  std::vector<std::vector<double>> seconds(n);
  for (int sample = 0; sample < samples; ++sample) {
    if (sample > 0 && sampling.stop && sampling.stop()) break;
    for (std::size_t turn = 0; turn < n; ++turn) {
      const std::size_t i = batch_of(sample, turn, n);
      if (sampling.pause > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(sampling.pause * took));
      took = batches[i](calls[i]);
      seconds[i].push_back(took / static_cast<double>(calls[i]));
    }
  }
  return seconds;
}

}  // namespace

std::vector<Timing> time_all(std::span<const Batch> batches, const Sampling& sampling) {
  std::vector<Timing> timings;
  for (std::vector<double>& each : sample_all(batches, sampling))
    timings.push_back(summarize(std::move(each)));
  return timings;
}

Timing time(const Batch& batch, const Sampling& sampling) {
  return time_all({&batch, 1}, sampling)[0];
}

std::pair<Timing, Timing> time_both(const Batch& first, const Batch& second,
                                    const Sampling& sampling) {
  const std::vector<Timing> both = time_all(std::array{first, second}, sampling);
  return {both[0], both[1]};
}

Timing time_relative(const Batch& batch, const Batch& unit, const Sampling& sampling) {
  std::vector<std::vector<double>> seconds = sample_all(std::array{batch, unit}, sampling);
  for (std::size_t i = 0; i < seconds[0].size(); ++i) seconds[0][i] /= seconds[1][i];
  return summarize(std::move(seconds[0]));
}

long calls_in_queue(std::int64_t launches) {
  constexpr std::int64_t kLaunches = 500, kMost = 10;
  return static_cast<long>(
      std::clamp<std::int64_t>(kLaunches / std::max<std::int64_t>(launches, 1), 1, kMost));
}

std::optional<Timing> time_queued(Device device, const std::function<void()>& call, long calls,
                                  int samples) {
  if (device.is_cpu()) return std::nullopt;
  // Shared with the stream, which may outlive a call that throws.
  struct Gate {
    std::binary_semaphore open{0};
    bool in_time = false;
  };
  static constexpr std::chrono::milliseconds kTimeout{500};
  const Stream stream = Stream::current(device);
  Event start(device, true), end(device, true);
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) {
    synchronize(device);
    const auto gate = std::make_shared<Gate>();
    stream.enqueue([gate] { gate->in_time = gate->open.try_acquire_for(kTimeout); });
    start.record(stream);
    for (long n = 0; n < calls; ++n) call();
    end.record(stream);
    gate->open.release();
    synchronize(device);
    if (!gate->in_time) return std::nullopt;
    seconds.push_back(end.milliseconds_since(start) * 1e-3 / static_cast<double>(calls));
  }
  return summarize(std::move(seconds));
}

namespace {

double host_sample(Device device, const std::function<void()>& call, long calls) {
  synchronize(device);
  const double start = host_seconds();
  for (long n = 0; n < calls; ++n) call();
  return (host_seconds() - start) / static_cast<double>(calls);
}

}  // namespace

Timing time_host(Device device, const std::function<void()>& call, long calls, int samples) {
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(host_sample(device, call, calls));
  synchronize(device);
  return summarize(std::move(seconds));
}

std::pair<Timing, Timing> time_host_both(Device device, const std::function<void()>& first,
                                         const std::function<void()>& second, long calls,
                                         int samples) {
  std::vector<double> a, b;
  for (int i = 0; i < samples; ++i) {
    a.push_back(host_sample(device, first, calls));
    b.push_back(host_sample(device, second, calls));
  }
  synchronize(device);
  return {summarize(std::move(a)), summarize(std::move(b))};
}

}  // namespace brrr::measure
