// Capturing streams into a graph, and the graph's working memory. A captured graph contains
// addresses, so the blocks that it reads and writes must not be reused as long as it can be
// launched: a capture allocates from a pool of its own, whose lifetime is the graph's.
#pragma once

#include <memory>
#include <vector>

#include <brrr/tensor/cuda_allocator.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::cu {

// Between begin_capture and end_capture the participating streams allocate from the pool, which
// reuses blocks within the capture only. Older blocks freed meanwhile are retained by the pool.
// After the capture the pool allocates nothing and retains what is freed. Its destructor returns
// all blocks to their streams, after the launches reported to it. A pool may serve several captures
// one after another, if their graphs never run concurrently.
class CapturePool {
 public:
  explicit CapturePool(DeviceState& device);
  ~CapturePool();
  CapturePool(const CapturePool&) = delete;
  CapturePool& operator=(const CapturePool&) = delete;

  // Adds a stream to the capture: one that waits for an event of the first.
  void join(CudaStream& stream);
  // Call whenever the graph is launched on a stream other than the one that was captured.
  void launched_on(CudaStream& stream);
  // Of its segments from the driver.
  std::size_t bytes() const;

 private:
  friend class Allocator;
  friend void begin_capture(CapturePool& pool, CudaStream& stream, CUstreamCaptureMode mode);
  friend CUgraph end_capture(CapturePool& pool, CudaStream& stream);

  DeviceState& device_;
  // Guarded by the allocator's lock.
  std::vector<std::unique_ptr<StreamMemory>> memories_;  // one for each stream that took part
  std::vector<CudaStream*> taking_part_;                 // in the current capture
  std::vector<CudaStream*> launched_;
  std::vector<Block*> retained_;  // older blocks, freed during the capture
};

// Begin and end every capture by these two: meanwhile the allocator and copies avoid driver calls
// that would break a capture.
void begin_capture(CapturePool& pool, CudaStream& stream, CUstreamCaptureMode mode);
CUgraph end_capture(CapturePool& pool, CudaStream& stream);

}  // namespace brrr::cu
