// The overhead ledger: the calling thread's time of a step, divided among classes of work of the
// library. It is sampled (measure/host_samples.h), so the step runs unchanged. The classes add up
// to the step's time; gaps in the samples are reported.
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
#include <brrr/measure/thread_sampler.h>
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

// A row of the table that classifies frames: the qualified name of a function, class or namespace.
// The longest match applies.
struct KnownName {
  const char* name;  // "brrr::on_cpu"
  HostClass of;
};
std::span<const KnownName> known_names();
// The class of a frame; none: it has the class of its caller.
std::optional<HostClass> class_of(const Frame& frame);

// Samples with symbol names; equal stacks are merged.
struct HostProfile {
  struct Stack {
    std::vector<std::uint32_t> frames;  // indices of `frames`, innermost first
    std::int64_t ns = 0;
    std::int64_t samples = 0;
    bool complete = false;
  };

  std::vector<Frame> frames;
  std::vector<Stack> stacks;
  std::vector<std::uint32_t> of_samples = {};     // indices of `stacks`, in the order of samples
  std::int64_t lost = 0;                          // samples that did not fit in memory
  std::vector<std::string> without_symbols = {};  // modules of brrr without a symbol table

  std::int64_t samples() const;
  std::int64_t ns() const;
  bool has_known_frame(const Stack& stack) const;
  // The class of the innermost frame that has one. A complete stack without such a frame is user
  // code.
  HostClass class_of(const Stack& stack) const;
};
HostProfile named(const HostSamples& samples);

struct LedgerLine {
  HostClass of = HostClass::other;
  double ns = 0;              // per step
  double share = 0;           // of the sampled time
  double standard_error = 0;  // of the share, from the number of samples
  std::int64_t samples = 0;
};

struct Ledger {
  Device device;
  std::array<LedgerLine, kHostClasses> lines;  // in the order of HostClass
  Timing untraced, traced;                     // of a step
  std::int64_t steps = 0;                      // that were sampled
  std::int64_t samples = 0;
  std::int64_t interruption_ns = 0;  // the cost of a sample
  // Gaps in the ledger, with reasons; empty: it is complete.
  std::vector<std::string> missing;
  HostProfile profile;
  std::vector<CodeLine> code = {};  // the lines of `user`; shares are of all the time

  bool is_complete() const { return missing.empty(); }
  const LedgerLine& operator[](HostClass each) const {
    return lines[static_cast<std::size_t>(each)];
  }
  double sum_ns() const;
  // The sum of the classes divided by the untraced step's time, minus one.
  double closure() const { return sum_ns() / (untraced.median * 1e9) - 1; }
  // The cost of sampling: the traced step's time divided by the untraced one's, minus one.
  double perturbation() const { return traced.median / untraced.median - 1; }
};

struct LedgerOptions {
  HostSampling sampling = {};
  double seconds = 3;  // half of it sampled
  // Asked between samples: true ends them.
  std::function<bool()> stop = {};
};

// Runs the step for some seconds, alternately sampled and not, on the calling thread. Repetitions
// whose time is more than 10 % from the median are left out: other work on the machine changed
// them. A step that samples slow down, as one that sleeps, is sampled again in longer periods. On
// CUDA it waits for the device often enough that no launch waits for a full queue: that time is in
// `waiting`.
Ledger host_ledger(Device device, const std::function<void()>& step,
                   const LedgerOptions& options = {});
// The same from an existing profile.
Ledger ledger_of(Device device, HostProfile profile, std::int64_t steps, const Timing& untraced,
                 const Timing& traced);

}  // namespace brrr::measure
