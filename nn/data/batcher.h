// Batches of a dataset in device memory that stays where it is. While a step works on one batch,
// the next ones are gathered on a thread of the batcher's own and copied on a stream of its own.
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
  int slots = 2;  // batches in device memory: the one given out, and those ahead of it
  bool shuffle = true;
  std::uint64_t seed = 0;  // of the order, which is another in each epoch
  std::int64_t start = 0;  // batches to leave out: `given()` of the run that goes on
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

  // The next batch, for work that is given to the current stream from now on. Valid until the next
  // call; a slot's tensors are the same objects each time that it is given out.
  const Batch& next();

  // Rows at the end of an epoch that fill no batch are left out.
  std::int64_t batches_per_epoch() const { return per_epoch_; }
  // Batches given out, counting those left out at the start.
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
  // Used on the thread alone: the rows in the order of an epoch.
  std::vector<std::int64_t> order_;
  std::int64_t epoch_ = -1;
  Stream thread_, feed_;  // feed_ is the thread itself on the CPU
};

}  // namespace brrr::data
