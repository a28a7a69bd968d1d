// The CUDA runtime of a build without the toolkit's headers: there are no devices, and errors name
// the reason.
#include "brrr/tensor/error.h"
#include "brrr/tensor/runtime.h"

namespace brrr {
namespace {

constexpr const char* kWhy =
    "brrr was built without CUDA (the toolkit's headers were not found, or BRRR_CUDA=OFF)";

[[noreturn]] void absent() { throw CudaError(kWhy, 0); }

struct AbsentRuntime final : CudaDeviceRuntime {
  int count() override { return 0; }
  std::string why_none() override { return kWhy; }
  void allocate(Storage&) override { absent(); }
  MemoryStats stats(Device) override { absent(); }
  void reset_peak(Device) override { absent(); }
  void empty_cache(Device) override { absent(); }
  StreamState* default_stream(Device) override { absent(); }
  std::shared_ptr<StreamState> new_stream(Device) override { absent(); }
  std::unique_ptr<EventState> new_event(Device, bool) override { absent(); }
  void synchronize(Device) override { absent(); }
  bool from_host(StreamState&, void*, const void*, std::size_t) override { absent(); }
  bool to_host(StreamState&, void*, const void*, std::size_t) override { absent(); }
  void fill_bytes(StreamState&, void*, int, std::size_t) override { absent(); }
  void copy(StreamState&, void*, const void*, std::size_t) override { absent(); }
  void record_use(Storage&, StreamState&) override { absent(); }
  Storage* new_pinned_storage(std::size_t) override { absent(); }
  bool is_pinned(const void*) override { return false; }
};

}  // namespace

CudaDeviceRuntime& cuda_runtime() {
  static AbsentRuntime runtime;
  return runtime;
}

}  // namespace brrr
