#include "brrr/tensor/cuda_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "brrr/tensor/cpu_allocator.h"
#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_relaxed_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::cu {
namespace {

constexpr std::size_t kUnit = 512;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSmallBlock = kMiB;  // smaller blocks are cut from small segments
constexpr std::size_t kSmallSegment = 2 * kMiB;
constexpr std::size_t kLargeSegment = 20 * kMiB;
constexpr std::size_t kLargeOwn = 10 * kMiB;         // a block of this size has its own segment
constexpr std::size_t kLargeRest = kMiB;             // smallest remainder split off a large block
constexpr std::size_t kMost = std::size_t{1} << 44;  // larger requests cannot succeed

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

// --- Free blocks ---

FreeBlocks::ListIndex FreeBlocks::list_of(std::size_t size) {
  const std::size_t units = size / kUnit;
  if (units < kColumns) return {0, static_cast<int>(units)};
  const int log = std::bit_width(units) - 1;
  return {log - 4, static_cast<int>(units >> (log - 5)) & (kColumns - 1)};
}

void FreeBlocks::insert(Block* block) {
  const ListIndex list = list_of(block->size);
  Block*& head = heads_[list.row][list.column];
  block->previous_free = nullptr;
  block->next_free = head;
  if (head) head->previous_free = block;
  head = block;
  columns_[list.row] |= 1u << list.column;
  rows_ |= 1u << list.row;
  block->free = true;
}

void FreeBlocks::remove(Block* block) {
  block->free = false;
  if (block->next_free) block->next_free->previous_free = block->previous_free;
  if (block->previous_free) {
    block->previous_free->next_free = block->next_free;
    return;
  }
  const ListIndex list = list_of(block->size);
  heads_[list.row][list.column] = block->next_free;
  if (block->next_free) return;
  columns_[list.row] &= ~(1u << list.column);
  if (columns_[list.row] == 0) rows_ &= ~(1u << list.row);
}

Block* FreeBlocks::best_of(Block* head, std::size_t size, int most) {
  Block* best = nullptr;
  for (Block* block = head; block && most > 0; block = block->next_free, --most) {
    if (block->size == size) return block;
    if (block->size > size && (!best || block->size < best->size)) best = block;
  }
  return best;
}

Block* FreeBlocks::find(std::size_t size, bool thorough) const {
  constexpr int kGlance = 8;
  const ListIndex list = list_of(size);
  // Blocks of the same list may be a little too small; those of any later list fit.
  if (Block* best = best_of(heads_[list.row][list.column], size, thorough ? INT32_MAX : kGlance))
    return best;
  int row = list.row;
  std::uint32_t columns =
      list.column == kColumns - 1 ? 0 : columns_[row] & (~std::uint32_t{0} << (list.column + 1));
  if (columns == 0) {
    const std::uint32_t rows = row == kRows - 1 ? 0 : rows_ & (~std::uint32_t{0} << (row + 1));
    if (rows == 0) return nullptr;
    row = std::countr_zero(rows);
    columns = columns_[row];
  }
  return best_of(heads_[row][std::countr_zero(columns)], size, kGlance);
}

// --- Allocation ---

Allocator::Allocator(DeviceState& device, MemoryKind kind) : device_(device), kind_(kind) {
  if (kind_ == MemoryKind::pinned) new_memory(nullptr);
}

StreamMemory* Allocator::new_memory(CudaStream* stream) {
  std::lock_guard lock(mutex_);
  memories_.reserve(memories_.size() + 1);
  uses_.reserve(memories_.size() + 1);
  memories_.push_back(std::make_unique<StreamMemory>(StreamMemory{this, stream}));
  return memories_.back().get();
}

void Allocator::allocate(Storage& storage, CudaStream* stream) {
  storage.stream = stream;
  if (storage.bytes == 0) return;
  const std::size_t bytes = storage.bytes;
  std::lock_guard lock(mutex_);
  StreamMemory& memory = stream ? *stream->memory : *memories_.front();
  Block* block;
  if (bytes > kMost) [[unlikely]]
    out_of_memory(bytes);
  if (allocator_pass_through()) [[unlikely]] {
    block = take_direct(memory, bytes);
  } else {
    const std::size_t size = round_up(bytes, kUnit);
    block = take(memory, size, false);
    if (!block) [[unlikely]]
      block = take_slow(memory, size, bytes);
  }
  live_ += static_cast<std::int64_t>(bytes);
  if (live_ > peak_) peak_ = live_;
  storage.data = block->data;
  storage.context = block;
  storage.release = release;
}

Storage* Allocator::new_pinned_storage(std::size_t bytes) {
  Storage* storage = adopt_storage(cpu, nullptr, bytes, nullptr, nullptr);
  try {
    if (device_.captures.load() == 0) {  // else events must not be queried
      std::lock_guard lock(mutex_);
      settle_deferred();
      collect_uses(false);
    }
    allocate(*storage, nullptr);
  } catch (...) {
    storage->drop();
    throw;
  }
  return storage;
}

// Removes a free block of at least `size` bytes and splits off its remainder; null if none fits.
Block* Allocator::take(StreamMemory& memory, std::size_t size, bool thorough) {
  const bool small = size < kSmallBlock;
  FreeBlocks& free = small ? memory.small : memory.large;
  Block* block = free.find(size, thorough);
  if (!block) return nullptr;
  const std::size_t rest_size = block->size - size;
  Block* rest = rest_size >= (small ? kUnit : kLargeRest) ? new_block() : nullptr;
  free.remove(block);
  if (rest) {
    rest->data = block->data + size;
    rest->size = rest_size;
    rest->memory = block->memory;
    rest->small = small;
    rest->before = block;
    rest->after = block->after;
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->size = size;
    free.insert(rest);
  }
  return block;
}

Block* Allocator::take_slow(StreamMemory& memory, std::size_t size, std::size_t bytes) {
  make_current(device_);
  const bool quiet = device_.captures.load() != 0;  // no driver call that would break a capture
  if (!quiet) {
    settle_deferred();
    collect_uses(false);
  }
  if (Block* block = take(memory, size, true)) return block;
  const bool small = size < kSmallBlock;
  CUresult code = grow(memory, segment_size(size), small);
  if (code == CUDA_ERROR_OUT_OF_MEMORY && !quiet) {
    collect_uses(true);
    if (Block* block = take(memory, size, true)) return block;
    free_cached();
    code = grow(memory, segment_size(size), small);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) code = grow(memory, round_up(size, kSmallSegment), small);
  }
  check_allocated(code, bytes);
  return take(memory, size, true);
}

// Pinned segments are no larger than the request: pinning takes milliseconds per megabyte, and
// takes memory from the whole machine.
std::size_t Allocator::segment_size(std::size_t size) const {
  if (size < kSmallBlock) return kSmallSegment;
  if (size < kLargeOwn && kind_ == MemoryKind::device) return kLargeSegment;
  return round_up(size, kSmallSegment);
}

// Allocates a segment from the driver. On failure `segment` is null.
CUresult Allocator::new_segment(StreamMemory& memory, std::size_t size, Block*& segment) {
  if (memory.pool) memory.segments.reserve(memory.segments.size() + 1);
  std::unique_ptr<Block, DropBlock> block(new_block(), DropBlock{this});
  CUdeviceptr data = 0;
  const CUresult code = driver_allocate(&data, size);
  if (code != CUDA_SUCCESS) return code;
  block->data = reinterpret_cast<char*>(data);
  block->size = size;
  block->memory = &memory;
  segment = block.release();
  if (memory.pool) {
    memory.segments.push_back(segment);
    captured_ += static_cast<std::int64_t>(size);
  }
  return code;
}

// Adds a segment to the free blocks.
CUresult Allocator::grow(StreamMemory& memory, std::size_t size, bool small) {
  Block* block = nullptr;
  const CUresult code = new_segment(memory, size, block);
  if (!block) return code;
  block->small = small;
  (small ? memory.small : memory.large).insert(block);
  return code;
}

CUresult Allocator::driver_allocate(CUdeviceptr* data, std::size_t size) {
  require_known_allocator();
  RelaxedCapture relaxed(device_.captures.load() != 0);
  ++driver_calls_;
  void* host = nullptr;
  const CUresult code = kind_ == MemoryKind::device ? BRRR_CUDA_TRY(cuMemAlloc, data, size)
                                                    : BRRR_CUDA_TRY(cuMemAllocHost, &host, size);
  if (host) *data = reinterpret_cast<CUdeviceptr>(host);
  if (code == CUDA_SUCCESS) reserved_ += static_cast<std::int64_t>(size);
  return code;
}

// Frees the block's memory. Work of all streams that used it must have ended.
void Allocator::driver_free(const Block& block) {
  if (kind_ == MemoryKind::device) {
    BRRR_CUDA(cuMemFree, reinterpret_cast<CUdeviceptr>(block.data));
  } else {
    BRRR_CUDA(cuMemFreeHost, block.data);
  }
  reserved_ -= static_cast<std::int64_t>(block.size);
}

Block* Allocator::take_direct(StreamMemory& memory, std::size_t bytes) {
  make_current(device_);
  const bool quiet = device_.captures.load() != 0;
  if (!quiet) free_direct();
  Block* block = nullptr;
  CUresult code = new_segment(memory, bytes, block);
  if (code == CUDA_ERROR_OUT_OF_MEMORY && !quiet) {
    settle_deferred();
    collect_uses(true);
    free_cached();
    code = new_segment(memory, bytes, block);
  }
  check_allocated(code, bytes);
  block->direct = true;
  return block;
}

void Allocator::check_allocated(CUresult code, std::size_t bytes) {
  if (code == CUDA_ERROR_OUT_OF_MEMORY) out_of_memory(bytes);
  if (kind_ == MemoryKind::device) {
    check<Fn::k_cuMemAlloc>(code);
  } else {
    check<Fn::k_cuMemAllocHost>(code);
  }
}

void Allocator::out_of_memory(std::size_t bytes) {
  const std::string numbers = fmt::format("requested {} bytes, in use {}, cached {}", bytes, live_,
                                          reserved_ > live_ ? reserved_ - live_ : 0);
  const char* op = op_or("allocate");
  if (kind_ == MemoryKind::pinned)
    throw OutOfMemory(fmt::format("[{}] out of pinned memory: {}", op, numbers), bytes);
  std::size_t free = 0, total = 0;
  const bool known = BRRR_CUDA_TRY(cuMemGetInfo, &free, &total) == CUDA_SUCCESS;
  throw OutOfMemory(
      fmt::format("[{}] out of memory on cuda:{}: {}, free on the device {}", op, device_.index,
                  numbers, known ? fmt::format("{} of {}", free, total) : "unknown"),
      bytes);
}

// --- Release ---

void Allocator::release(Storage& storage) noexcept {
  Block* block = static_cast<Block*>(storage.context);
  Allocator& self = *block->memory->allocator;
  std::lock_guard lock(self.mutex_);
  self.live_ -= static_cast<std::int64_t>(storage.bytes);
  if (block->uses.empty() && !block->direct &&
      self.device_.captures.load(std::memory_order_relaxed) == 0) [[likely]] {
    self.give(block);
  } else {
    self.release_slow(block);
  }
}

// Inserts a block into the free lists, merged with its free neighbours.
void Allocator::give(Block* block) noexcept {
  FreeBlocks& free = block->small ? block->memory->small : block->memory->large;
  if (Block* after = block->after; after && after->free) {
    free.remove(after);
    block->size += after->size;
    block->after = after->after;
    if (block->after) block->after->before = block;
    drop_block(after);
  }
  if (Block* before = block->before; before && before->free) {
    free.remove(before);
    before->size += block->size;
    before->after = block->after;
    if (before->after) before->after->before = before;
    drop_block(block);
    block = before;
  }
  free.insert(block);
}

void Allocator::release_slow(Block* block) noexcept {
  try {
    const bool quiet = device_.captures.load() != 0;
    if (CapturePool* pool = capture_of(block)) {
      pool->retained_.push_back(block);
    } else if (block->direct && block->memory->pool) {
      block->retained = true;
    } else if (block->direct) {
      unfreed_.push_back(block);
      if (!quiet) {
        make_current(device_);
        free_direct();
      }
    } else if (block->uses.empty()) {
      give(block);
    } else if (quiet) {
      deferred_.push_back(block);
    } else {
      note_uses(block);
    }
  } catch (...) {
    // If the driver fails to free a block, the next call tries again. The block leaks only if the
    // host has no memory to remember it.
  }
}

void Allocator::record_use(Storage& storage, CudaStream& stream) {
  if (storage.release != release || storage.stream == &stream) return;
  Block* block = static_cast<Block*>(storage.context);
  std::lock_guard lock(block->memory->allocator->mutex_);
  if (std::ranges::find(block->uses, &stream) == block->uses.end()) block->uses.push_back(&stream);
}

// Records, on each stream that used the block, the event after which it may be reused.
void Allocator::note_uses(Block* block) {
  for (CudaStream* stream : block->uses) note_use(block, stream);
  block->uses.clear();
}

void Allocator::note_use(Block* block, CudaStream* stream) {
  auto on = std::ranges::find(uses_, stream, &UsesOn::stream);
  if (on == uses_.end()) on = uses_.insert(uses_.end(), UsesOn{stream, {}});
  on->uses.push_back({block, nullptr});
  ++block->pending;
  if (stream->on->captures.load() != 0) return;
  CUevent event = nullptr;
  try {
    make_current(*stream->on);
    event = stream->on->streams.take_event(false);
    BRRR_CUDA(cuEventRecord, event, stream->handle);
  } catch (const CudaError&) {
    if (event) stream->on->streams.give_event(event, false);
    return;  // no event could be recorded: the use ends when the stream is idle
  }
  on->uses.back().event = event;
}

void Allocator::settle_deferred() {
  while (!deferred_.empty()) {
    Block* block = deferred_.back();
    deferred_.pop_back();
    // Most streams have become idle during the capture: they need no event.
    std::erase_if(block->uses, [](const CudaStream* stream) {
      make_current(*stream->on);
      return stream->on->captures.load() == 0 &&
             BRRR_CUDA_TRY(cuStreamQuery, stream->handle) == CUDA_SUCCESS;
    });
    note_uses(block);
    if (block->pending == 0) give(block);
  }
}

// Makes blocks free whose uses on other streams have ended. With `wait`, waits for all uses and
// makes all blocks free.
void Allocator::collect_uses(bool wait) {
  for (UsesOn& on : uses_) {
    while (!on.uses.empty()) {
      const Use use = on.uses.front();
      CudaStream& stream = *on.stream;
      make_current(*stream.on);
      if (!wait) {
        if (!(use.event ? is_done(use.event) : is_done(stream.handle))) break;
      } else if (use.event) {
        BRRR_CUDA(cuEventSynchronize, use.event);
      } else {
        BRRR_CUDA(cuStreamSynchronize, stream.handle);
      }
      if (use.event) stream.on->streams.give_event(use.event, false);
      on.uses.pop_front();
      if (--use.block->pending == 0) give(use.block);
    }
  }
  make_current(device_);
}

// --- The cache ---

// Returns segments that are free as a whole to the driver, after the work that used them.
void Allocator::free_cached() {
  for (const auto& memory : memories_) {
    std::vector<Block*> whole;
    for (FreeBlocks* free : {&memory->small, &memory->large}) {
      free->each([&](Block* block) {
        if (!block->before && !block->after) whole.push_back(block);
      });
    }
    if (whole.empty()) continue;
    if (memory->stream) BRRR_CUDA(cuStreamSynchronize, memory->stream->handle);
    for (Block* block : whole) {
      driver_free(*block);
      (block->small ? memory->small : memory->large).remove(block);
      drop_block(block);
    }
  }
}

void Allocator::free_direct() {
  while (!unfreed_.empty()) {
    Block* block = unfreed_.back();
    for (CudaStream* stream : block->uses) BRRR_CUDA(cuStreamSynchronize, stream->handle);
    if (CudaStream* own = block->memory->stream) BRRR_CUDA(cuStreamSynchronize, own->handle);
    driver_free(*block);
    unfreed_.pop_back();
    drop_block(block);
  }
}

void Allocator::empty_cache() {
  if (device_.captures.load() != 0) {
    fail("[empty_cache] not possible while a stream is being captured into a graph");
  }
  make_current(device_);
  std::lock_guard lock(mutex_);
  settle_deferred();
  collect_uses(true);
  free_direct();
  free_cached();
}

MemoryStats Allocator::stats() {
  std::lock_guard lock(mutex_);
  return {live_, peak_, reserved_, driver_calls_, captured_};
}

void Allocator::reset_peak() {
  std::lock_guard lock(mutex_);
  peak_ = live_;
}

std::int64_t Allocator::live() {
  std::lock_guard lock(mutex_);
  return live_;
}

// --- Block objects ---

Block* Allocator::new_block() {
  Block* block = spare_;
  if (!block) return new Block;
  spare_ = block->next_free;
  block->next_free = nullptr;
  return block;
}

void Allocator::drop_block(Block* block) noexcept {
  block->before = block->after = block->previous_free = nullptr;
  block->free = block->small = block->direct = block->retained = false;
  block->pending = 0;
  block->uses.clear();
  block->next_free = spare_;
  spare_ = block;
}

}  // namespace brrr::cu
