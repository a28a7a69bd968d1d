#include "brrr/ops/cuda/workspace.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "brrr/tensor/cuda_allocator.h"
#include "brrr/tensor/storage.h"

namespace brrr::on_cuda {
namespace {

struct Workspaces {
  std::mutex mutex;
  struct Owned {
    const cu::DeviceState* on = nullptr;  // another one once CUDA was shut down and started again
    Workspace workspace;
  };
  std::unordered_map<const cu::CudaStream*, Owned> of_stream;
  std::vector<Storage*> storages;  // those that were outgrown as well
};
Workspaces& workspaces() {
  // Never destroyed: the driver may be unloaded at exit.
  static Workspaces* instance = new Workspaces;
  return *instance;
}
std::atomic<std::uint32_t> generation{0};

// The last workspace that this thread looked up.
struct Last {
  const cu::CudaStream* stream;
  const cu::DeviceState* on;
  Workspace workspace;
  std::uint32_t generation;
};
constinit thread_local Last last{};

[[gnu::noinline]] Workspace find_or_make(cu::CudaStream& stream, std::size_t bytes) {
  Workspaces& all = workspaces();
  std::lock_guard lock(all.mutex);
  auto& [on, mine] = all.of_stream[&stream];
  if (on != stream.on || mine.bytes < bytes) {
    const std::size_t size = std::max(bytes, kMatmulWorkspace);
    all.storages.reserve(all.storages.size() + 1);
    Storage* storage = new_storage(stream.device, size);
    all.storages.push_back(storage);
    on = stream.on;
    mine = {storage->data, size};
  }
  last = {&stream, on, mine, generation.load()};
  return mine;
}

// From the pool of the graph that is being captured. Dropped at once: the stream's next call may
// reuse it.
Workspace of_capture(cu::CudaStream& stream, std::size_t bytes) {
  Storage* storage = new_storage(stream.device, bytes);
  const Workspace workspace{storage->data, bytes};
  storage->drop();
  return workspace;
}

}  // namespace

Workspace workspace_of(cu::CudaStream& stream, std::size_t bytes) {
  if (stream.memory->pool) [[unlikely]]
    return of_capture(stream, bytes);
  if (last.stream == &stream && last.on == stream.on && last.workspace.bytes >= bytes &&
      last.generation == generation.load(std::memory_order_relaxed)) [[likely]] {
    return last.workspace;
  }
  return find_or_make(stream, bytes);
}

void release_workspaces() {
  Workspaces& all = workspaces();
  std::lock_guard lock(all.mutex);
  generation.fetch_add(1);
  all.of_stream.clear();
  for (Storage* storage : all.storages) storage->drop();
  all.storages.clear();
}

}  // namespace brrr::on_cuda
