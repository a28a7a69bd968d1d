// Experiments on memory: the bandwidth of its levels, and of copies between host and device.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "brrr/measure/lab_experiments.h"
#include "brrr/measure/machine.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure::lab {
namespace {

// A level of memory, and a working set that fits into it and into no faster one.
struct Level {
  const char* name;
  std::int64_t bytes;
  Timing timing = {};
  double bandwidth = 0;
};

std::vector<Level> levels_of(const LabOptions& options) {
  if (options.device.is_cuda()) {
    const std::vector<Gpu> gpus = describe_gpus();
    const auto index = static_cast<std::size_t>(options.device.index);
    const std::int64_t l2 =
        std::max<std::int64_t>(index < gpus.size() ? gpus[index].l2_bytes : 0, 1 << 20);
    return {{"L2", l2 / 2}, {"device memory", l2 * (options.quick ? 4 : 16)}};
  }
  const CacheSizes caches = cache_sizes();
  const std::int64_t most = std::int64_t{options.quick ? 64 : 256} << 20;
  return {{"L1", caches.l1 * 3 / 4},
          {"L2", caches.l2 / 2},
          {"L3", std::min(caches.l3 / 4, most / 8)},
          {"DRAM", std::max(std::min(4 * caches.l3, most), most / 2)}};
}

// Reads and writes a working set: on the CPU one core does, on CUDA replayed in-place additions.
BandwidthLimit pass_over(const LabOptions& options, std::int64_t bytes) {
  if (options.device.is_cpu()) {
    const std::int64_t n = bytes / 12;
    const int rounds = static_cast<int>(std::max<std::int64_t>(1, (1 << 20) / bytes));
    return {plain_add(n, 1, rounds), 12.0 * static_cast<double>(n) * rounds, "plain loop of adds"};
  }
  constexpr int kPasses = 8;
  const PreparedStep step = prepare(
      options.device,
      [x = rand({bytes / 4}, here(options))]() mutable {
        for (int i = 0; i < kPasses; ++i) add_(x, 0.5);
      },
      Mode::graph);
  return {device_batch(options.device, step.call), step.bytes, "in-place additions"};
}

void measure_level(const LabOptions& options, Level& level) {
  options.progress(fmt::format("{} KiB", level.bytes >> 10));
  const BandwidthLimit pass = pass_over(options, level.bytes);
  level.timing = time(pass.batch, options.sampling());
  level.bandwidth = pass.bytes / level.timing.median;
}

// A copy of `bytes`, and the wait until it is done.
Batch waited_copy(const LabOptions& options, std::int64_t bytes, bool pinned) {
  const Dims shape{bytes / 4};
  const Tensor from =
      pinned ? make_pinned_tensor(f32, shape) : rand(shape, {.dtype = f32, .device = cpu});
  if (pinned) fill_(Tensor(from), 0.5);
  return host_batch([from, to = empty(shape, here(options)), device = options.device] {
    copy_bytes(to, from);
    synchronize(device);
  });
}

// The times of copies by size, and what they are made of: t = latency + bytes / bandwidth.
struct Transfers {
  std::vector<std::pair<double, double>> points;  // bytes, seconds
  double spread = 0;

  double latency() const { return points.front().second; }
  double bandwidth() const { return points.back().first / (points.back().second - latency()); }
  double expected(double bytes) const { return latency() + bytes / bandwidth(); }
  double error_at(const std::pair<double, double>& point) const {
    return std::abs(point.second / expected(point.first) - 1);
  }
  std::pair<double, double> worst() const {
    return *std::ranges::max_element(points, {},
                                     [this](const auto& point) { return error_at(point); });
  }
  double largest_error() const { return error_at(worst()); }
  std::string worst_text(const char* name) const {
    const auto [bytes, seconds] = worst();
    return fmt::format("{}: a copy of {:.0f} KiB takes {} us, where the sum is {}", name,
                       bytes / 1024, number_text(seconds * 1e6),
                       number_text(expected(bytes) * 1e6));
  }
  std::string text(const char* name) const {
    return fmt::format("{}: {} us + bytes / {} GB/s, within {:.0f} %", name,
                       number_text(latency() * 1e6), number_text(bandwidth() * 1e-9),
                       100 * largest_error());
  }
};
Transfers time_transfers(const LabOptions& options, const char* name, bool pinned) {
  Transfers found;
  const std::int64_t last = std::int64_t{options.quick ? 16 : 64} << 20;
  for (std::int64_t bytes = 16; bytes <= last; bytes *= options.quick ? 16 : 4) {
    options.progress(fmt::format("{} of {} bytes", name, bytes));
    const Timing timing = time(waited_copy(options, bytes, pinned), options.sampling());
    found.points.emplace_back(static_cast<double>(bytes), timing.median);
    found.spread = std::max(found.spread, timing.spread);
  }
  return found;
}

void add_transfers(const char* name, const Transfers& found, Finding& finding) {
  finding.readings.push_back({.name = fmt::format("{}: latency", name),
                              .value = found.latency() * 1e6,
                              .unit = "us",
                              .spread = found.spread});
  finding.readings.push_back({.name = fmt::format("{}: bandwidth", name),
                              .value = found.bandwidth() * 1e-9,
                              .unit = "GB/s",
                              .spread = found.spread});
  finding.readings.push_back({.name = fmt::format("{}: bytes of which latency is half", name),
                              .value = found.latency() * found.bandwidth()});
  // Latency alone: what bandwidth would allow takes less than a tenth of it.
  finding.readings.push_back(
      {.name = fmt::format("{}: 16 bytes, over their time at the bandwidth", name),
       .value = found.latency() * found.bandwidth() / 16,
       .claim = Interval::at_least(10),
       .spread = found.spread,
       .miss = found.text(name)});
  Series times{name, {}};
  for (const auto& [bytes, seconds] : found.points) times.points.emplace_back(bytes, seconds * 1e6);
  finding.plot->series.push_back(std::move(times));
  finding.why += (finding.why.empty() ? "" : "; ") + found.text(name);
}

}  // namespace

Finding memory_ladder(const LabOptions& options) {
  std::vector<Level> levels = levels_of(options), sweep;
  for (Level& level : levels) measure_level(options, level);
  const int factor = !options.quick ? 2 : options.device.is_cpu() ? 8 : 4;
  const std::int64_t first = levels.front().bytes / (options.device.is_cpu() ? 1 : 8);
  for (std::int64_t bytes = first; bytes < levels.back().bytes; bytes *= factor)
    sweep.push_back({"", bytes});
  for (Level& each : sweep) measure_level(options, each);
  Series rates{"GB/s", {}};
  for (const Level& each : sweep)
    rates.points.emplace_back(static_cast<double>(each.bytes), each.bandwidth * 1e-9);
  rates.points.emplace_back(static_cast<double>(levels.back().bytes),
                            levels.back().bandwidth * 1e-9);
  if (options.device.is_cuda()) {
    const std::int64_t bytes = std::int64_t{64} << 20;
    const Timing copied = time(waited_copy(options, bytes, true), options.sampling());
    levels.push_back({"host link", bytes, copied, static_cast<double>(bytes) / copied.median});
  }
  Finding finding;
  const auto kib = [](const Level& level) { return static_cast<double>(level.bytes) / 1024; };
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Level& level = levels[i];
    finding.readings.push_back({.name = level.name,
                                .value = level.bandwidth * 1e-9,
                                .unit = "GB/s",
                                .spread = level.timing.spread});
    finding.why +=
        fmt::format("{}{} KiB in {} move {} GB/s", i == 0 ? "" : ", ", number_text(kib(level)),
                    level.name, number_text(level.bandwidth * 1e-9));
    if (i == 0) continue;
    const Level& nearer = levels[i - 1];
    finding.readings.push_back(
        {.name = fmt::format("{} over {}", nearer.name, level.name),
         .value = nearer.bandwidth / level.bandwidth,
         .claim = Interval::at_least(1.2),
         .spread = std::max(nearer.timing.spread, level.timing.spread),
         .miss = fmt::format("{} moves {} GB/s and {} {}", nearer.name,
                             number_text(nearer.bandwidth * 1e-9), level.name,
                             number_text(level.bandwidth * 1e-9))});
  }
  if (options.device.is_cpu()) finding.why += ", by 1 core";
  finding.plot = Plot{"bytes of the working set", {rates}, "GB/s"};
  return finding;
}

Finding transfers(const LabOptions& options) {
  Finding finding;
  finding.plot = Plot{"bytes", {}, "time, us"};
  if (options.device.is_cpu()) {
    add_transfers("between buffers", time_transfers(options, "copies", false), finding);
    finding.why +=
        "; the CPU computes in the host's memory, so that there is no link to cross, and "
        "caches hold the smaller copies";
    return finding;
  }
  const Transfers pageable = time_transfers(options, "pageable", false),
                  pinned = time_transfers(options, "pinned", true);
  add_transfers("pageable", pageable, finding);
  add_transfers("pinned", pinned, finding);
  finding.readings.push_back({.name = "pinned: largest error of latency + bytes / bandwidth",
                              .value = 100 * pinned.largest_error(),
                              .unit = "%",
                              .claim = Interval{0, 50},
                              .spread = pinned.spread,
                              .miss = pinned.worst_text("pinned")});
  const BandwidthLimit copy = copy_limit(options);
  const Timing copied = time(copy.batch, options.sampling());
  const double memory = copy.bytes / copied.median;
  finding.readings.push_back(
      {.name = "device memory", .value = memory * 1e-9, .unit = "GB/s", .spread = copied.spread});
  finding.readings.push_back(
      {.name = "device memory over the link",
       .value = memory / pinned.bandwidth(),
       .claim = Interval::at_least(10),
       .spread = std::max(copied.spread, pinned.spread),
       .miss = fmt::format("{} GB/s in device memory, {} over the link", number_text(memory * 1e-9),
                           number_text(pinned.bandwidth() * 1e-9))});
  return finding;
}

}  // namespace brrr::measure::lab
