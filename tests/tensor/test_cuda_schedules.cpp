// The order of streams: random schedules of allocations, copies, events and frees on the fake
// driver, which runs unordered work in any order. With planted bugs the same schedules must find
// stale reads.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "brrr/ops/functions.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/sanitizers.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

enum class Bug { none, waits_ignored, events_lie, use_not_recorded };

// Tensors are written and read by kernels on random streams, ordered by events as they should be; a
// kernel that finds another value than the last one written is a stale read. Returns how many there
// were.
class Schedule {
 public:
  Schedule(FakeCuda& fake, std::uint64_t seed, Bug bug) : fake_(fake), random_(seed), bug_(bug) {
    streams_.push_back(Stream::default_of(gpu));
    for (int i = 0; i < 3; ++i) streams_.emplace_back(gpu);
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (random_() % 12) {
        case 0:
        case 1:
        case 2: create(); break;
        case 3:
        case 4:
        case 5:
          if (!tensors_.empty()) read(pick(), stream());
          break;
        case 6:
          if (!tensors_.empty()) write(pick(), stream());
          break;
        case 7:
          if (!tensors_.empty()) copy();
          break;
        case 8:
        case 9:
          if (!tensors_.empty()) drop();
          break;
        case 10:
          if (!tensors_.empty() && random_() % 4 == 0) read_back(pick());
          if (random_() % 4 == 0) create_many();
          break;
        case 11: fake_.step(static_cast<int>(random_() % 12)); break;
      }
    }
    tensors_.clear();
    synchronize(gpu);
  }

  static void define_kernels(FakeCuda& fake, long& stale) {
    fake.define_kernel("write", {8, 8, 4}, [](const FakeLaunch& launch) {
      int* data = launch.argument<int*>(0);
      std::fill_n(data, launch.argument<long>(1), launch.argument<int>(2));
    });
    fake.define_kernel("check", {8, 8, 4}, [&stale](const FakeLaunch& launch) {
      const int* data = launch.argument<int*>(0);
      const long count = launch.argument<long>(1);
      const int value = launch.argument<int>(2);
      if (data[0] != value || data[count / 2] != value || data[count - 1] != value) ++stale;
    });
  }
  void load() {
    cu::current_stream(gpu);
    BRRR_CUDA(cuModuleLoadData, &module_, "write check");
    BRRR_CUDA(cuModuleGetFunction, &write_, module_, "write");
    BRRR_CUDA(cuModuleGetFunction, &check_, module_, "check");
  }
  ~Schedule() { BRRR_CUDA_TRY(cuModuleUnload, module_); }
  long host_stale() const { return host_stale_; }

 private:
  struct Item {
    Tensor tensor;
    int value;
    std::vector<std::pair<Stream, Event>> touched;  // by whom, and after which event it is safe
    Event written;
  };

  Item& pick() { return tensors_[random_() % tensors_.size()]; }
  Stream& stream() { return streams_[random_() % streams_.size()]; }

  void launch(CUfunction kernel, const Stream& on, const Tensor& tensor, int value) {
    int* data = static_cast<int*>(tensor.data());
    long count = tensor.numel();
    void* arguments[] = {&data, &count, &value};
    BRRR_CUDA(cuLaunchKernel, kernel, 1, 1, 1, 32, 1, 1, 0,
              static_cast<CUstream>(StreamState::of(on)->native()), arguments, nullptr);
  }
  void note_use(const Tensor& tensor, const Stream& on) {
    if (bug_ != Bug::use_not_recorded) use_on(tensor, on);
  }

  void create() {
    Stream& on = stream();
    StreamGuard guard(on);
    const std::size_t counts[] = {32, 128, 200, 1024, 3000};
    const std::size_t big = random_() % 5 == 0 ? 40 : 1;
    Tensor tensor = bytes_on_gpu(4 * counts[random_() % 5] * big);
    const int value = ++next_value_;
    launch(write_, on, tensor, value);
    tensors_.push_back({std::move(tensor), value, {}, on.record()});
  }
  // So many that the stream's free blocks run out and those that wait for events are looked at.
  void create_many() {
    StreamGuard guard(stream());
    const Stream on = Stream::current(gpu);
    for (int i = 0; i < 6; ++i) {
      Tensor tensor = bytes_on_gpu(400000);
      const int value = ++next_value_;
      launch(write_, on, tensor, value);
      tensors_.push_back({std::move(tensor), value, {}, on.record()});
    }
    for (int i = 0; i < 5; ++i) drop();
  }
  void read(Item& item, Stream& on) {
    on.wait(item.written);
    note_use(item.tensor, on);
    launch(check_, on, item.tensor, item.value);
    item.touched.emplace_back(on, on.record());
  }
  void write(Item& item, Stream& on) {
    on.wait(item.written);
    for (auto& [who, event] : item.touched) on.wait(event);
    item.touched.clear();
    note_use(item.tensor, on);
    item.value = ++next_value_;
    launch(write_, on, item.tensor, item.value);
    item.written = on.record();
  }
  void copy() {
    const std::size_t from = random_() % tensors_.size();
    Stream& on = stream();
    StreamGuard guard(on);
    Tensor to = bytes_on_gpu(tensors_[from].tensor.bytes());
    on.wait(tensors_[from].written);
    if (bug_ == Bug::use_not_recorded) {
      cuda_runtime().copy(*StreamState::of(on), to.data(), tensors_[from].tensor.data(),
                          to.bytes());
    } else {
      copy_bytes(to, tensors_[from].tensor);
    }
    tensors_[from].touched.emplace_back(on, on.record());
    tensors_.push_back({std::move(to), tensors_[from].value, {}, on.record()});
  }
  void drop() {
    const std::size_t which = random_() % tensors_.size();
    std::swap(tensors_[which], tensors_.back());
    tensors_.pop_back();
  }
  void read_back(Item& item) {
    Stream& on = stream();
    StreamGuard guard(on);
    on.wait(item.written);
    std::vector<int> host(static_cast<std::size_t>(item.tensor.numel()));
    note_use(item.tensor, on);
    copy_to_host(host.data(), item.tensor);
    for (int value : host) host_stale_ += value != item.value;
  }

  FakeCuda& fake_;
  std::mt19937_64 random_;
  Bug bug_;
  std::vector<Stream> streams_;
  std::vector<Item> tensors_;
  CUmodule module_ = nullptr;
  CUfunction write_ = nullptr, check_ = nullptr;
  int next_value_ = 0;
  long host_stale_ = 0;
};

// Schedules with a stale read, out of `count`.
long bad_schedules(int count, Bug bug) {
  constexpr int kPerDriver = 50;
  long bad = 0;
  for (int first = 0; first < count; first += kPerDriver) {
    FakeCuda fake({.capacity = 256 * kMiB, .seed = static_cast<std::uint64_t>(first) + 1});
    fake.ignore_waits(bug == Bug::waits_ignored);
    fake.events_lie(bug == Bug::events_lie);
    long stale = 0;
    Schedule::define_kernels(fake, stale);
    for (int i = first; i < first + kPerDriver; ++i) {
      stale = 0;
      Schedule schedule(fake, static_cast<std::uint64_t>(i), bug);
      schedule.load();
      schedule.run(60);
      bad += stale + schedule.host_stale() != 0;
      if (i % 7 == 0) empty_cache(gpu);
    }
    const std::string problem = fake.problem();
    if (bug == Bug::none) REQUIRE(problem == "");
    REQUIRE(memory_stats(gpu).live == 0);
    cu::shut_down();
    REQUIRE(fake.counts() == FakeCounts{});
  }
  return bad;
}

}  // namespace

TEST_CASE("random schedules without a stale read", "[cuda_schedules]") {
  constexpr int kSchedules = BRRR_TSAN   ? 100
                             : BRRR_ASAN ? 500
                                         : 10000;  // as many as a minute or two allows
  CHECK(bad_schedules(kSchedules, Bug::none) == 0);
}

TEST_CASE("the schedules find planted bugs", "[cuda_schedules]") {
  const Caching on;
  CHECK(bad_schedules(200, Bug::waits_ignored) > 20);
  // Blocks that wait for events are looked at only when no other fits, so this shows in fewer
  // schedules.
  CHECK(bad_schedules(500, Bug::events_lie) > 3);
  CHECK(bad_schedules(200, Bug::use_not_recorded) > 20);
}

namespace {

// A draw writes down the step that it found; the kernels of different streams run in any order.
long wrong_draws(std::uint64_t seed, bool waits_ignored) {
  FakeCuda fake({.seed = seed, .with_nvrtc = true});
  fake.define_kernel("draw", {8, 8, 4, 4, 8}, [](const FakeLaunch& launch) {
    const auto* state = launch.argument<const std::int64_t*>(1);
    for (std::int64_t i = 0; i < launch.argument<std::int64_t>(4); ++i)
      launch.argument<float*>(0)[i] = static_cast<float>(state[0] * 100 + state[1]);
  });
  fake.define_kernel("add_i64", {8, 8, 8, 8}, [](const FakeLaunch& launch) {
    *launch.argument<std::int64_t*>(0) =
        *launch.argument<const std::int64_t*>(1) + launch.argument<std::int64_t>(2);
  });
  fake.define_kernel("copy_i64_i64", {8, 8, 8}, [](const FakeLaunch& launch) {
    std::copy_n(launch.argument<const std::int64_t*>(1), launch.argument<std::int64_t>(2),
                launch.argument<std::int64_t*>(0));
  });
  fake.ignore_waits(waits_ignored);
  long wrong = 0;
  {
    std::mt19937_64 random(seed);
    std::vector<Stream> streams = {Stream::default_of(gpu), Stream(gpu), Stream(gpu)};
    std::vector<std::pair<Tensor, float>> drawn;
    float expected = 0;
    const auto some_stream = [&]() -> Stream& { return streams[random() % streams.size()]; };
    {
      const StreamGuard guard(some_stream());
      manual_seed(1);
      drawn.emplace_back(rand({4}, {.device = gpu}), expected = 100);
    }
    for (int i = 0; i < 40; ++i) {
      const StreamGuard guard(some_stream());
      switch (random() % 6) {
        case 0:
          next_random_step(gpu);
          ++expected;
          break;
        case 1: {
          const auto next = random() % 50;
          manual_seed(next);
          expected = static_cast<float>(next) * 100;
          break;
        }
        default: drawn.emplace_back(rand({4}, {.device = gpu}), expected);
      }
      if (random() % 3 == 0) fake.step(static_cast<int>(random() % 4));
    }
    synchronize(gpu);
    for (const auto& [tensor, value] : drawn) wrong += to_vector<float>(tensor)[3] != value;
  }
  release_random_state();
  return wrong;
}

}  // namespace

TEST_CASE("draws and steps on several streams keep their order", "[cuda_schedules]") {
  ::setenv("BRRR_CACHE", "off", 1);
  long wrong = 0, wrong_without_waits = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) wrong += wrong_draws(seed, false);
  for (std::uint64_t seed = 1; seed <= 50; ++seed) wrong_without_waits += wrong_draws(seed, true);
  ::unsetenv("BRRR_CACHE");
  CHECK(wrong == 0);
  CHECK(wrong_without_waits > 20);
}
