// The CPU as a device: the default stream, which runs work at the call; other streams, which are
// queues with a thread each; events and copies. Queues and their threads live as long as the
// process; a queue whose last handle is destroyed returns to a pool.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "brrr/tensor/cpu_allocator.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/storage.h"

namespace brrr {
namespace {

using Clock = std::chrono::steady_clock;

// One recording of an event. Recording the event again makes a new object, so earlier waits still
// wait for the old one.
class EventRecord {
 public:
  void reach(std::exception_ptr failure) {
    {
      std::lock_guard lock(mutex_);
      when_ = Clock::now();
      failure_ = std::move(failure);
      reached_ = true;
    }
    changed_.notify_all();
  }
  // The stream's failure when it reached the record, if any.
  std::exception_ptr wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
    return failure_;
  }
  bool reached() {
    std::lock_guard lock(mutex_);
    return reached_;
  }
  Clock::time_point when() {
    wait();
    return when_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  Clock::time_point when_;
  bool reached_ = false;
};

using EventRecordPtr = std::shared_ptr<EventRecord>;

struct InlineStream final : StreamState {
  using StreamState::enqueue;
  void synchronize() override {}
  bool idle() override { return true; }
  void enqueue(std::function<void()> work) override { work(); }
};

// The first failure of queues whose last handle was destroyed before a synchronize: the device's
// next synchronize throws it.
struct Orphans {
  std::mutex mutex;
  std::exception_ptr first;
};
Orphans& orphans() {
  static Orphans* all = new Orphans;
  return *all;
}

class Queue final : public StreamState {
 public:
  explicit Queue(int number) {
    device = cpu;
    id = number;
    std::thread thread([this] { run(); });
    thread_ = thread.get_id();
    thread.detach();
  }

  void enqueue(std::function<void()> work) override {
    push({Kind::work, std::move(work), nullptr, nullptr});
  }
  void enqueue(QueuedWork& work) override { push({Kind::work, nullptr, Finished(&work), nullptr}); }
  void mark(EventRecordPtr point) { push({Kind::mark, nullptr, nullptr, std::move(point)}); }
  void wait_for(EventRecordPtr point) { push({Kind::wait, nullptr, nullptr, std::move(point)}); }
  void end_of_owner() noexcept {
    try {
      push({Kind::end_of_owner, nullptr, nullptr, nullptr});
    } catch (...) {  // no memory for the item: the next owner sees the failure
    }
  }

  void synchronize() override {
    if (std::this_thread::get_id() == thread_) {
      fail("[synchronize] a stream cannot wait for itself: called from work that runs on it");
    }
    std::unique_lock lock(mutex_);
    drained_.wait(lock, [&] { return items_.empty() && !running_; });
    if (failure_) {
      std::exception_ptr failure = std::exchange(failure_, nullptr);
      lock.unlock();
      std::rethrow_exception(failure);
    }
  }

  bool idle() override {
    std::lock_guard lock(mutex_);
    return items_.empty() && !running_;
  }

 private:
  enum class Kind { work, mark, wait, end_of_owner };
  struct Finish {
    void operator()(QueuedWork* work) const noexcept { work->finish(); }
  };
  using Finished = std::unique_ptr<QueuedWork, Finish>;
  struct QueueItem {
    Kind kind = Kind::work;
    std::function<void()> work;
    Finished pooled;  // or this
    EventRecordPtr point;
  };
  // First in, first out, in a ring that only grows: a deque would go on allocating as it moves.
  class Items {
   public:
    bool empty() const { return count_ == 0; }
    void push(QueueItem item) {
      if (count_ == ring_.size()) grow();
      ring_[(first_ + count_) % ring_.size()] = std::move(item);
      ++count_;
    }
    QueueItem pop() {
      QueueItem item = std::move(ring_[first_]);
      first_ = (first_ + 1) % ring_.size();
      --count_;
      return item;
    }

   private:
    void grow() {
      std::vector<QueueItem> larger(std::max<std::size_t>(16, 2 * ring_.size()));
      for (std::size_t i = 0; i < count_; ++i)
        larger[i] = std::move(ring_[(first_ + i) % ring_.size()]);
      ring_ = std::move(larger);
      first_ = 0;
    }
    std::vector<QueueItem> ring_;
    std::size_t first_ = 0, count_ = 0;
  };

  void push(QueueItem item) {
    {
      std::lock_guard lock(mutex_);
      items_.push(std::move(item));
    }
    filled_.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      filled_.wait(lock, [&] { return !items_.empty(); });
      running_ = true;
      {
        QueueItem item = items_.pop();
        std::exception_ptr failure = failure_;
        lock.unlock();
        failure = perform(item, std::move(failure));
        item = {};  // destroy the captures of the work before its completion is visible
        lock.lock();
        failure_ = std::move(failure);
      }
      running_ = false;
      if (items_.empty()) drained_.notify_all();
    }
  }

  // Returns the failure that the queue is left with.
  static std::exception_ptr perform(QueueItem& item, std::exception_ptr failure) {
    switch (item.kind) {
      case Kind::work:
        if (failure) return failure;
        try {
          item.pooled ? item.pooled->run() : item.work();
        } catch (...) {
          return std::current_exception();
        }
        return nullptr;
      case Kind::mark: item.point->reach(failure); return failure;
      case Kind::wait: {
        std::exception_ptr other = item.point->wait();
        return failure ? failure : other;
      }
      case Kind::end_of_owner: {
        std::lock_guard lock(orphans().mutex);
        if (!orphans().first) orphans().first = failure;
        return nullptr;
      }
    }
    return failure;
  }

  std::mutex mutex_;
  std::condition_variable filled_, drained_;
  Items items_;
  std::exception_ptr failure_;
  std::thread::id thread_;
  bool running_ = false;
};

class CpuEvent final : public EventState {
 public:
  void record(StreamState& stream) override {
    auto point = std::make_shared<EventRecord>();
    if (stream.id == 0) {
      point->reach(nullptr);
    } else {
      static_cast<Queue&>(stream).mark(point);
    }
    point_ = std::move(point);
  }
  void make_wait(StreamState& stream) override {
    if (!point_) return;
    if (!stream.device.is_cpu()) {
      stream.enqueue([point = point_] {
        if (auto failure = point->wait()) std::rethrow_exception(failure);
      });
    } else if (stream.id == 0) {
      synchronize();  // the default stream is the caller itself
    } else {
      static_cast<Queue&>(stream).wait_for(point_);
    }
  }
  void synchronize() override {
    if (!point_) return;
    if (auto failure = point_->wait()) std::rethrow_exception(failure);
  }
  bool done() override { return !point_ || point_->reached(); }
  double seconds_since(EventState& earlier) override {
    auto& other = static_cast<CpuEvent&>(earlier);
    if (!point_ || !other.point_)
      fail("[event] expected two recorded events, got one never recorded");
    return std::chrono::duration<double>(point_->when() - other.point_->when()).count();
  }

 private:
  EventRecordPtr point_;
};

class CpuRuntime final : public DeviceRuntime {
 public:
  int count() override { return 1; }
  std::string why_none() override { return {}; }

  void allocate(Storage& storage) override {
    storage.data = cpu_memory::allocate(storage.bytes);
    storage.release = [](Storage& s) noexcept { cpu_memory::release(s.data, s.bytes); };
  }
  MemoryStats stats(Device) override { return cpu_memory::stats(); }
  void reset_peak(Device) override { cpu_memory::reset_peak(); }
  void empty_cache(Device) override { cpu_memory::empty_cache(); }

  StreamState* default_stream(Device) override { return &inline_; }

  std::shared_ptr<StreamState> new_stream(Device) override {
    Queue* queue = take_queue();
    std::shared_ptr<StreamState> handle(queue, [this](StreamState* state) {
      auto* queue = static_cast<Queue*>(state);
      queue->end_of_owner();
      std::lock_guard lock(mutex_);
      free_.push_back(queue);
    });
    queue->handle = handle;
    return handle;
  }

  std::unique_ptr<EventState> new_event(Device, bool) override {
    return std::make_unique<CpuEvent>();
  }

  void synchronize(Device) override {
    std::vector<Queue*> queues;
    {
      std::lock_guard lock(mutex_);
      queues = queues_;
    }
    std::exception_ptr failure;
    for (Queue* queue : queues) {
      try {
        queue->synchronize();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
    std::exception_ptr orphan;
    {
      std::lock_guard lock(orphans().mutex);
      orphan = std::exchange(orphans().first, nullptr);
    }
    if (!failure) failure = std::move(orphan);
    if (failure) std::rethrow_exception(failure);
  }

 private:
  Queue* take_queue() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
      queues_.reserve(queues_.size() + 1);
      free_.reserve(queues_.size() + 1);  // so that giving a queue back cannot fail
      try {
        queues_.push_back(new Queue(static_cast<int>(queues_.size()) + 1));
      } catch (const std::system_error& error) {
        fail("[stream] could not start a thread: {}", error.what());
      }
      return queues_.back();
    }
    Queue* queue = free_.back();
    free_.pop_back();
    return queue;
  }

  InlineStream inline_;
  std::mutex mutex_;
  std::vector<Queue*> queues_, free_;
};

}  // namespace

DeviceRuntime& cpu_runtime() {
  static CpuRuntime* runtime = new CpuRuntime;  // outlives every static tensor
  return *runtime;
}

}  // namespace brrr
