// Host memory that the device reaches by itself, as storages of CPU tensors. A tensor may go while
// copies on streams still use its memory; the memory is reused when they are done.
#pragma once

#include <cstddef>

#include <brrr/tensor/storage.h>

namespace brrr::cu {

struct DeviceState;
struct CudaStream;

Storage* new_pinned_storage(DeviceState& device, std::size_t bytes);
bool is_pinned_storage(const Storage& storage);
long live_pinned_storages();

// Marks a use of such a storage by work given to the stream, before or after this call, until the
// storage goes. Other storages are left alone.
void record_pinned_use(Storage& storage, CudaStream& stream);

// Waits for the copies of storages that have gone; their memory is back in the cache then.
void settle_pinned_storages();
void forget_pinned_storages() noexcept;  // the same without asking the driver

}  // namespace brrr::cu
