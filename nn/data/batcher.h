// Double-buffered batches of a dataset, in device tensors with fixed addresses. While a step uses
// one slot, the batcher's thread gathers the next batches and its stream copies them.
//
//   data::Batcher batches(dataset, {.batch = 64, .device = cuda()});
//   for (int step = 0; step < 1000; ++step) {
//     const data::Batch& batch = batches.next();
//     backward(nn::cross_entropy(model(batch.inputs), batch.targets));
//   }
#pragma once

#include <cstdint>
#include <vector>

#include <brrr/nn/data/dataset.h>
#include <brrr/ops/functions.h>
#include <brrr/tensor/stream.h>

namespace brrr::data {

struct BatcherOptions {
  std::int64_t batch = 32;
  Device device = default_device();
  int slots = 2;  // batches in device memory: the current one, and those prefetched
  bool shuffle = true;
  std::uint64_t seed = 0;  // of the order, which differs in each epoch
  std::int64_t start = 0;  // batches to skip: given() of the run to resume
};

struct Batch {
  Tensor inputs, targets;
};

class Batcher {
 public:
  explicit Batcher(const Dataset& dataset, const BatcherOptions& options = {});
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // The next batch, ready for work that is enqueued on the current stream afterwards. Valid until
  // the next call; a slot's tensors are the same objects each time.
  const Batch& next();

  // For the length of a schedule, or a report by epochs. The last rows of an epoch are dropped
  // where they fill no batch.
  std::int64_t batches_per_epoch() const { return per_epoch_; }
  // Batches handed out, counting those skipped at the start.
  std::int64_t given() const { return given_; }

 private:
  struct Slot;
  Slot& slot_of(std::int64_t number);
  void release(const Slot& slot) const;
  void start_filling(std::int64_t number);
  void fill(Slot& slot, std::int64_t number);
  void find_order(std::int64_t epoch);

  const Dataset dataset_;
  const BatcherOptions options_;
  const std::int64_t per_epoch_;
  std::int64_t given_;
  std::vector<Slot> slots_;
  // The rows in the order of epoch_; only the thread uses both.
  std::vector<std::int64_t> order_;
  std::int64_t epoch_ = -1;
  Stream thread_, feed_;  // gathers; copies to the device (on the CPU the same stream)
};

}  // namespace brrr::data
