// Compiles CUDA source at run time, once: kernels are kept in memory, cubins on disk as well.
//
//   const CUfunction f = jit::load_kernel(cuda(0), "my_kernel", R"(
//     extern "C" __global__ void my_kernel(float* out, i64 n) { ... })");
//
// Every source gets the prelude (ops/jit/prelude.inl, then scalar.inl) in front, so it may use
// their names and needs no header. It is placed inside of `namespace brrr {`, which the compiler
// closes. Entries are extern "C".
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/ops/jit/disk_cache.h>
#include <brrr/ops/jit/schedule.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/thread_context.h>

namespace brrr::jit {

struct KernelOptions {
  bool random = false;  // philox.inl after the prelude
  bool fast = false;    // contraction, approximate division and square root
  // For this architecture and no later one: sm_90a, which has wgmma.
  bool architecture_specific = false;
  std::int64_t threads_at_once = 0;  // that the device runs; load_kernels sets it
};

// 90 for sm_90.
int architecture_of(Device device);
int multiprocessors_of(Device device);
DeviceShape shape_of(Device device);
// The threads that the device runs at once.
std::int64_t threads_at_once(Device device);

// The kernel `entry` of `source`, ready to launch on `device`. Cheap enough for a slow path only:
// it hashes the whole source. Callers keep the function; it lives as long as the process.
CUfunction load_kernel(Device device, const char* entry, std::string_view source,
                       const KernelOptions& options = {});
// Several entries of one source, in order.
std::vector<CUfunction> load_kernels(Device device, const std::vector<const char*>& entries,
                                     std::string_view source, const KernelOptions& options = {});

// The last result of load_kernels on this thread, while a LoadedKernelsScope collects it.
struct LoadedKernels {
  Device device;
  std::string source;
  std::vector<CUfunction> functions;
};
using LoadedKernelsScope = ContextScope<&ThreadContext::loaded_kernels>;

// While one exists, launch_programmatic launches nothing on this thread. Until compile(), sources
// that are passed to load_kernels are collected and not loaded: load_kernels returns null
// functions. compile() compiles the sources that are in no cache, in parallel; the next load of
// each finds its cubin.
class KernelCollection {
 public:
  explicit KernelCollection(Device device);
  ~KernelCollection();
  KernelCollection(const KernelCollection&) = delete;
  KernelCollection& operator=(const KernelCollection&) = delete;

  bool is_collecting() const { return is_collecting_; }
  void add(std::string_view source, const KernelOptions& options);
  // Returns how many it compiled. A source that does not compile throws at its next load.
  int compile();

 private:
  struct CollectedSource {
    std::string source, whole;
    KernelOptions options;
    Hash128 key;
  };

  Device device_;
  bool is_collecting_ = true;
  std::vector<CollectedSource> sources_;
};

// The same without a GPU: the cubin for sm_<architecture>, through the disk cache.
std::string compile_to_cubin(std::string_view source, int architecture,
                             const KernelOptions& options = {});

struct CompilerStats {
  std::int64_t compiled = 0;     // runs of NVRTC
  std::int64_t memory_hits = 0;  // modules found loaded
  std::int64_t disk_hits = 0;
  std::int64_t disk_refused = 0;  // entries that were damaged, and were compiled again
  std::int64_t serialized = 0;    // kernels whose wgmma instructions wait for one another
};
CompilerStats compiler_stats();

}  // namespace brrr::jit
