// The fake driver: scheduling, devices, streams and events.
#include "tests/fake_cuda/driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "tests/fake_cuda/state.h"
#include "tests/harness/catch.h"

namespace brrr::testing {

FakeState* fake = nullptr;
thread_local bool in_host_work = false;
thread_local FakeDevice* current_fake_device = nullptr;
thread_local CUstreamCaptureMode fake_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// --- Scheduling ---

void FakeState::add(FakeStream& stream, FakeEntry entry) {
  if (!stream.capture) {
    stream.queue.push_back(std::move(entry));
    return;
  }
  FakeGraph& graph = *stream.capture;
  graph.nodes.push_back({std::move(entry.run), entry.kind == FakeEntry::host_work,
                         stream.capture_tail, entry.kernel});
  stream.capture_tail = {static_cast<int>(graph.nodes.size()) - 1};
}

bool FakeState::step(Lock& lock) {
  std::vector<FakeStream*> ready;
  for (auto& stream : streams) {
    if (stream->running || stream->blocked || stream->queue.empty()) continue;
    const FakeEntry& front = stream->queue.front();
    if (front.kind == FakeEntry::wait && !front.point->done && !ignore_waits) continue;
    ready.push_back(stream.get());
  }
  if (ready.empty()) return false;
  FakeStream& stream = *ready[random() % ready.size()];
  FakeEntry entry = std::move(stream.queue.front());
  stream.queue.pop_front();
  clock += kEntryTime;
  switch (entry.kind) {
    case FakeEntry::work: entry.run(); break;
    case FakeEntry::host_work:
      stream.running = true;
      lock.unlock();
      in_host_work = true;
      entry.run();
      in_host_work = false;
      lock.lock();
      stream.running = false;
      break;
    case FakeEntry::record:
      entry.point->done = true;
      entry.point->time = clock;
      break;
    case FakeEntry::wait: break;
  }
  changed.notify_all();
  return true;
}

bool FakeState::breaks_capture() {
  if (fake_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  bool broken = false;
  for (auto& stream : streams) {
    if (stream->capture && stream->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
      broken = stream->capture->broken = true;
  }
  return broken;
}

namespace {

// --- Devices ---

CUresult init(unsigned) { return CUDA_SUCCESS; }
CUresult driver_get_version(int* version) {
  *version = fake->options.driver_version;
  return CUDA_SUCCESS;
}
CUresult get_error_name(CUresult code, const char** name) {
  switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_UNKNOWN: *name = "CUDA_ERROR_UNKNOWN"; break;
    default: *name = "CUDA_ERROR_OTHER";
  }
  return CUDA_SUCCESS;
}
CUresult get_error_string(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the fake driver";
  return CUDA_SUCCESS;
}
CUresult device_get_count(int* count) {
  *count = fake->options.devices;
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* device, int index) {
  if (index < 0 || index >= fake->options.devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = index;
  return CUDA_SUCCESS;
}
CUresult device_get_name(char* name, int size, CUdevice) {
  std::strncpy(name, "fake device", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = fake->options.major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult device_total_mem(std::size_t* bytes, CUdevice) {
  *bytes = fake->options.capacity;
  return CUDA_SUCCESS;
}
CUresult primary_retain(CUcontext* context, CUdevice device) {
  FAKE_ENTER();
  ++fake->devices[device].retained;
  *context = reinterpret_cast<CUcontext>(&fake->devices[device]);
  return CUDA_SUCCESS;
}
CUresult primary_release(CUdevice device) {
  FAKE_ENTER();
  --fake->devices[device].retained;
  return CUDA_SUCCESS;
}
CUresult ctx_set_current(CUcontext context) {
  current_fake_device = reinterpret_cast<FakeDevice*>(context);
  return CUDA_SUCCESS;
}

// --- Streams ---

CUresult stream_create(CUstream* out, unsigned) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  fake->streams.push_back(std::make_unique<FakeStream>());
  fake->streams.back()->device = current_fake_device;
  *out = reinterpret_cast<CUstream>(fake->streams.back().get());
  return CUDA_SUCCESS;
}
CUresult stream_destroy(CUstream stream) {
  FAKE_ENTER();
  FakeStream* s = stream_of(stream);
  if (std::ranges::find(fake->streams, s, &std::unique_ptr<FakeStream>::get) ==
      fake->streams.end()) {
    fake->complain("destroyed a stream that does not exist");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  fake->run_until(lock, [&] { return s->queue.empty() && !s->running; });
  std::erase_if(fake->workspaces, [&](const auto& each) { return each.second == s; });
  std::erase_if(fake->streams, [&](auto& each) { return each.get() == s; });
  return CUDA_SUCCESS;
}
CUresult stream_synchronize(CUstream stream) {
  FAKE_ENTER();
  FakeStream* s = stream_of(stream);
  if (s->capture) {
    s->capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  fake->run_until(lock, [&] { return s->queue.empty() && !s->running; });
  return CUDA_SUCCESS;
}
CUresult stream_query(CUstream stream) {
  FAKE_ENTER();
  FakeStream* s = stream_of(stream);
  if (s->capture) {
    s->capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return s->queue.empty() && !s->running ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult launch_host_func(CUstream stream, CUhostFn run, void* data) {
  FAKE_ENTER();
  fake->add(*stream_of(stream), {FakeEntry::host_work, [=] { run(data); }, nullptr});
  return CUDA_SUCCESS;
}

// --- Events ---

FakeEvent* event_of(CUevent event) { return reinterpret_cast<FakeEvent*>(event); }

CUresult event_create(CUevent* out, unsigned flags) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  *out = reinterpret_cast<CUevent>(fake->events.add(
      FakeEvent{current_fake_device, !(flags & CU_EVENT_DISABLE_TIMING), nullptr, nullptr, {}}));
  return CUDA_SUCCESS;
}
CUresult event_destroy(CUevent event) {
  FAKE_ENTER();
  if (!fake->events.drop(event)) {
    fake->complain("destroyed an event that does not exist");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}
CUresult event_record(CUevent event, CUstream stream) {
  FAKE_ENTER();
  FakeEvent& e = *event_of(event);
  FakeStream& s = *stream_of(stream);
  if (e.device != s.device) return CUDA_ERROR_INVALID_HANDLE;
  if (s.capture) {
    e.capture = s.capture;
    e.capture_tail = s.capture_tail;
    e.point = nullptr;
    return CUDA_SUCCESS;
  }
  e.capture = nullptr;
  e.point = std::make_shared<FakePoint>();
  s.queue.push_back({FakeEntry::record, nullptr, e.point});
  return CUDA_SUCCESS;
}
CUresult stream_wait_event(CUstream stream, CUevent event, unsigned) {
  FAKE_ENTER();
  FakeEvent& e = *event_of(event);
  FakeStream& s = *stream_of(stream);
  if (e.capture) {
    if (s.capture && s.capture != e.capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    s.capture = e.capture;  // a stream that waits for a captured event joins the capture
    s.capture_tail.insert(s.capture_tail.end(), e.capture_tail.begin(), e.capture_tail.end());
    return CUDA_SUCCESS;
  }
  if (s.capture) {
    if (e.point) {
      s.capture->broken = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    return CUDA_SUCCESS;
  }
  if (e.point) s.queue.push_back({FakeEntry::wait, nullptr, e.point});
  return CUDA_SUCCESS;
}
CUresult event_synchronize(CUevent event) {
  FAKE_ENTER();
  FakeEvent& e = *event_of(event);
  if (e.capture) {
    e.capture->broken = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (auto point = e.point) fake->run_until(lock, [&] { return point->done; });
  return CUDA_SUCCESS;
}
CUresult event_query(CUevent event) {
  FAKE_ENTER();
  if (fake->breaks_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  FakeEvent& e = *event_of(event);
  if (e.capture) return CUDA_ERROR_CAPTURED_EVENT;
  return !e.point || e.point->done || fake->events_lie ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult event_elapsed(float* milliseconds, CUevent from, CUevent to) {
  FAKE_ENTER();
  FakeEvent &a = *event_of(from), &b = *event_of(to);
  if (!a.timed || !b.timed || !a.point || !b.point) return CUDA_ERROR_INVALID_HANDLE;
  if (!a.point->done || !b.point->done) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>((b.point->time - a.point->time) * 1e3);
  return CUDA_SUCCESS;
}

}  // namespace

// --- The handle ---

FakeCuda::FakeCuda(FakeOptions options) {
  cu::shut_down();
  delete fake;
  fake = new FakeState;
  fake->options = options;
  fake->random.seed(options.seed);
  fake->devices.resize(static_cast<std::size_t>(options.devices));
  for (int i = 0; i < options.devices; ++i) fake->devices[i].index = i;
  cu::Table t;
  t.cuInit = init;
  t.cuDriverGetVersion = driver_get_version;
  t.cuGetErrorName = get_error_name;
  t.cuGetErrorString = get_error_string;
  t.cuDeviceGetCount = device_get_count;
  t.cuDeviceGet = device_get;
  t.cuDeviceGetName = device_get_name;
  t.cuDeviceGetAttribute = device_get_attribute;
  t.cuDeviceTotalMem = device_total_mem;
  t.cuDevicePrimaryCtxRetain = primary_retain;
  t.cuDevicePrimaryCtxRelease = primary_release;
  t.cuCtxSetCurrent = ctx_set_current;
  t.cuStreamCreate = stream_create;
  t.cuStreamDestroy = stream_destroy;
  t.cuStreamSynchronize = stream_synchronize;
  t.cuStreamQuery = stream_query;
  t.cuStreamWaitEvent = stream_wait_event;
  t.cuLaunchHostFunc = launch_host_func;
  t.cuEventCreate = event_create;
  t.cuEventDestroy = event_destroy;
  t.cuEventRecord = event_record;
  t.cuEventSynchronize = event_synchronize;
  t.cuEventQuery = event_query;
  t.cuEventElapsedTime = event_elapsed;
  add_fake_memory_calls(t);
  add_fake_graph_calls(t);
  add_fake_library_calls(t);
  add_absent_cupti(t);
  fake->table = t;
  cu::install_table(t);
}

FakeCuda::~FakeCuda() {
  const bool failed = std::uncaught_exceptions() > 0;
  cu::clear_faults();
  try {
    cu::shut_down();
  } catch (...) {  // a test that failed half way still holds tensors
    fake->complain("storages outlived the fake driver");
    cu::abandon();
  }
  cu::uninstall_table();
  if (!failed && !fake->has_bug) CHECK(problem() == "");
}

FakeCounts FakeCuda::counts() const {
  FakeState::Lock lock(fake->mutex);
  FakeCounts c;
  c.allocations = static_cast<long>(fake->memory.size());
  for (auto& [address, allocation] : fake->memory) c.bytes += allocation.size;
  c.pinned = static_cast<long>(fake->pinned.size());
  c.streams = static_cast<long>(fake->streams.size());
  c.events = fake->events.count();
  c.modules = fake->modules.count();
  c.graphs = fake->graphs.count();
  c.executables = fake->executables.count();
  c.programs = fake->programs.count();
  c.library_objects = fake->library_objects.count();
  for (const FakeDevice& device : fake->devices) c.contexts += device.retained;
  return c;
}

std::string FakeCuda::problem() const {
  FakeState::Lock lock(fake->mutex);
  return fake->problem;
}

void FakeCuda::step(int entries) {
  FakeState::Lock lock(fake->mutex);
  while (entries-- > 0 && fake->step(lock)) {
  }
}

void FakeCuda::run_all() {
  FakeState::Lock lock(fake->mutex);
  while (fake->step(lock)) {
  }
}

std::size_t FakeCuda::pending() const {
  FakeState::Lock lock(fake->mutex);
  std::size_t count = 0;
  for (auto& stream : fake->streams) {
    for (const FakeEntry& entry : stream->queue) {
      count += entry.kind == FakeEntry::work || entry.kind == FakeEntry::host_work;
    }
  }
  return count;
}

void FakeCuda::refuse(std::string text) {
  FakeState::Lock lock(fake->mutex);
  fake->refused = std::move(text);
}

std::vector<std::string> FakeCuda::compiled() const {
  FakeState::Lock lock(fake->mutex);
  return fake->compiled;
}

void FakeCuda::hold(CUstream stream, bool on) {
  FakeState::Lock lock(fake->mutex);
  stream_of(stream)->blocked = on;
  fake->changed.notify_all();
}

void FakeCuda::ignore_waits(bool on) {
  fake->ignore_waits = on;
  fake->has_bug |= on;
}
void FakeCuda::events_lie(bool on) {
  fake->events_lie = on;
  fake->has_bug |= on;
}

void FakeCuda::define_kernel(std::string name, std::vector<std::size_t> argument_sizes,
                             std::function<void(const FakeLaunch&)> run) {
  FakeState::Lock lock(fake->mutex);
  fake->kernels[std::move(name)] = {std::move(argument_sizes), std::move(run)};
}

}  // namespace brrr::testing
