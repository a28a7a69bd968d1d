// The fake driver: device memory, pinned memory, copies and fills.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/fake_cuda/state.h"

namespace brrr::testing {

bool FakeState::valid(std::uintptr_t address, std::size_t bytes) const {
  auto it = memory.upper_bound(address);
  return it != memory.begin() &&
         address + bytes <= std::prev(it)->first + std::prev(it)->second.size;
}

namespace {

// --- Memory ---

CUresult mem_alloc(CUdeviceptr* pointer, std::size_t bytes) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  if (fake->breaks_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > fake->options.capacity - current_fake_device->used) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  current_fake_device->used += bytes;
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  fake->memory[*pointer] = {bytes, current_fake_device};
  return CUDA_SUCCESS;
}
// Frees immediately, where the real driver happens to wait: the caller must have waited.
CUresult mem_free(CUdeviceptr pointer) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  if (fake->breaks_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto it = fake->memory.find(pointer);
  if (it == fake->memory.end()) {
    fake->complain("freed what was not allocated");
    return CUDA_ERROR_INVALID_VALUE;
  }
  it->second.device->used -= it->second.size;
  fake->memory.erase(it);
  std::free(reinterpret_cast<void*>(pointer));
  return CUDA_SUCCESS;
}
CUresult mem_get_info(std::size_t* free, std::size_t* total) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  *total = fake->options.capacity;
  *free = *total - current_fake_device->used;
  return CUDA_SUCCESS;
}
CUresult mem_alloc_host(void** pointer, std::size_t bytes) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  if (fake->breaks_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *pointer = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  fake->pinned[reinterpret_cast<std::uintptr_t>(*pointer)] = bytes;
  return CUDA_SUCCESS;
}
CUresult mem_free_host(void* pointer) {
  FAKE_ENTER();
  if (!fake->pinned.erase(reinterpret_cast<std::uintptr_t>(pointer))) {
    fake->complain("freed pinned memory that was not allocated");
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::free(pointer);
  return CUDA_SUCCESS;
}
bool pinned(std::uintptr_t address) {
  auto it = fake->pinned.upper_bound(address);
  return it != fake->pinned.begin() && address < std::prev(it)->first + std::prev(it)->second;
}
CUresult pointer_get_attributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr pointer) {
  FAKE_ENTER();
  FAKE_NEED_CONTEXT();
  if (count != 1 || *attributes != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUmemorytype type{};  // of memory that the driver has not heard of
  if (pinned(pointer)) {
    type = CU_MEMORYTYPE_HOST;
  } else if (fake->valid(pointer, 1)) {
    type = CU_MEMORYTYPE_DEVICE;
  }
  std::memcpy(*values, &type, sizeof type);
  return CUDA_SUCCESS;
}

// --- Copies ---

void move_bytes(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, bool to_device,
                bool from_device) {
  if ((to_device && !fake->valid(to, bytes)) || (from_device && !fake->valid(from, bytes))) {
    fake->complain("a copy touched memory that is not allocated");
    return;
  }
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
}
CUresult copy_to_device(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  FAKE_ENTER();
  const auto source = reinterpret_cast<std::uintptr_t>(from);
  if (pinned(source)) {
    fake->add(*stream_of(stream),
              {FakeEntry::work, [=] { move_bytes(to, source, bytes, true, false); }, nullptr});
  } else {  // the driver takes pageable bytes away at the call
    auto bytes_now = std::make_shared<std::vector<char>>(static_cast<const char*>(from),
                                                         static_cast<const char*>(from) + bytes);
    fake->add(*stream_of(stream), {FakeEntry::work,
                                   [=] {
                                     move_bytes(to,
                                                reinterpret_cast<std::uintptr_t>(bytes_now->data()),
                                                bytes, true, false);
                                   },
                                   nullptr});
  }
  return CUDA_SUCCESS;
}
CUresult copy_to_host(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_ENTER();
  FakeStream* s = stream_of(stream);
  const auto target = reinterpret_cast<std::uintptr_t>(to);
  fake->add(*s, {FakeEntry::work, [=] { move_bytes(target, from, bytes, false, true); }, nullptr});
  if (!pinned(target)) fake->run_until(lock, [&] { return s->queue.empty() && !s->running; });
  return CUDA_SUCCESS;
}
CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_ENTER();
  fake->add(*stream_of(stream),
            {FakeEntry::work, [=] { move_bytes(to, from, bytes, true, true); }, nullptr});
  return CUDA_SUCCESS;
}
CUresult fill8(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  FAKE_ENTER();
  fake->add(*stream_of(stream), {FakeEntry::work,
                                 [=] {
                                   if (fake->valid(to, bytes)) {
                                     std::memset(reinterpret_cast<void*>(to), value, bytes);
                                   } else {
                                     fake->complain("a fill touched memory that is not allocated");
                                   }
                                 },
                                 nullptr});
  return CUDA_SUCCESS;
}

}  // namespace

void add_fake_memory_calls(cu::Table& t) {
  t.cuMemAlloc = mem_alloc;
  t.cuMemFree = mem_free;
  t.cuMemGetInfo = mem_get_info;
  t.cuMemAllocHost = mem_alloc_host;
  t.cuMemFreeHost = mem_free_host;
  t.cuPointerGetAttributes = pointer_get_attributes;
  t.cuMemcpyHtoDAsync = copy_to_device;
  t.cuMemcpyDtoHAsync = copy_to_host;
  t.cuMemcpyDtoDAsync = copy_on_device;
  t.cuMemcpyAsync = copy_on_device;
  t.cuMemsetD8Async = fill8;
}

}  // namespace brrr::testing
