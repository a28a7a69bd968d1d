#include "brrr/nn/data/batcher.h"

#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "brrr/nn/data/random.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::data {
namespace {

const BatcherOptions& checked(const BatcherOptions& options, const Dataset& dataset) {
  require_device(options.device, "batcher");
  if (options.slots < 2 || options.slots > 1024) {
    fail("[batcher] expected 2 to 1024 slots, got {}", options.slots);
  }
  if (options.batch < 1 || options.batch > dataset.size()) {
    fail("[batcher] expected a batch of 1 to the {} rows of the dataset, got {}", dataset.size(),
         options.batch);
  }
  if (options.start < 0 || options.start >= std::int64_t{1} << 62) {
    fail("[batcher] expected to start at 0 or later, below 2^62, got {}", options.start);
  }
  return options;
}

Tensor rows_like(const Tensor& x, std::int64_t rows, Device device) {
  Dims shape(x.shape());
  shape[0] = rows;
  return empty(shape, {x.dtype(), device});
}

void gather_rows(const Tensor& to, const Tensor& from, std::span<const std::int64_t> rows) {
  const std::size_t bytes = from.bytes() / static_cast<std::size_t>(from.size(0));
  if (bytes == 0) return;
  auto* out = static_cast<std::byte*>(to.data());
  for (const std::int64_t row : rows) {
    std::memcpy(out, static_cast<const std::byte*>(from.data()) + row * bytes, bytes);
    out += bytes;
  }
}

}  // namespace

struct Batcher::Slot {
  Batch batch = {};
  Batch host = {};               // staging, for devices other than the CPU
  Event filled;                  // the copy has ended
  std::future<void> ready = {};  // gathered, and the copy enqueued
};

Batcher::Batcher(const Dataset& dataset, const BatcherOptions& options)
    : dataset_(make_dataset(dataset.inputs, dataset.targets)),
      options_(checked(options, dataset_)),
      per_epoch_(dataset_.size() / options.batch),
      given_(options.start),
      thread_(cpu),
      feed_(options.device.is_cpu() ? thread_ : Stream(options.device)) {
  for (int i = 0; i < options.slots; ++i) {
    Slot& slot = slots_.emplace_back(Slot{.filled = Event(options.device)});
    const auto batch_on = [&](Device device) {
      return Batch{rows_like(dataset_.inputs, options.batch, device),
                   rows_like(dataset_.targets, options.batch, device)};
    };
    slot.batch = batch_on(options.device);
    if (!options.device.is_cpu()) slot.host = batch_on(cpu);
  }
  feed_.wait(Stream::current(options.device).record());  // the slots belong to that stream
  for (int i = 0; i < options.slots; ++i) start_filling(given_ + i);
}

Batcher::~Batcher() {
  for (const Slot& slot : slots_) {
    if (slot.ready.valid()) slot.ready.wait();
  }
  try {
    feed_.synchronize();
  } catch (const Error&) {  // a failed copy of a batch that is never read
  }
}

Batcher::Slot& Batcher::slot_of(std::int64_t number) {
  return slots_[static_cast<std::size_t>(number) % slots_.size()];
}

const Batch& Batcher::next() {
  Slot& slot = slot_of(given_);
  if (!slot.ready.valid()) fail("[batcher] expected no earlier failure, got one");
  if (given_ > options_.start) {
    release(slot_of(given_ - 1));
    start_filling(given_ - 1 + options_.slots);
  }
  try {
    slot.ready.get();
  } catch (const std::future_error&) {  // a broken promise: the thread's stream has failed
    thread_.synchronize();              // throws the stream's error
    throw;
  }
  if (!options_.device.is_cpu()) Stream::current(options_.device).wait(slot.filled);
  ++given_;
  return slot.batch;
}

// Call after all work on the batch was enqueued: the slot may be overwritten after that work. The
// overwrite counts as a write, so it increments the tensors' versions.
void Batcher::release(const Slot& slot) const {
  for (const Tensor* x : {&slot.batch.inputs, &slot.batch.targets})
    ++TensorImpl::of(*x)->storage->version;
  feed_.wait(Stream::current(options_.device).record());
}

void Batcher::start_filling(std::int64_t number) {
  Slot& slot = slot_of(number);
  auto task =
      std::make_shared<std::packaged_task<void()>>([this, &slot, number] { fill(slot, number); });
  slot.ready = task->get_future();
  thread_.enqueue([task] { (*task)(); });
}

void Batcher::fill(Slot& slot, std::int64_t number) {
  find_order(number / per_epoch_);
  const std::span<const std::int64_t> rows(order_.data() + number % per_epoch_ * options_.batch,
                                           static_cast<std::size_t>(options_.batch));
  const bool on_cpu = options_.device.is_cpu();
  const Batch& host = on_cpu ? slot.batch : slot.host;
  gather_rows(host.inputs, dataset_.inputs, rows);
  gather_rows(host.targets, dataset_.targets, rows);
  if (on_cpu) return;
  const StreamGuard guard(feed_);
  copy_from_host(slot.batch.inputs, host.inputs.data());
  copy_from_host(slot.batch.targets, host.targets.data());
  slot.filled.record(feed_);
}

void Batcher::find_order(std::int64_t epoch) {
  if (epoch == epoch_) return;
  order_.resize(static_cast<std::size_t>(dataset_.size()));
  std::iota(order_.begin(), order_.end(), 0);
  if (options_.shuffle) {
    Random random(options_.seed + static_cast<std::uint64_t>(epoch) * 0x9e3779b97f4a7c15u);
    for (std::size_t i = order_.size() - 1; i > 0; --i) {
      std::swap(order_[i], order_[random.below(i + 1)]);
    }
  }
  epoch_ = epoch;
}

}  // namespace brrr::data
