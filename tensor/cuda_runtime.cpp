#include "brrr/tensor/cuda_runtime.h"

#include <mutex>

#include "brrr/tensor/cuda_faults.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace cu {

std::atomic<DeviceState*> device_states[kMaxDevices] = {};

namespace {

// The number of devices, queried once; `why` there are none.
struct DeviceCount {
  std::mutex mutex;
  bool known = false;
  int count = 0;
  std::string why;
};
DeviceCount& device_count() {
  static DeviceCount* state = new DeviceCount;
  return *state;
}

void count_devices(DeviceCount& c) {
  if (c.known) return;
  c.why = driver_problem();
  c.count = 0;
  if (c.why.empty()) {
    const CUresult code = BRRR_CUDA_TRY(cuDeviceGetCount, &c.count);
    if (code != CUDA_SUCCESS) {
      c.why = "cuDeviceGetCount failed: " + describe(Library::driver, code);
      c.count = 0;
    }
  }
  c.known = true;
}

std::mutex& starting() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

void forget_device_count() {
  DeviceCount& c = device_count();
  std::lock_guard lock(c.mutex);
  c.known = false;
}

// Drops a device. Its DeviceState is not destroyed: other threads may still have it as their
// current device, and storages refer to its allocator.
void forget(std::atomic<DeviceState*>& slot) {
  static auto* past = new std::vector<DeviceState*>;
  if (DeviceState* state = slot.exchange(nullptr)) past->push_back(state);
  thread_context.cuda_device = nullptr;
}

}  // namespace

DeviceState::DeviceState(int number)
    : index(number),
      streams(*this),
      allocator(*this, MemoryKind::device),
      pinned(*this, MemoryKind::pinned),
      staging(*this) {}

int DeviceState::attribute(CUdevice_attribute which) const {
  int value = 0;
  BRRR_CUDA(cuDeviceGetAttribute, &value, which, handle);
  return value;
}

DeviceState& start_device(int index) {
  std::lock_guard lock(starting());
  if (DeviceState* state = device_states[index].load()) return *state;
  require_device(Device(DeviceType::cuda, index), op_or("cuda"));
  auto state = std::make_unique<DeviceState>(index);
  DeviceState& s = *state;
  BRRR_CUDA(cuDeviceGet, &s.handle, index);
  char name[256] = {};
  BRRR_CUDA(cuDeviceGetName, name, sizeof name - 1, s.handle);
  s.name = name;
  s.major = s.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  s.minor = s.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  s.multiprocessors = s.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  s.shared_memory = s.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  BRRR_CUDA(cuDeviceTotalMem, &s.total_memory, s.handle);
  BRRR_CUDA(cuDevicePrimaryCtxRetain, &s.context, s.handle);
  try {
    switch_to(s);
    s.streams.start();
  } catch (...) {
    thread_context.cuda_device = nullptr;
    s.streams.destroy();
    BRRR_CUDA_TRY(cuDevicePrimaryCtxRelease, s.handle);
    throw;
  }
  device_states[index].store(state.get(), std::memory_order_release);
  return *state.release();
}

void switch_to(DeviceState& device) {
  thread_context.cuda_device = nullptr;
  BRRR_CUDA(cuCtxSetCurrent, device.context);
  thread_context.cuda_device = &device;
}

void shut_down() {
  std::lock_guard lock(starting());
  for (auto& slot : device_states) {
    DeviceState* state = slot.load();
    if (!state) continue;
    if (state->allocator.live() != 0) {
      fail("[shut_down] expected no live storage on {}, got {} bytes",
           to_string(Device(DeviceType::cuda, state->index)), state->allocator.live());
    }
    if (const int pools = state->allocator.pools()) {
      fail("[shut_down] expected no memory of captured graphs on {}, got {} pools",
           to_string(Device(DeviceType::cuda, state->index)), pools);
    }
    make_current(*state);
    for (CudaStream* stream : state->streams.all()) stream->synchronize();
    state->staging.destroy();
    if (const std::int64_t live = state->pinned.live())
      fail("[shut_down] expected no live storage in pinned memory, got {} bytes", live);
    drop_fault_record(Device(DeviceType::cuda, state->index));
    state->allocator.empty_cache();
    state->pinned.empty_cache();
    state->streams.destroy();
    forget(slot);
    BRRR_CUDA(cuDevicePrimaryCtxRelease, state->handle);
  }
  forget_device_count();
}

void abandon() noexcept {
  std::lock_guard lock(starting());
  for (int i = 0; i < kMaxDevices; ++i) {
    if (device_states[i].load()) drop_fault_record(Device(DeviceType::cuda, i));
    forget(device_states[i]);
  }
  forget_device_count();
}

namespace {

bool is_pinned_on(DeviceState& device, const void* host) {
  make_current(device);
  CUmemorytype type{};
  // For memory unknown to the driver this call leaves `type` alone, where the one for a single
  // attribute fails.
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* to = &type;
  BRRR_CUDA(cuPointerGetAttributes, 1, &attribute, &to, reinterpret_cast<CUdeviceptr>(host));
  return type == CU_MEMORYTYPE_HOST;
}

class CudaRuntime final : public CudaDeviceRuntime {
 public:
  int count() override {
    DeviceCount& c = device_count();
    std::lock_guard lock(c.mutex);
    count_devices(c);
    return c.count;
  }
  std::string why_none() override {
    DeviceCount& c = device_count();
    std::lock_guard lock(c.mutex);
    count_devices(c);
    return c.why;
  }

  void allocate(Storage& storage) override {
    DeviceState& state = device_state(storage.device.index);
    StreamState* chosen = thread_context.stream(storage.device);
    state.allocator.allocate(
        storage, chosen ? static_cast<CudaStream*>(chosen) : state.streams.default_stream());
  }
  MemoryStats stats(Device device) override { return device_state(device.index).allocator.stats(); }
  void reset_peak(Device device) override { device_state(device.index).allocator.reset_peak(); }
  void empty_cache(Device device) override {
    device_state(device.index).allocator.empty_cache();
    device_state(device.index).pinned.empty_cache();
  }

  StreamState* default_stream(Device device) override {
    return device_state(device.index).streams.default_stream();
  }
  std::shared_ptr<StreamState> new_stream(Device device) override {
    return device_state(device.index).streams.take();
  }
  std::unique_ptr<EventState> new_event(Device device, bool timed) override {
    return make_event(device_state(device.index), timed);
  }
  void synchronize(Device device) override {
    std::exception_ptr failure;
    for (CudaStream* stream : device_state(device.index).streams.all()) {
      try {
        stream->synchronize();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

  bool from_host(StreamState& state, void* to, const void* host, std::size_t bytes) override {
    if (bytes == 0) return true;
    CudaStream& stream = ready(state);
    if (bytes > Staging::kSmall && is_pinned_on(*stream.on, host)) {
      BRRR_CUDA(cuMemcpyHtoDAsync, address(to), host, bytes, stream.handle);
      return false;
    }
    if (stream.capturing()) refuse_capture("copy from the host");
    stream.on->staging.from_host(stream, to, host, bytes);
    return true;
  }
  bool to_host(StreamState& state, void* host, const void* from, std::size_t bytes) override {
    if (bytes == 0) return true;
    CudaStream& stream = ready(state);
    if (is_pinned_on(*stream.on, host)) {
      BRRR_CUDA(cuMemcpyDtoHAsync, host, address(from), bytes, stream.handle);
      return false;
    }
    if (stream.capturing()) refuse_capture("copy to the host");
    stream.on->staging.to_host(stream, host, from, bytes);
    return true;
  }
  void fill_bytes(StreamState& state, void* to, int value, std::size_t bytes) override {
    if (bytes == 0) return;
    BRRR_CUDA(cuMemsetD8Async, address(to), static_cast<unsigned char>(value), bytes,
              ready(state).handle);
  }
  void copy(StreamState& state, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    BRRR_CUDA(cuMemcpyAsync, address(to), address(from), bytes, ready(state).handle);
  }
  void record_use(Storage& storage, StreamState& state) override {
    if (state.device.is_cuda()) Allocator::record_use(storage, static_cast<CudaStream&>(state));
  }
  Storage* new_pinned_storage(std::size_t bytes) override {
    DeviceState& device =
        thread_context.cuda_device ? *thread_context.cuda_device : device_state(0);
    return device.pinned.new_pinned_storage(bytes);
  }
  bool is_pinned(const void* host) override {
    for (auto& slot : device_states) {
      if (DeviceState* state = slot.load()) return is_pinned_on(*state, host);
    }
    return false;  // nothing has been pinned here yet
  }

 private:
  static CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
  static CudaStream& ready(StreamState& state) {
    auto& stream = static_cast<CudaStream&>(state);
    make_current(*stream.on);
    return stream;
  }
  [[noreturn]] static void refuse_capture(const char* what) {
    fail("[{}] a stream that is being captured into a graph cannot {}", op_or("copy"), what);
  }
};

}  // namespace
}  // namespace cu

CudaDeviceRuntime& cuda_runtime() {
  static auto* runtime = new cu::CudaRuntime;  // outlives every static tensor
  return *runtime;
}

}  // namespace brrr
