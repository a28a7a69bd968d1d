// Attributes a device's idle time in a timeline: gaps between the spans of all streams, each with a
// cause. Busy and idle time add up to the time of the steps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/timeline.h>

namespace brrr::measure {

enum class IdleCause : std::uint8_t {
  host,        // the next span was launched only after the device had gone idle
  dependence,  // the next span was queued, and the last span to end ran on another stream
  latency,     // queued behind the last span, and began within the latency of a launch
  other,       // queued, and began later; or its launch was not recorded
};
inline constexpr std::array<const char*, 4> kIdleCauses = {"host", "dependence", "latency",
                                                           "other"};

struct IdleGap {
  std::int64_t start_ns = 0, end_ns = 0;
  IdleCause cause = IdleCause::other;
  std::optional<std::size_t> next = {};  // the span that ends it; none: the step ended
  std::optional<std::size_t> host =
      {};  // of a gap by the host: the host span that fills most of it

  std::int64_t ns() const { return end_ns - start_ns; }
};

// The idle time of all gaps with the same cause and origin.
struct IdleSource {
  IdleCause cause = IdleCause::other;
  // For host gaps, the kind of the innermost host span; none: the host was in no recorded span.
  std::optional<HostWork> work = {};
  // The name of that span; for other causes, of the next device span.
  std::string name = {};
  bool replayed = false;  // the next device span is a node of a graph
  std::int64_t ns = 0;
  std::int64_t gaps = 0;  // the number of gaps it contributes to
};
// "matmul (op)", "launches inside a graph", "another stream, before matmul".
std::string to_string(const IdleSource& source);

struct IdleOptions {
  // The longest gap that counts as the latency of a launch. An H200 takes 0.6 to 2 us between
  // kernels in a stream.
  std::int64_t latency_ns = 4000;
};

struct Occupancy {
  std::int64_t wall_ns = 0;               // time of the steps, without the time between them
  std::int64_t busy_ns = 0;               // at least one stream is busy
  std::int64_t transfer_ns = 0;           // part of busy_ns: only copies or fills run
  std::array<std::int64_t, 4> idle_ns{};  // by cause
  std::vector<IdleGap> gaps = {};         // by rising start
  std::vector<IdleSource> sources = {};   // longest first; they add up to the idle time
  std::size_t steps = 0;

  std::int64_t idle(IdleCause cause) const { return idle_ns[static_cast<std::size_t>(cause)]; }
  double busy() const { return share(busy_ns); }
  double share(std::int64_t ns) const {
    return wall_ns > 0 ? static_cast<double>(ns) / static_cast<double>(wall_ns) : 0;
  }
};

// Ignores spans outside of the steps. A timeline without steps counts from its first span to its
// last.
Occupancy occupancy_of(const Timeline& timeline, const IdleOptions& options = {});

}  // namespace brrr::measure
