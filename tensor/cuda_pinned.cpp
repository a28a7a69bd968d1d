#include "brrr/tensor/cuda_pinned.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "brrr/tensor/cuda_relaxed_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::cu {
namespace {

struct Use {
  CudaStream* stream;
  CUevent event = nullptr;  // recorded when the storage went; without one the stream must be idle
};

// What stands behind one storage.
struct Pinned {
  PinnedBuffer buffer;
  std::vector<Use> uses;
};

struct PinnedStorages {
  std::mutex mutex;
  long live = 0;
  std::vector<std::unique_ptr<Pinned>> waiting;  // without a storage, still in use
};
PinnedStorages& all() {
  static auto* storages = new PinnedStorages;
  return *storages;
}

void mark(Use& use) noexcept {
  DeviceState& device = *use.stream->on;
  if (device.captures.load() != 0) return;  // the driver must be left in peace
  CUevent event = nullptr;
  try {
    make_current(device);
    event = device.streams.take_event(false);
    BRRR_CUDA(cuEventRecord, event, use.stream->handle);
    use.event = event;
  } catch (const Error&) {
    if (event) device.streams.give_event(event, false);
  }
}

bool done(Use& use, bool wait) {
  DeviceState& device = *use.stream->on;
  if (!wait && device.captures.load() != 0) return false;
  make_current(device);
  if (wait && use.event) {
    BRRR_CUDA(cuEventSynchronize, use.event);
  } else if (wait) {
    BRRR_CUDA(cuStreamSynchronize, use.stream->handle);
  } else if (use.event) {
    const CUresult code = BRRR_CUDA_TRY(cuEventQuery, use.event);
    if (code == CUDA_ERROR_NOT_READY) return false;
    check<Fn::k_cuEventQuery>(code);
  } else {
    const CUresult code = BRRR_CUDA_TRY(cuStreamQuery, use.stream->handle);
    if (code == CUDA_ERROR_NOT_READY) return false;
    check<Fn::k_cuStreamQuery>(code);
  }
  if (use.event) device.streams.give_event(use.event, false);
  return true;
}

// Takes back what streams are done with.
void poll(PinnedStorages& storages, bool wait) {
  for (std::size_t i = 0; i < storages.waiting.size();) {
    std::vector<Use>& uses = storages.waiting[i]->uses;
    while (!uses.empty() && done(uses.back(), wait)) uses.pop_back();
    if (!uses.empty()) {
      ++i;
      continue;
    }
    std::swap(storages.waiting[i], storages.waiting.back());
    storages.waiting.pop_back();
  }
}

void release(Storage& storage) noexcept {
  std::unique_ptr<Pinned> pinned(static_cast<Pinned*>(storage.context));
  PinnedStorages& storages = all();
  std::lock_guard lock(storages.mutex);
  --storages.live;
  if (pinned->uses.empty()) return;
  for (Use& use : pinned->uses) mark(use);
  storages.waiting.push_back(std::move(pinned));  // there is room: new_pinned_storage made it
}

}  // namespace

Storage* new_pinned_storage(DeviceState& device, std::size_t bytes) {
  PinnedStorages& storages = all();
  std::lock_guard lock(storages.mutex);
  poll(storages, false);
  make_current(device);
  const RelaxedCapture relaxed(device.captures.load() != 0);
  storages.waiting.reserve(storages.waiting.size() + static_cast<std::size_t>(storages.live) + 1);
  auto pinned = std::make_unique<Pinned>(Pinned{PinnedBuffer(device, bytes), {}});
  Storage* storage = adopt_storage(cpu, pinned->buffer.data(), bytes, release, pinned.get());
  pinned.release();
  ++storages.live;
  return storage;
}

bool is_pinned_storage(const Storage& storage) { return storage.release == release; }

long live_pinned_storages() {
  PinnedStorages& storages = all();
  std::lock_guard lock(storages.mutex);
  return storages.live;
}

void record_pinned_use(Storage& storage, CudaStream& stream) {
  if (!is_pinned_storage(storage)) return;
  std::lock_guard lock(all().mutex);
  std::vector<Use>& uses = static_cast<Pinned*>(storage.context)->uses;
  if (std::ranges::find(uses, &stream, &Use::stream) == uses.end()) uses.push_back({&stream});
}

void settle_pinned_storages() {
  PinnedStorages& storages = all();
  std::lock_guard lock(storages.mutex);
  poll(storages, true);
}

void forget_pinned_storages() noexcept {
  PinnedStorages& storages = all();
  std::lock_guard lock(storages.mutex);
  storages.waiting.clear();
}

}  // namespace brrr::cu
