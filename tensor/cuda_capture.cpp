#include "brrr/tensor/cuda_capture.h"

#include <algorithm>

#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::cu {
namespace {

void add_once(std::vector<CudaStream*>& streams, CudaStream* stream) {
  if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
}

}  // namespace

CapturePool::CapturePool(DeviceState& device) : device_(device) { device.allocator.count_pool(1); }

CapturePool::~CapturePool() {
  device_.allocator.leave(*this);
  device_.allocator.retire(*this);
  device_.allocator.count_pool(-1);
}

void CapturePool::join(CudaStream& stream) { device_.allocator.enter(*this, stream); }

void CapturePool::launched_on(CudaStream& stream) { device_.allocator.note_launch(*this, stream); }

void begin_capture(CapturePool& pool, CudaStream& stream, CUstreamCaptureMode mode) {
  make_current(*stream.on);
  pool.launched_on(stream);
  pool.join(stream);
  stream.on->captures.fetch_add(1);
  try {
    BRRR_CUDA(cuStreamBeginCapture, stream.handle, mode);
  } catch (...) {
    stream.on->captures.fetch_sub(1);
    stream.on->allocator.leave(pool);
    throw;
  }
}

CUgraph end_capture(CapturePool& pool, CudaStream& stream) {
  make_current(*stream.on);
  CUgraph graph = nullptr;
  const CUresult code = BRRR_CUDA_TRY(cuStreamEndCapture, stream.handle, &graph);
  if (code != CUDA_SUCCESS) {
    // Ends the capture after any failure, so that the stream is usable again.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    BRRR_CUDA_TRY(cuStreamIsCapturing, stream.handle, &status);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE)
      BRRR_CUDA_TRY(cuStreamEndCapture, stream.handle, &graph);
    if (graph) BRRR_CUDA_TRY(cuGraphDestroy, graph);
  }
  stream.on->captures.fetch_sub(1);
  stream.on->allocator.leave(pool);
  check<Fn::k_cuStreamEndCapture>(code);
  return graph;
}

std::size_t CapturePool::bytes() const { return device_.allocator.bytes_of(*this); }

// --- The allocator's part ---

std::size_t Allocator::bytes_of(const CapturePool& pool) {
  std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& memory : pool.memories_) {
    for (const Block* first : memory->segments) {
      for (const Block* block = first; block; block = block->after) bytes += block->size;
    }
  }
  return bytes;
}

void Allocator::count_pool(int by) {
  std::lock_guard lock(mutex_);
  pools_ += by;
}

int Allocator::pools() {
  std::lock_guard lock(mutex_);
  return pools_;
}

void Allocator::enter(CapturePool& pool, CudaStream& stream) {
  if (stream.on != &device_) fail("[capture] expected a stream of the pool's device");
  std::lock_guard lock(mutex_);
  if (stream.memory->pool) fail("[capture] expected a stream that no pool has taken");
  auto mine =
      std::ranges::find(pool.memories_, &stream, [](const auto& memory) { return memory->stream; });
  if (mine == pool.memories_.end()) {
    pool.memories_.push_back(std::make_unique<StreamMemory>(StreamMemory{this, &stream}));
    mine = std::prev(pool.memories_.end());
    (*mine)->pool = &pool;
  }
  if (std::ranges::find(capturing_, &pool) == capturing_.end()) capturing_.push_back(&pool);
  pool.taking_part_.push_back(&stream);
  stream.memory = mine->get();
}

void Allocator::leave(CapturePool& pool) noexcept {
  std::lock_guard lock(mutex_);
  for (CudaStream* stream : pool.taking_part_) stream->memory = own_memory(*stream);
  pool.taking_part_.clear();
  std::erase(capturing_, &pool);
}

void Allocator::note_launch(CapturePool& pool, CudaStream& stream) {
  std::lock_guard lock(mutex_);
  add_once(pool.launched_, &stream);
}

StreamMemory* Allocator::own_memory(const CudaStream& stream) const {
  return std::ranges::find(memories_, &stream, [](const auto& memory) { return memory->stream; })
      ->get();
}

// The pool of a running capture whose graph may use this block of another pool or stream.
CapturePool* Allocator::capture_of(const Block* block) const {
  for (CapturePool* pool : capturing_) {
    if (block->memory->pool == pool) continue;
    for (CudaStream* stream : pool->taking_part_) {
      if (stream == block->memory->stream ||
          std::ranges::find(block->uses, stream) != block->uses.end())
        return pool;
    }
  }
  return nullptr;
}

void Allocator::retire(CapturePool& pool) noexcept {
  std::lock_guard lock(mutex_);
  // Launches in flight are uses on other streams.
  const auto after_launches = [&](Block* block) {
    for (CudaStream* stream : pool.launched_) {
      if (stream == block->memory->stream) continue;
      if (block->pending > 0) {
        note_use(block, stream);
      } else {
        add_once(block->uses, stream);
      }
    }
  };
  Block* returned = nullptr;  // linked by next_free
  for (const auto& memory : pool.memories_) {
    StreamMemory* own = own_memory(*memory->stream);
    for (Block* first : memory->segments) {
      for (Block* block = first; block; block = block->after) {
        captured_ -= static_cast<std::int64_t>(block->size);
        if (block->free) {
          (block->small ? memory->small : memory->large).remove(block);
          block->retained = true;
        }
        block->memory = own;
        try {
          after_launches(block);
        } catch (...) {  // as in release_slow: no memory on the host
          block->retained = false;
        }
        if (!std::exchange(block->retained, false)) continue;
        block->next_free = returned;
        returned = block;
      }
    }
  }
  while (returned) {
    Block* block = std::exchange(returned, returned->next_free);
    block->next_free = nullptr;
    release_slow(block);
  }
  for (Block* block : pool.retained_) {
    try {
      after_launches(block);
      release_slow(block);
    } catch (...) {
    }
  }
}

}  // namespace brrr::cu
