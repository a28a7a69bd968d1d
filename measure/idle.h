// Where a device idles in a timeline, and why: gaps between the spans of all of its streams, each
// with a cause. Busy and idle time add up to the time of the steps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/timeline.h>

namespace brrr::measure {

enum class IdleCause : std::uint8_t {
  host,        // what ran next was launched only after the device had gone idle
  dependence,  // it was queued, and the last span to end ran on another stream
  latency,     // it was queued behind the last span, and began within the latency of a launch
  other,       // queued, and idle for longer; or its launch was not recorded
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

// Idle time by who caused it, over all gaps of the same.
struct IdleSource {
  IdleCause cause = IdleCause::other;
  // Of gaps by the host, the innermost host span in them; none: the host was in no recorded span.
  std::optional<HostWork> work = {};
  // That span's name; of dependences and others, what ran next.
  std::string name = {};
  bool replayed = false;  // what ran next is a node of a graph
  std::int64_t ns = 0;
  std::int64_t gaps = 0;  // that it has a part in
};
// "matmul (op)", "launches inside a graph", "another stream, before matmul".
std::string to_string(const IdleSource& source);

struct IdleOptions {
  // The longest gap that counts as the latency of a launch. An H200 takes 0.6 to 2 us between
  // kernels in a stream.
  std::int64_t latency_ns = 4000;
};

struct Occupancy {
  std::int64_t wall_ns = 0;               // of the steps, without the time between them
  std::int64_t busy_ns = 0;               // any stream runs anything
  std::int64_t transfer_ns = 0;           // part of it: copies or fills run, and no kernel
  std::array<std::int64_t, 4> idle_ns{};  // by cause
  std::vector<IdleGap> gaps = {};         // by rising start
  std::vector<IdleSource> sources = {};   // longest first; they add up to the idle time
  std::size_t steps = 0;

  std::int64_t idle(IdleCause cause) const { return idle_ns[static_cast<std::size_t>(cause)]; }
  std::int64_t all_idle_ns() const;
  double busy() const { return share(busy_ns); }
  double share(std::int64_t ns) const {
    return wall_ns > 0 ? static_cast<double>(ns) / static_cast<double>(wall_ns) : 0;
  }
};

// Spans outside of the steps do not count. Of a timeline without steps: from its first span to its
// last.
Occupancy occupancy_of(const Timeline& timeline, const IdleOptions& options = {});

}  // namespace brrr::measure
