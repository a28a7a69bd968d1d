// Capturing streams into a graph, and the memory that the graph works in. A graph names addresses:
// what it reads and writes may be nobody else's as long as it can be launched. So a capture takes
// its blocks from a pool of its own, and the pool lives as long as the graph.
#pragma once

#include <memory>
#include <vector>

#include <brrr/tensor/cuda_allocator.h>
#include <brrr/tensor/cuda_stream.h>

namespace brrr::cu {

// Between begin_capture and end_capture, blocks of the streams that take part come from here and
// are used again within the capture only; blocks from before the capture that are freed meanwhile
// stay here too. Afterwards nothing is taken from the pool, and what is freed waits in it. When the
// pool goes, its blocks are the streams' again, after all launches that it was told of. A pool may
// serve several captures in turn, of graphs that never run side by side.
class CapturePool {
 public:
  explicit CapturePool(DeviceState& device);
  ~CapturePool();
  CapturePool(const CapturePool&) = delete;
  CapturePool& operator=(const CapturePool&) = delete;

  // A further stream takes part in the capture: it has waited, or will, for an event of the first.
  void join(CudaStream& stream);
  // Call whenever the graph is launched on a stream other than the one that was captured.
  void launched_on(CudaStream& stream);
  // What it has from the driver.
  std::size_t bytes() const;

 private:
  friend class Allocator;
  friend void begin_capture(CapturePool& pool, CudaStream& stream, CUstreamCaptureMode mode);
  friend CUgraph end_capture(CapturePool& pool, CudaStream& stream);

  DeviceState& device_;
  // All below belongs to the allocator's lock.
  std::vector<std::unique_ptr<StreamMemory>> memories_;  // one for each stream that took part
  std::vector<CudaStream*> taking_part_;                 // in the capture that is on
  std::vector<CudaStream*> launched_;
  std::vector<Block*> held_;  // of other memories, freed while the capture was on
};

// Capture goes through these two, so that the allocator and copies know that the driver must be
// left in peace.
void begin_capture(CapturePool& pool, CudaStream& stream, CUstreamCaptureMode mode);
CUgraph end_capture(CapturePool& pool, CudaStream& stream);

}  // namespace brrr::cu
