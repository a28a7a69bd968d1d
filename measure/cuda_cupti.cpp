// Records of CUPTI's activity API: kernels (those of graphs one by one), copies, fills, calls of
// the driver and of the runtime that cuBLASLt uses, and the waits among these. CUPTI writes records
// into buffers that it asks for; they are read after the recording.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "brrr/measure/cupti_recorder.h"
#include "brrr/tensor/cuda_api.h"

namespace brrr::measure {

#if BRRR_HAS_CUPTI

namespace {

constexpr std::size_t kBufferBytes = 4 << 20;
constexpr auto kExternal = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

std::string failed(const char* call, CUptiResult code) {
  return fmt::format("{} failed: {}", call, cu::describe(cu::Library::cupti, code));
}

// The record buffers that CUPTI returns, also on threads of its own. Global, since its callbacks
// have no user argument.
struct Buffers {
  struct Filled {
    std::uint8_t* data;
    std::size_t bytes;
  };
  std::mutex mutex;
  bool open = false;  // false: buffers returned after the recording are dropped
  std::vector<Filled> filled;
  std::size_t dropped = 0;

  void free_all() {
    for (const Filled& each : filled) std::free(each.data);
    filled.clear();
  }
};
Buffers& buffers() {
  static Buffers* const all = new Buffers;
  return *all;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::malloc(kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                          std::size_t, std::size_t valid) {
  Buffers& all = buffers();
  std::size_t dropped = 0;
  if (BRRR_CUDA_TRY(cuptiActivityGetNumDroppedRecords, context, stream, &dropped) != CUPTI_SUCCESS)
    dropped = 0;
  const std::lock_guard lock(all.mutex);
  all.dropped += dropped;
  if (all.open && valid > 0) {
    all.filled.push_back({buffer, valid});
  } else {
    std::free(buffer);
  }
}

std::uint64_t CUPTIAPI host_clock() { return static_cast<std::uint64_t>(host_nanoseconds()); }

// The callback of a subscription that exists only to exclude other tools: no callback is enabled.
void CUPTIAPI no_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

struct TracedActivity {
  CUpti_ActivityKind kind;
  const char* what;
};
constexpr std::array<TracedActivity, 7> kTraced = {
    {{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "kernels"},
     {CUPTI_ACTIVITY_KIND_MEMCPY, "copies"},
     {CUPTI_ACTIVITY_KIND_MEMSET, "fills"},
     {CUPTI_ACTIVITY_KIND_DRIVER, "calls of the driver"},
     {CUPTI_ACTIVITY_KIND_RUNTIME, "calls of the runtime"},
     {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, "causes"},
     {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "waits"}}};

// Reads records. A library newer than the headers appends members to a record; the offsets of the
// members read here have not changed since CUDA 12.4.
#if CUPTI_API_VERSION >= 130000
static_assert(offsetof(CUpti_ActivityKernel9, name) == offsetof(CUpti_ActivityKernel10, name) &&
              offsetof(CUpti_ActivityKernel9, graphNodeId) ==
                  offsetof(CUpti_ActivityKernel10, graphNodeId));
static_assert(offsetof(CUpti_ActivityMemcpy5, graphNodeId) ==
              offsetof(CUpti_ActivityMemcpy6, graphNodeId));
#endif
class Reader {
 public:
  explicit Reader(std::int64_t offset_ns) : offset_ns_(offset_ns) {}

  void read(const Buffers::Filled& buffer) {
    CUpti_Activity* record = nullptr;
    for (;;) {
      const CUptiResult code =
          BRRR_CUDA_TRY(cuptiActivityGetNextRecord, buffer.data, buffer.bytes, &record);
      if (code == CUPTI_ERROR_MAX_LIMIT_REACHED) return;
      if (code != CUPTI_SUCCESS) {
        records_.missing.push_back(failed("cuptiActivityGetNextRecord", code) +
                                   ": the rest of a buffer is not read");
        return;
      }
      add(record);
    }
  }

  DeviceRecords finish() {
    for (DeviceRecord& each : records_.device) {
      const auto cause = causes_.find(each.call);
      if (cause != causes_.end()) each.cause = static_cast<std::size_t>(cause->second);
    }
    for (DriverCall& each : records_.calls) each.waits = waits_.contains(each.correlation);
    return std::move(records_);
  }

 private:
  template <class Record>
  static const Record& as(const CUpti_Activity* record) {
    return *reinterpret_cast<const Record*>(record);
  }
  std::int64_t at(std::uint64_t time) const { return static_cast<std::int64_t>(time) + offset_ns_; }

  void add(const CUpti_Activity* record) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = as<CUpti_ActivityKernel9>(record);
        add_work(kernel, DeviceWork::kernel, kernel.name ? kernel.name : "");
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = as<CUpti_ActivityMemcpy5>(record);
        add_work(copy, DeviceWork::copy, name_of_copy(copy.copyKind));
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET:
        add_work(as<CUpti_ActivityMemset4>(record), DeviceWork::fill, "fill");
        break;
      case CUPTI_ACTIVITY_KIND_DRIVER: add_call(record, CUPTI_CB_DOMAIN_DRIVER_API); break;
      case CUPTI_ACTIVITY_KIND_RUNTIME: add_call(record, CUPTI_CB_DOMAIN_RUNTIME_API); break;
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& pair = as<CUpti_ActivityExternalCorrelation>(record);
        if (pair.externalKind == kExternal) causes_[pair.correlationId] = pair.externalId;
        break;
      }
      case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
        const auto& wait = as<CUpti_ActivitySynchronization>(record);
        if (wait.type != CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT)
          waits_.insert(wait.correlationId);
        break;
      }
      default: break;
    }
  }

  template <class Record>
  void add_work(const Record& record, DeviceWork work, std::string name) {
    DeviceRecord added{.work = work,
                       .name = std::move(name),
                       .stream = std::uint64_t{record.deviceId} << 32 | record.streamId,
                       .start_ns = at(record.start),
                       .end_ns = at(record.end),
                       .call = record.correlationId};
    if (record.graphNodeId != 0) added.node = record.graphNodeId;
    // CUPTI could not read the device's clock.
    if (record.start == 0 || record.end < record.start) {
      ++without_times_;
      if (without_times_ == 1) records_.missing.push_back("CUPTI has records without times");
      return;
    }
    records_.device.push_back(std::move(added));
  }

  void add_call(const CUpti_Activity* record, CUpti_CallbackDomain domain) {
    const auto& call = as<CUpti_ActivityAPI>(record);
    const char* name = nullptr;
    if (BRRR_CUDA_TRY(cuptiGetCallbackName, domain, call.cbid, &name) != CUPTI_SUCCESS || !name)
      name = "call of the driver";
    records_.calls.push_back({.name = name,
                              .thread = call.threadId,
                              .start_ns = at(call.start),
                              .end_ns = at(call.end),
                              .correlation = call.correlationId});
  }

  static const char* name_of_copy(std::uint8_t kind) {
    switch (kind) {
      case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "copy to device";
      case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "copy to host";
      case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "copy on device";
      default: return "copy";
    }
  }

  std::int64_t offset_ns_;
  DeviceRecords records_;
  int without_times_ = 0;
  std::unordered_map<std::uint32_t, std::uint64_t> causes_;  // by correlation
  std::unordered_set<std::uint32_t> waits_;
};

class CuptiRecorder final : public DeviceRecorder {
 public:
  ~CuptiRecorder() override {
    disable();
    const std::lock_guard lock(buffers().mutex);
    buffers().free_all();  // left over from an aborted recording
  }

  // Starts recording; returns why it cannot, or an empty text.
  std::string start() {
    CUptiResult code = BRRR_CUDA_TRY(cuptiSubscribe, &subscriber_, no_callback, nullptr);
    if (code != CUPTI_SUCCESS) {
      subscriber_ = nullptr;
      return failed("cuptiSubscribe", code);
    }
    {
      const std::lock_guard lock(buffers().mutex);
      buffers().open = true;
      buffers().dropped = 0;
    }
    has_host_clock_ =
        BRRR_CUDA_TRY(cuptiActivityRegisterTimestampCallback, host_clock) == CUPTI_SUCCESS;
    offset_at_start_ = offset_ns();
    code = BRRR_CUDA_TRY(cuptiActivityRegisterCallbacks, give_buffer, take_buffer);
    if (code != CUPTI_SUCCESS) return failed("cuptiActivityRegisterCallbacks", code);
    for (const TracedActivity& kind : kTraced) {
      code = BRRR_CUDA_TRY(cuptiActivityEnable, kind.kind);
      if (code == CUPTI_SUCCESS) {
        enabled_.push_back(kind.kind);
      } else if (kind.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        return failed("cuptiActivityEnable", code);
      } else {
        missing_.push_back(fmt::format("{}: {}", kind.what, failed("cuptiActivityEnable", code)));
      }
    }
    return {};
  }

  void begin(std::size_t span) override {
    BRRR_CUDA_TRY(cuptiActivityPushExternalCorrelationId, kExternal, span);
  }
  void end(std::size_t) override {
    std::uint64_t span = 0;
    BRRR_CUDA_TRY(cuptiActivityPopExternalCorrelationId, kExternal, &span);
  }

  std::string source() const override { return "CUPTI " + cupti_version(); }

  DeviceRecords stop() override {
    Reader reader((offset_at_start_ + offset_ns()) / 2);
    disable();
    std::vector<Buffers::Filled> filled;
    std::size_t dropped = 0;
    {
      const std::lock_guard lock(buffers().mutex);
      filled = std::exchange(buffers().filled, {});
      dropped = buffers().dropped;
    }
    for (const Buffers::Filled& buffer : filled) {
      reader.read(buffer);
      std::free(buffer.data);
    }
    DeviceRecords records = reader.finish();
    records.missing.insert(records.missing.end(), missing_.begin(), missing_.end());
    if (dropped > 0) records.missing.push_back(fmt::format("CUPTI dropped {} records", dropped));
    return records;
  }

 private:
  // The offset from CUPTI's clock to the host's, if CUPTI does not use the host's clock.
  std::int64_t offset_ns() const {
    if (has_host_clock_) return 0;
    std::uint64_t theirs = 0;
    const std::int64_t before = host_nanoseconds();
    if (BRRR_CUDA_TRY(cuptiGetTimestamp, &theirs) != CUPTI_SUCCESS) return 0;
    return (before + host_nanoseconds()) / 2 - static_cast<std::int64_t>(theirs);
  }

  // Without cuptiFinalize, so the process stays some percent slower: up to CUDA 12.5 a process with
  // CUDA graphs crashes when CUPTI is used again after it (pytorch/pytorch#112507).
  void disable() {
    if (!subscriber_) return;
    BRRR_CUDA_TRY(cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    for (const CUpti_ActivityKind kind : enabled_) BRRR_CUDA_TRY(cuptiActivityDisable, kind);
    if (!enabled_.empty()) BRRR_CUDA_TRY(cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    BRRR_CUDA_TRY(cuptiUnsubscribe, std::exchange(subscriber_, nullptr));
    const std::lock_guard lock(buffers().mutex);
    buffers().open = false;
  }

  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool has_host_clock_ = false;
  std::int64_t offset_at_start_ = 0;
  std::vector<CUpti_ActivityKind> enabled_;
  std::vector<std::string> missing_;
};

}  // namespace

// The version of CUPTI's interface; from 13.0 on it equals the toolkit's.
std::string cupti_version() {
  std::uint32_t version = 0;
  if (!cu::open_library(cu::Library::cupti).empty() ||
      BRRR_CUDA_TRY(cuptiGetVersion, &version) != CUPTI_SUCCESS)
    return {};
  return version >= 130000 ? fmt::format("{}.{}", version / 10000, version / 100 % 100)
                           : fmt::format("interface {}", version);
}

std::unique_ptr<DeviceRecorder> record_by_cupti(std::string& why) {
  why = cu::open_library(cu::Library::cupti);
  if (!why.empty()) return nullptr;
  auto recorder = std::make_unique<CuptiRecorder>();
  why = recorder->start();
  if (!why.empty()) return nullptr;
  return recorder;
}

#else

std::string cupti_version() { return {}; }

std::unique_ptr<DeviceRecorder> record_by_cupti(std::string& why) {
  why = cu::open_library(cu::Library::cupti);
  return nullptr;
}

#endif

}  // namespace brrr::measure
