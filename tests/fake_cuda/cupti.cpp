// The fake driver's CUPTI: records of launches, graph launches, copies and waits, in the layout of
// the headers. Its clock is the registered one, or the host's with an offset.
#include "tests/fake_cuda/cupti.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "brrr/measure/timing.h"
#include "brrr/tensor/cuda_testing.h"
#include "tests/fake_cuda/state.h"

namespace brrr::testing {

#if BRRR_HAS_CUPTI

namespace {

struct State {
  std::mutex mutex;
  CUpti_SubscriberHandle subscriber = nullptr;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_TimestampCallbackFunc clock = nullptr;
  std::set<CUpti_ActivityKind> enabled;
  std::vector<std::uint64_t> external;
  std::vector<std::vector<char>> records;  // not handed over yet
  std::uint32_t correlation = 0;
  FakeCuptiOptions options;
  cu::Table behind{};  // the fake driver's own calls
};
State state;

// In a buffer a record follows its length, in 8 bytes.
constexpr std::size_t kHead = 8;
std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

std::uint64_t now() {
  if (state.clock) return state.clock();
  return static_cast<std::uint64_t>(measure::host_nanoseconds() + kFakeCuptiOffset);
}

template <class Record>
void add(const Record& record) {
  if (!state.enabled.contains(record.kind)) return;
  const char* bytes = reinterpret_cast<const char*>(&record);
  state.records.emplace_back(bytes, bytes + sizeof record);
}

std::uint32_t this_thread() {
  const pthread_t self = pthread_self();
  std::uint32_t low;
  std::memcpy(&low, &self, sizeof low);
  return low;
}

// The record of a call, its external correlation, and what it gave the device.
struct ApiScope {
  CUpti_CallbackId cbid;
  std::uint64_t start = now();
  std::uint32_t correlation = ++state.correlation;

  ~ApiScope() {
    CUpti_ActivityAPI call{};
    call.kind = CUPTI_ACTIVITY_KIND_DRIVER;
    call.cbid = cbid;
    call.start = start;
    call.end = now();
    call.threadId = this_thread();
    call.correlationId = correlation;
    add(call);
    if (state.external.empty()) return;
    CUpti_ActivityExternalCorrelation pair{};
    pair.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    pair.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    pair.externalId = state.external.back();
    pair.correlationId = correlation;
    add(pair);
  }
};

void add_kernel(const ApiScope& api, CUfunction function, std::uint64_t node) {
  if (state.options.lost_kernels > 0 && state.enabled.contains(CUPTI_ACTIVITY_KIND_DRIVER)) {
    --state.options.lost_kernels;
    return;
  }
  CUpti_ActivityKernel9 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = now();
  kernel.end = kernel.start + 1000;
  kernel.streamId = 7;
  kernel.correlationId = api.correlation;
  kernel.name = function ? reinterpret_cast<FakeFunction*>(function)->name.c_str() : nullptr;
  if (state.options.other_symbols && node) kernel.name = "another_kernel";
  kernel.graphNodeId = node;
  kernel.graphId = node ? 1 : 0;
  add(kernel);
}

// --- The driver's calls, recorded ---

CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared, CUstream stream, void** arguments, void** extra) {
  const CUresult code =
      state.behind.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
  const std::lock_guard lock(state.mutex);
  if (stream_of(stream)->capture) return code;
  const ApiScope api{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel};
  add_kernel(api, f, 0);
  return code;
}
CUresult launch_ex(const CUlaunchConfig* config, CUfunction f, void** arguments, void** extra) {
  const CUresult code = state.behind.cuLaunchKernelEx(config, f, arguments, extra);
  const std::lock_guard lock(state.mutex);
  if (stream_of(config->hStream)->capture) return code;
  const ApiScope api{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx};
  add_kernel(api, f, 0);
  return code;
}
// Kernels end in another order than their nodes have.
CUresult graph_launch(CUgraphExec exec, CUstream stream) {
  const CUresult code = state.behind.cuGraphLaunch(exec, stream);
  const std::lock_guard lock(state.mutex);
  const ApiScope api{CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch};
  const auto& nodes = reinterpret_cast<FakeGraphHandle*>(exec)->graph->nodes;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const std::uint64_t number = state.options.nodes_reversed ? nodes.size() - i : i;
    if (nodes[i].kernel) add_kernel(api, nodes[i].kernel->params.func, 1000 + number);
  }
  return code;
}
CUresult fill(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  const CUresult code = state.behind.cuMemsetD8Async(to, value, bytes, stream);
  const std::lock_guard lock(state.mutex);
  const ApiScope api{CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async};
  CUpti_ActivityMemset4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.start = now();
  record.end = record.start + 500;
  record.streamId = 7;
  record.correlationId = api.correlation;
  add(record);
  return code;
}
CUresult synchronize_stream(CUstream stream) {
  const std::unique_lock lock(state.mutex);
  const ApiScope api{CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize};
  CUpti_ActivitySynchronization wait{};
  wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  wait.correlationId = api.correlation;
  add(wait);
  return state.behind.cuStreamSynchronize(stream);
}

// --- CUPTI's own ---

CUptiResult version(std::uint32_t* version) {
  *version = 130001;
  return CUPTI_SUCCESS;
}
CUptiResult result_string(CUptiResult code, const char** text) {
  *text = code == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
          : code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
              : "CUPTI_ERROR_OTHER";
  return CUPTI_SUCCESS;
}
CUptiResult refuse(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*) {
  return CUPTI_ERROR_NOT_INITIALIZED;
}
CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  const std::lock_guard lock(state.mutex);
  if (state.subscriber) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = state.subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&state);
  return CUPTI_SUCCESS;
}
CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) {
  const std::lock_guard lock(state.mutex);
  if (subscriber != state.subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
  state.subscriber = nullptr;
  return CUPTI_SUCCESS;
}
CUptiResult register_clock(CUpti_TimestampCallbackFunc clock) {
  state.clock = clock;
  return CUPTI_SUCCESS;
}
CUptiResult timestamp(std::uint64_t* time) {
  *time = now();
  return CUPTI_SUCCESS;
}
CUptiResult register_callbacks(CUpti_BuffersCallbackRequestFunc request,
                               CUpti_BuffersCallbackCompleteFunc complete) {
  state.request = request;
  state.complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult enable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(state.mutex);
  if (kind == CUPTI_ACTIVITY_KIND_MEMSET && state.options.without_fills)
    return CUPTI_ERROR_NOT_COMPATIBLE;
  state.enabled.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult disable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(state.mutex);
  state.enabled.erase(kind);
  return CUPTI_SUCCESS;
}
CUptiResult flush(std::uint32_t) {
  std::vector<std::vector<char>> records;
  {
    const std::lock_guard lock(state.mutex);
    records.swap(state.records);
  }
  std::size_t next = 0;
  while (next < records.size()) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0, at = 0;
    state.request(&buffer, &size, &most);
    if (!buffer) return CUPTI_ERROR_OUT_OF_MEMORY;
    while (next < records.size() && at + kHead + padded(records[next].size()) <= size) {
      const std::uint64_t length = padded(records[next].size());
      std::memcpy(buffer + at, &length, kHead);
      std::memcpy(buffer + at + kHead, records[next].data(), records[next].size());
      at += kHead + length;
      ++next;
    }
    state.complete(nullptr, 0, buffer, size, at);
  }
  return CUPTI_SUCCESS;
}
CUptiResult next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::uint8_t* at = buffer;
  if (*record) {
    at = reinterpret_cast<std::uint8_t*>(*record) - kHead;
    std::uint64_t length;
    std::memcpy(&length, at, kHead);
    at += kHead + length;
  }
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at + kHead);
  return CUPTI_SUCCESS;
}
CUptiResult dropped(CUcontext, std::uint32_t, std::size_t* count) {
  *count = std::exchange(state.options.dropped, 0);
  return CUPTI_SUCCESS;
}
CUptiResult callback_name(CUpti_CallbackDomain, std::uint32_t cbid, const char** name) {
  *name = cbid == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch         ? "cuGraphLaunch"
          : cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel      ? "cuLaunchKernel"
          : cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx    ? "cuLaunchKernelEx"
          : cbid == CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async     ? "cuMemsetD8Async"
          : cbid == CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize ? "cuStreamSynchronize"
                                                                : nullptr;
  return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult push(CUpti_ExternalCorrelationKind, std::uint64_t id) {
  const std::lock_guard lock(state.mutex);
  state.external.push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult pop(CUpti_ExternalCorrelationKind, std::uint64_t* id) {
  const std::lock_guard lock(state.mutex);
  if (state.external.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  *id = state.external.back();
  state.external.pop_back();
  return CUPTI_SUCCESS;
}

}  // namespace

void add_absent_cupti(cu::Table& table) {
  table.cuptiGetResultString = result_string;
  table.cuptiSubscribe = refuse;
  table.cuptiGetVersion = version;
}

FakeCupti::FakeCupti(FakeCuptiOptions options) {
  state.options = options;
  state.clock = nullptr;
  state.records.clear();
  state.external.clear();
  cu::Table t = fake->table;
  state.behind = t;
  t.cuLaunchKernel = launch;
  t.cuLaunchKernelEx = launch_ex;
  t.cuGraphLaunch = graph_launch;
  t.cuMemsetD8Async = fill;
  t.cuStreamSynchronize = synchronize_stream;
  t.cuptiGetVersion = version;
  t.cuptiSubscribe = subscribe;
  t.cuptiUnsubscribe = unsubscribe;
  t.cuptiActivityRegisterCallbacks = register_callbacks;
  t.cuptiActivityRegisterTimestampCallback = register_clock;
  t.cuptiGetTimestamp = timestamp;
  t.cuptiActivityEnable = enable;
  t.cuptiActivityDisable = disable;
  t.cuptiActivityFlushAll = flush;
  t.cuptiActivityGetNextRecord = next_record;
  t.cuptiActivityGetNumDroppedRecords = dropped;
  t.cuptiGetCallbackName = callback_name;
  t.cuptiActivityPushExternalCorrelationId = push;
  t.cuptiActivityPopExternalCorrelationId = pop;
  cu::install_table(t);
}

FakeCupti::~FakeCupti() { cu::install_table(fake->table); }

bool FakeCupti::in_use() const {
  const std::lock_guard lock(state.mutex);
  return state.subscriber || !state.enabled.empty() || !state.external.empty();
}

#else

void add_absent_cupti(cu::Table&) {}

#endif

}  // namespace brrr::testing
