// The overhead ledger: where the calling thread's time of a step goes, by what the library does.
// Sampled (measure/host_samples.h), so that the step runs as it does otherwise; the classes add up
// to the step's time, and what they lack is said.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/measure/host_samples.h>
#include <brrr/measure/symbols.h>
#include <brrr/measure/timing.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

enum class HostClass : std::uint8_t {
  kernels,     // the CPU's kernels; the calling thread's part where several run
  dispatch,    // op functions: keys, argument checks, observers
  shapes,      // shape and dtype rules, checks of outputs
  allocation,  // tensors, storage, allocators
  autograd,    // recording, engine, accumulation
  launch,      // of CUDA kernels and of replays
  waiting,     // for a device, an event, the threads of a kernel
  optimizer,   // optimizers and modules
  user,        // the step's own code
  other,       // stacks without a known frame
};
inline constexpr std::size_t kHostClasses = 10;
const char* name_of(HostClass each);
const char* description_of(HostClass each);

// A row of the table by which frames are classified: a qualified name, of a function or of what it
// is in. The longest one that fits counts.
struct KnownName {
  const char* name;  // "brrr::on_cpu"
  HostClass of;
};
std::span<const KnownName> known_names();
// Of a frame by itself; none: its caller's class counts.
std::optional<HostClass> class_of(const Frame& frame);

// Samples with names. Equal stacks are one.
struct HostProfile {
  struct Stack {
    std::vector<std::uint32_t> frames;  // indices of `frames`, innermost first
    std::int64_t ns = 0;
    std::int64_t samples = 0;
    bool complete = false;
  };

  std::vector<Frame> frames;
  std::vector<Stack> stacks;
  std::int64_t lost = 0;                          // samples that did not fit in memory
  std::vector<std::string> without_symbols = {};  // modules of brrr without a symbol table

  std::int64_t samples() const;
  std::int64_t ns() const;
  bool has_known_frame(const Stack& stack) const;
  // Of the innermost frame that has one; without such a frame, the user's code if the stack is
  // complete.
  HostClass class_of(const Stack& stack) const;
};
HostProfile named(const HostSamples& samples);

struct LedgerLine {
  HostClass of = HostClass::other;
  double ns = 0;              // a step
  double share = 0;           // of the sampled time
  double standard_error = 0;  // of the share, by the number of samples
  std::int64_t samples = 0;
};

struct Ledger {
  Device device;
  std::array<LedgerLine, kHostClasses> lines;  // in the order of HostClass
  Timing untraced, traced;                     // of a step
  std::int64_t steps = 0;                      // that were sampled
  std::int64_t samples = 0;
  std::int64_t interruption_ns = 0;  // what a sample took
  // What the numbers lack, and why; empty: the ledger is complete.
  std::vector<std::string> missing;
  HostProfile profile;

  bool is_complete() const { return missing.empty(); }
  const LedgerLine& operator[](HostClass each) const {
    return lines[static_cast<std::size_t>(each)];
  }
  double sum_ns() const;
  // The classes' sum over the untraced step, less one.
  double closure() const { return sum_ns() / (untraced.median * 1e9) - 1; }
  // What sampling cost: the traced step over the untraced one, less one.
  double perturbation() const { return traced.median / untraced.median - 1; }
};

struct LedgerOptions {
  HostSampling sampling = {};
  double seconds = 3;  // half of it sampled
};

// Runs the step for some seconds, alternately sampled and not, on the calling thread. Repetitions
// whose time is more than 10 % from the median are left out: other work on the machine changed
// them. On CUDA it waits for the device often enough that no launch waits for a full queue: that
// time is in `waiting`.
Ledger host_ledger(Device device, const std::function<void()>& step,
                   const LedgerOptions& options = {});
// The same from a profile that was taken before.
Ledger ledger_of(Device device, HostProfile profile, std::int64_t steps, const Timing& untraced,
                 const Timing& traced);

}  // namespace brrr::measure
