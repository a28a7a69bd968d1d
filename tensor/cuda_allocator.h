// A caching, stream-ordered allocator of one kind of memory: a device's own, or pinned memory of
// the host, which the device reads and writes over the bus. A block of device memory belongs to a
// stream and is reused there as soon as it is freed: work on one stream runs in order. Other
// streams that used a block record an event when it is freed, and the block is reused after those
// events. Pinned memory belongs to no stream, so all its uses are of that second sort.
//
// Device blocks under 1 MiB are cut from segments of 2 MiB, larger ones from segments of 20 MiB or
// of their own size. Streams under capture allocate from the graph's own pool: see cuda_capture.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include <brrr/tensor/allocator.h>
#include <brrr/tensor/cuda_api.h>
#include <brrr/tensor/storage.h>

namespace brrr::cu {

struct DeviceState;
struct CudaStream;
struct StreamMemory;
class Allocator;
class CapturePool;

enum class MemoryKind { device, pinned };

struct Block {
  char* data = nullptr;
  std::size_t size = 0;
  StreamMemory* memory = nullptr;
  Block *before = nullptr, *after = nullptr;             // neighbours in the segment, by address
  Block *previous_free = nullptr, *next_free = nullptr;  // in the list of its size
  bool free = false;
  bool small = false;
  bool direct = false;            // pass-through: the block is the driver's allocation
  bool retained = false;          // freed, and owned by a capture's pool
  int pending = 0;                // uses on other streams that may still be in flight
  std::vector<CudaStream*> uses;  // other streams that used it
};

// Free blocks in lists by size, 32 lists to each doubling, found by bit scan (TLSF). Sizes are in
// units of 512 bytes.
class FreeBlocks {
 public:
  void insert(Block* block);
  void remove(Block* block);
  // A block of at least `size` bytes, nearly the smallest; null if there is none. `thorough`
  // searches the whole first list, else its first eight blocks.
  Block* find(std::size_t size, bool thorough) const;
  template <class F>
  void each(F&& f) const {
    for (const auto& row : heads_) {
      for (Block* head : row) {
        for (Block *block = head, *next; block; block = next) {
          next = block->next_free;
          f(block);
        }
      }
    }
  }

 private:
  static constexpr int kRows = 32, kColumns = 32;
  struct ListIndex {
    int row, column;
  };
  static ListIndex list_of(std::size_t size);
  static Block* best_of(Block* head, std::size_t size, int most);

  std::uint32_t rows_ = 0;
  std::uint32_t columns_[kRows] = {};
  Block* heads_[kRows][kColumns] = {};
};

// The free blocks of one stream, for itself or for a graph that it is captured into, or all pinned
// ones.
struct StreamMemory {
  Allocator* allocator;
  CudaStream* stream;  // null: pinned memory
  FreeBlocks small = {}, large = {};
  CapturePool* pool = nullptr;
  std::vector<Block*> segments = {};  // of a pool: the first block of each
};

class Allocator {
 public:
  Allocator(DeviceState& device, MemoryKind kind);

  void allocate(Storage& storage, CudaStream* stream);  // null: pinned memory
  // Pinned memory as the storage of a CPU tensor.
  Storage* new_pinned_storage(std::size_t bytes);
  // `stream` uses the storage in work given to it before or after this call: the memory is not
  // reused before that work is done. Storages of other owners are left alone.
  static void record_use(Storage& storage, CudaStream& stream);

  StreamMemory* new_memory(CudaStream* stream);
  MemoryStats stats();
  void reset_peak();
  void empty_cache();
  std::int64_t live();

  // For cuda_capture.h. From `enter` to `leave` the stream allocates from the pool; `retire`
  // returns the pool's blocks to their streams.
  void enter(CapturePool& pool, CudaStream& stream);
  void leave(CapturePool& pool) noexcept;
  void retire(CapturePool& pool) noexcept;
  void note_launch(CapturePool& pool, CudaStream& stream);
  std::size_t bytes_of(const CapturePool& pool);
  void count_pool(int by);
  int pools();

 private:
  struct Use {
    Block* block;
    CUevent event;  // null when it could not be recorded: the stream must become idle
  };
  struct UsesOn {
    CudaStream* stream;
    std::deque<Use> uses;
  };

  static void release(Storage& storage) noexcept;
  void release_slow(Block* block) noexcept;

  Block* take(StreamMemory& memory, std::size_t size, bool thorough);
  Block* take_slow(StreamMemory& memory, std::size_t size, std::size_t bytes);
  Block* take_direct(StreamMemory& memory, std::size_t bytes);
  void give(Block* block) noexcept;
  CUresult new_segment(StreamMemory& memory, std::size_t size, Block*& segment);
  CUresult grow(StreamMemory& memory, std::size_t size, bool small);
  CUresult driver_allocate(CUdeviceptr* data, std::size_t size);
  void driver_free(const Block& block);
  void check_allocated(CUresult code, std::size_t bytes);
  std::size_t segment_size(std::size_t size) const;
  [[noreturn]] void out_of_memory(std::size_t bytes);

  StreamMemory* own_memory(const CudaStream& stream) const;
  CapturePool* capture_of(const Block* block) const;

  void note_use(Block* block, CudaStream* stream);
  void note_uses(Block* block);
  void settle_deferred();
  void collect_uses(bool wait);
  void free_cached();
  void free_direct();

  struct DropBlock {
    Allocator* allocator;
    void operator()(Block* block) const { allocator->drop_block(block); }
  };
  Block* new_block();
  void drop_block(Block* block) noexcept;

  DeviceState& device_;
  const MemoryKind kind_;
  std::mutex mutex_;
  std::int64_t live_ = 0, peak_ = 0, reserved_ = 0, driver_calls_ = 0, captured_ = 0;
  std::vector<std::unique_ptr<StreamMemory>> memories_;
  std::vector<CapturePool*> capturing_;
  int pools_ = 0;
  std::vector<UsesOn> uses_;
  std::vector<Block*>
      deferred_;  // used by other streams, freed while a capture was on: no event may be recorded
  std::vector<Block*> unfreed_;  // freed direct blocks, until the driver has freed them
  Block* spare_ = nullptr;       // unused Block objects, linked by next_free
};

}  // namespace brrr::cu
