// A CUDA driver for machines without a GPU: device memory is host memory, streams are queues. While
// the host waits, a seeded scheduler runs one entry of a random stream at a time, so work that no
// event orders sooner or later runs in the wrong order. Only objects created
// through it are counted.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace brrr::testing {

struct FakeOptions {
  std::size_t capacity = std::size_t{1} << 30;  // of each device
  int devices = 1;
  int driver_version = 13000;
  int major = 9;  // compute capability, .0
  std::uint64_t seed = 1;
  bool with_nvrtc = false;     // also a compiler that returns its source as the cubin
  bool with_cublaslt = false;  // also a cuBLASLt that multiplies column-major f32
  std::size_t workspace = 0;   // that its products ask for
};

struct FakeCounts {
  long allocations = 0, pinned = 0, streams = 0, events = 0, modules = 0, graphs = 0,
       executables = 0, contexts = 0;
  long programs = 0, library_objects = 0;  // NVRTC's; cuBLASLt's handles, descriptors and the like
  std::size_t bytes = 0;
  friend bool operator==(const FakeCounts&, const FakeCounts&) = default;
};

struct FakeLaunch {
  unsigned grid[3], block[3], shared_bytes;
  void* const* arguments;
  template <class T>
  T argument(int i) const {
    return *static_cast<const T*>(arguments[i]);
  }
};

// Installs itself as the table; the end of its scope shuts the runtime down, restores the table and
// checks that there was no problem, unless a bug was planted.
class FakeCuda {
 public:
  explicit FakeCuda(FakeOptions options = {});
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  FakeCounts counts() const;
  // The first error that a real driver might not report (use after free, a call from a host
  // function, …); empty: none.
  std::string problem() const;

  // Runs up to `entries` entries of randomly chosen streams.
  void step(int entries = 1);
  void run_all();
  // Host functions, kernels, copies and fills not yet run.
  std::size_t pending() const;

  // The texts that its compiler got, in order.
  std::vector<std::string> compiled() const;
  // Its compiler refuses texts that contain this, in place of "#error".
  void refuse(std::string text);

  // Blocks a stream. Planted bugs: streams ignore waits for events; events report completion too
  // early.
  void hold(CUstream stream, bool on);
  void ignore_waits(bool on);
  void events_lie(bool on);

  // A kernel of that name, in any module, calls `run` in its stream's order.
  void define_kernel(std::string name, std::vector<std::size_t> argument_sizes,
                     std::function<void(const FakeLaunch&)> run);
};

}  // namespace brrr::testing
