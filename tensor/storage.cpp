#include "brrr/tensor/storage.h"

#include <new>

#include "brrr/tensor/cpu_allocator.h"
#include "brrr/tensor/host_work.h"
#include "brrr/tensor/pool.h"
#include "brrr/tensor/runtime.h"

namespace brrr {
namespace {

void release_cpu(Storage& storage) noexcept { cpu_memory::release(storage.data, storage.bytes); }

inline Storage* allocate_storage(Device device, std::size_t bytes) {
  Storage* storage = new (Pool<Storage>::take()) Storage;
  storage->device = device;
  storage->bytes = bytes;
  try {
    if (device.is_cpu()) [[likely]] {
      storage->data = cpu_memory::allocate(bytes);
      storage->release = release_cpu;
    } else {
      runtime_of(device.type).allocate(*storage);
    }
  } catch (...) {
    storage->release = nullptr;
    storage->drop();
    throw;
  }
  return storage;
}

// Not inlined: the destructor of the scope would make every allocation save a register.
[[gnu::noinline, gnu::cold]] Storage* allocate_reported(Device device, std::size_t bytes) {
  const HostScope scope(HostActivity::allocation, "allocate");
  return allocate_storage(device, bytes);
}

}  // namespace

void Storage::destroy() {
  if (release) release(*this);
  this->~Storage();
  Pool<Storage>::give(this);
}

Storage* new_storage(Device device, std::size_t bytes) {
  if (host_listener.load(std::memory_order_relaxed)) [[unlikely]]
    return allocate_reported(device, bytes);
  return allocate_storage(device, bytes);
}

Storage* adopt_storage(Device device, void* data, std::size_t bytes,
                       void (*release)(Storage&) noexcept, void* context) {
  Storage* storage = new (Pool<Storage>::take()) Storage;
  storage->device = device;
  storage->data = data;
  storage->bytes = bytes;
  storage->release = release;
  storage->context = context;
  return storage;
}

}  // namespace brrr
