// Measured times of kernels. A kernel is timed in a chain of itself, replayed over memory of its
// own, so that neither launches of the host nor other kernels of the step count.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/graph/ir.h>
#include <brrr/ops/jit/disk_cache.h>

namespace brrr::graph {

class Program;

// The time in seconds of a replay of each program, timed in turn, each in so many samples. None
// where times, or their ratios, differ too much: the machine was disturbed.
std::optional<std::vector<double>> replay_times(std::span<Program* const> programs, Device device,
                                                int samples);

// Differs for graphs whose kernels, or what is between these, may differ.
std::string key_of(const Graph& graph);

// Times kernels of a step that touches `bytes_touched` of memory, whose other kernels evict a
// kernel's operands from the caches.
class KernelTimer {
 public:
  KernelTimer(Device device, std::int64_t bytes_touched);
  ~KernelTimer();

  struct Kernel {
    const Graph* graph;
    const Node* node;
  };
  // Whether a call acts on nothing but its results, whatever values it is timed with.
  static bool can_time(const Node& node);
  // Compiles the kernels that were not timed before, together.
  void prepare(std::span<const Kernel> kernels);
  // The time of the kernel in a replay, in picoseconds: as it was measured before on this machine
  // for a kernel and operands like these, at no time when the machine was slower than it is now,
  // else measured now and kept in the disk cache. None for
  // calls that cannot be timed, where memory is short, and where the machine was disturbed.
  std::optional<std::int64_t> time_of(const Kernel& kernel);
  // Equal for kernels that take the same time.
  std::string key_of(const Kernel& kernel) const;

 private:
  class Scratch;
  int sets_of(const Kernel& kernel) const;
  std::optional<std::int64_t> measure(const Kernel& kernel);

  Device device_;
  std::int64_t bytes_touched_;
  std::unique_ptr<Scratch> scratch_;
};

// What the disk cache keeps under a key. A damaged file is ignored, with one line on stderr.
bool read_kept(const jit::Hash128& key, const char* kind, std::string& content);
// Forgets the times that this process has read or measured, for tests.
void forget_times();

}  // namespace brrr::graph
