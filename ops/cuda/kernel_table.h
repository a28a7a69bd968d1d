// Kernels that are ready to launch, found by a packed key in a few nanoseconds from any thread:
// readers take no lock, entries are never changed and live as long as the process.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace brrr::on_cuda {

struct KernelKey {
  const void* on = nullptr;  // the DeviceState: another one after CUDA was shut down and restarted
  std::uint64_t what = 0;    // op, types
  std::uint64_t how = 0;     // layout
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

template <class Entry>
class KernelTable {
 public:
  const Entry* find(const KernelKey& key) const {
    for (const Cell* cell = slots_[place_of(key)].load(std::memory_order_acquire); cell;
         cell = cell->next) {
      if (cell->key == key) return &cell->entry;
    }
    return nullptr;
  }

  // Returns the table's entry, which another thread may have inserted first.
  const Entry* insert(const KernelKey& key, const Entry& entry) {
    std::lock_guard lock(mutex_);
    if (const Entry* found = find(key)) return found;
    std::atomic<const Cell*>& slot = slots_[place_of(key)];
    Cell* cell = new Cell{key, entry, slot.load(std::memory_order_relaxed)};
    slot.store(cell, std::memory_order_release);
    return &cell->entry;
  }

 private:
  struct Cell {
    KernelKey key;
    Entry entry;
    const Cell* next;
  };
  static constexpr int kBits = 12;
  static std::size_t place_of(const KernelKey& key) {
    return ((key.what ^ key.how * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull) >> (64 - kBits);
  }

  std::atomic<const Cell*> slots_[std::size_t{1} << kBits] = {};
  std::mutex mutex_;
};

}  // namespace brrr::on_cuda
