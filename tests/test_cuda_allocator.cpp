// The CUDA allocator on the fake driver: reuse, other streams, running out, pass-through, exact statistics, random
// schedules (with planted bugs that they must find), and a fault at every call.
#include "tensor/cuda_allocator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "tensor/cuda_runtime.h"
#include "tensor/error.h"
#include "tensor/host_copy.h"
#include "tensor/tensor.h"
#include "tests/catch.h"
#include "tests/fake_cuda.h"

using namespace brrr;
using testing::FakeCounts;
using testing::FakeCuda;
using testing::FakeLaunch;
using Catch::Contains;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
const Device gpu = cuda(0);

Tensor bytes_on_gpu(std::size_t bytes) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(bytes / 4)};
  return make_tensor(i32, shape, gpu);
}

void use_on(const Tensor& tensor, const Stream& stream) {
  cuda_runtime().record_use(*tensor.impl()->storage, *stream.state());
}

// Work that stays on the stream until the fake driver is made to run it.
void keep_busy(const Stream& stream) { stream.enqueue([] {}); }

struct PassThrough {
  PassThrough() { set_allocator_pass_through(true); }
  ~PassThrough() { set_allocator_pass_through(false); }
};

}  // namespace

TEST_CASE("a block freed on its stream is reused there at once, without a driver call", "[cuda_allocator]") {
  FakeCuda fake;
  void* first = nullptr;
  {
    const Tensor a = bytes_on_gpu(1000);
    first = a.data();
  }
  cu::count_calls(true);
  for (int i = 0; i < 100; ++i) CHECK(bytes_on_gpu(1000).data() == first);
  CHECK(cu::call_counts().empty());
  cu::count_calls(false);
}

TEST_CASE("blocks split and join again", "[cuda_allocator]") {
  FakeCuda fake;
  std::vector<Tensor> tensors;
  for (int i = 0; i < 4096; ++i) tensors.push_back(bytes_on_gpu(512));
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(2 * kMiB));
  CHECK(memory_stats(gpu).system_allocations == 1);
  std::mt19937 random(3);
  std::shuffle(tensors.begin(), tensors.end(), random);
  tensors.clear();
  const Tensor big = bytes_on_gpu(kMiB - 512);
  const Tensor rest = bytes_on_gpu(kMiB - 512);
  CHECK(memory_stats(gpu).system_allocations == 1);  // the whole segment had become one block again
}

TEST_CASE("sizes choose their segments", "[cuda_allocator]") {
  FakeCuda fake;
  const Tensor a = bytes_on_gpu(kMiB);
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(20 * kMiB));
  const Tensor b = bytes_on_gpu(9 * kMiB), c = bytes_on_gpu(9 * kMiB);
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(20 * kMiB));
  const Tensor d = bytes_on_gpu(11 * kMiB + 4);
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(32 * kMiB));
  const Tensor none = bytes_on_gpu(0);
  CHECK(none.data() == nullptr);
}

TEST_CASE("blocks do not overlap and are aligned", "[cuda_allocator]") {
  FakeCuda fake({.capacity = std::size_t{4} << 30});
  std::mt19937 random(5);
  std::map<char*, Tensor> live;
  std::int64_t requested = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const std::size_t bytes = 4 * (1 + random() % (random() % 20 == 0 ? 1u << 20 : 1u << 12));
      Tensor t = bytes_on_gpu(bytes);
      char* data = static_cast<char*>(t.data());
      REQUIRE(reinterpret_cast<std::uintptr_t>(data) % 512 == 0);
      auto next = live.lower_bound(data);
      if (next != live.end()) REQUIRE(data + bytes <= next->first);
      if (next != live.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second.bytes() <= data);
      requested += static_cast<std::int64_t>(bytes);
      live.emplace(data, std::move(t));
    } else {
      auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
      requested -= static_cast<std::int64_t>(it->second.bytes());
      live.erase(it);
    }
    REQUIRE(memory_stats(gpu).live == requested);
  }
  live.clear();
  empty_cache(gpu);
  CHECK(fake.counts().allocations == 0);
  CHECK(memory_stats(gpu).reserved == 0);
}

TEST_CASE("streams have their own blocks", "[cuda_allocator]") {
  FakeCuda fake;
  const Stream other(gpu);
  void* first = nullptr;
  {
    const Tensor a = bytes_on_gpu(4096);
    first = a.data();
  }
  StreamGuard guard(other);
  const Tensor b = bytes_on_gpu(4096);
  CHECK(b.data() != first);
  CHECK(b.impl()->storage->stream == other.state());
}

TEST_CASE("a block used on another stream waits for an event there", "[cuda_allocator]") {
  FakeCuda fake;
  const Stream other(gpu);
  void* first = nullptr;
  {
    const Tensor a = bytes_on_gpu(2 * kMiB - 512);
    first = a.data();
    keep_busy(other);
    use_on(a, other);
    use_on(a, other);
    use_on(a, Stream::default_of(gpu));  // its own: nothing to wait for
  }
  const Tensor b = bytes_on_gpu(2 * kMiB - 512);
  CHECK(b.data() != first);
  fake.run_all();
  std::vector<Tensor> more;
  bool again = false;
  for (int i = 0; i < 32 && !again; ++i) {
    more.push_back(bytes_on_gpu(2 * kMiB - 512));
    again = more.back().data() == first;
  }
  CHECK(again);
}

TEST_CASE("out of memory: cached blocks are given back first, then the error has the numbers", "[cuda_allocator]") {
  FakeCuda fake({.capacity = 64 * kMiB});
  { const Tensor a = bytes_on_gpu(40 * kMiB); }
  const Tensor b = bytes_on_gpu(50 * kMiB);  // the cached 40 go back
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(50 * kMiB));
  current_op = "add";
  try {
    bytes_on_gpu(30 * kMiB);
    FAIL("no error");
  } catch (const OutOfMemory& error) {
    CHECK(error.requested() == 30 * kMiB);
    CHECK(std::string(error.what()) ==
          "[add] out of memory on cuda:0: requested 31457280 bytes, in use 52428800, cached 0, free on the device "
          "14680064 of 67108864");
  }
  current_op = nullptr;
  CHECK(memory_stats(gpu).live == static_cast<std::int64_t>(50 * kMiB));
  const Tensor small = bytes_on_gpu(100);
  const Tensor odd = bytes_on_gpu(3 * kMiB);  // no room for a segment of 20 MiB, but for 4
  CHECK_THROWS_AS(bytes_on_gpu(std::size_t{1} << 50), OutOfMemory);
  CHECK(fake.problem() == "");
}

TEST_CASE("out of memory waits for other streams before it gives up", "[cuda_allocator]") {
  FakeCuda fake({.capacity = 48 * kMiB});
  const Stream other(gpu);
  {
    const Tensor a = bytes_on_gpu(40 * kMiB);
    keep_busy(other);
    use_on(a, other);
  }
  CHECK_NOTHROW(bytes_on_gpu(40 * kMiB));
  CHECK(fake.problem() == "");
}

TEST_CASE("pass-through takes from the driver and gives back at once", "[cuda_allocator]") {
  FakeCuda fake;
  PassThrough on;
  const Stream other(gpu);
  {
    const Tensor a = bytes_on_gpu(100), b = bytes_on_gpu(3 * kMiB);
    CHECK(fake.counts().allocations == 2);
    CHECK(fake.counts().bytes == 100 + 3 * kMiB);
    cuda_runtime().fill_bytes(*other.state(), a.data(), 1, 100);
    use_on(a, other);
    CHECK(memory_stats(gpu).cached() == 0);
  }
  CHECK(fake.counts().allocations == 0);
  CHECK(fake.problem() == "");  // the fill ran before the block was freed
  cu::fail_call("cuMemFree", 1, CUDA_ERROR_UNKNOWN);
  { const Tensor a = bytes_on_gpu(100); }
  CHECK(fake.counts().allocations == 1);  // refused once; the next chance takes it
  { const Tensor a = bytes_on_gpu(100); }
  CHECK(fake.counts().allocations == 0);
}

TEST_CASE("statistics are exact", "[cuda_allocator]") {
  FakeCuda fake;
  Tensor a = bytes_on_gpu(1000), b = bytes_on_gpu(5 * kMiB);
  CHECK(memory_stats(gpu).live == static_cast<std::int64_t>(1000 + 5 * kMiB));
  b = Tensor();
  CHECK(memory_stats(gpu).live == 1000);
  CHECK(memory_stats(gpu).peak == static_cast<std::int64_t>(1000 + 5 * kMiB));
  reset_peak_memory(gpu);
  CHECK(memory_stats(gpu).peak == 1000);
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(22 * kMiB));
  CHECK(static_cast<std::size_t>(memory_stats(gpu).reserved) == fake.counts().bytes);
  empty_cache(gpu);
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(2 * kMiB));
  a = Tensor();
  empty_cache(gpu);
  CHECK(memory_stats(gpu).reserved == 0);
  CHECK(fake.counts().bytes == 0);
}

TEST_CASE("while a stream is captured the driver is left in peace", "[cuda_allocator]") {
  FakeCuda fake;
  auto& stream = static_cast<cu::CudaStream&>(*Stream::default_of(gpu).state());
  const Stream other(gpu);
  Tensor used = bytes_on_gpu(kMiB);
  const Tensor kept = bytes_on_gpu(256);
  cu::begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuda_runtime().fill_bytes(stream, kept.data(), 7, 256);
  use_on(used, other);
  used = Tensor();
  const Tensor fresh = bytes_on_gpu(30 * kMiB);  // asks the driver, in relaxed mode
  CHECK_THROWS_WITH(empty_cache(gpu), Contains("[empty_cache] not possible while a stream is being captured"));
  CHECK_THROWS_WITH(stream.synchronize(), Contains("[synchronize] not possible while the stream is being captured"));
  CHECK_THROWS_WITH(stream.enqueue([] {}), Contains("[enqueue] not possible"));
  char host[4096] = {};
  CHECK_THROWS_WITH(copy_from_host(kept, host), Contains("being captured into a graph cannot copy from the host"));
  CHECK_THROWS_WITH(copy_to_host(host, kept), Contains("being captured into a graph cannot copy to the host"));
  const CUgraph graph = cu::end_capture(stream);  // nothing of that broke it
  CUgraphExec exec = nullptr;
  BRRR_CUDA(cuGraphInstantiate, &exec, graph, 0);
  BRRR_CUDA(cuGraphLaunch, exec, stream.handle);
  copy_to_host(host, kept);
  CHECK(host[0] == 7);
  CHECK(host[255] == 7);
  BRRR_CUDA(cuGraphExecDestroy, exec);
  BRRR_CUDA(cuGraphDestroy, graph);
  empty_cache(gpu);
  CHECK(fake.problem() == "");
}

TEST_CASE("CUDA streams and events keep order, run host work and bring out its failures", "[cuda_allocator]") {
  FakeCuda fake({.seed = 11});
  const Stream a(gpu), b(gpu);
  int value = 0, seen = -1;
  a.enqueue([&] { value = 5; });
  Event event = a.record();
  b.wait(event);
  b.enqueue([&] { seen = value; });
  CHECK_FALSE(event.done());
  CHECK_FALSE(b.idle());
  b.synchronize();
  CHECK(seen == 5);
  CHECK(event.done());
  const Stream queue(cpu);  // a CPU queue waits for the device, and the device for the queue
  a.enqueue([&] { value = 6; });
  queue.wait(a.record());
  queue.enqueue([&] { seen = value + 1; });
  b.wait(queue.record());
  b.enqueue([&] { value = seen + 1; });
  b.synchronize();
  CHECK(value == 8);
  a.enqueue([] { throw Error("host work"); });
  a.enqueue([&] { value = 0; });
  CHECK_THROWS_WITH(a.synchronize(), "host work");
  CHECK(value == 8);
  CHECK_NOTHROW(synchronize(gpu));
  Event start(gpu, true), end(gpu, true);
  start.record(a);
  a.enqueue([] {});
  end.record(a);
  CHECK(end.milliseconds_since(start) > 0);
  CHECK(fake.problem() == "");
}

TEST_CASE("copies of every size arrive, between any two devices", "[cuda_allocator]") {
  FakeCuda fake({.devices = 2, .seed = 4});
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{65536}, std::size_t{65540}, 4 * kMiB, 9 * kMiB + 4}) {
    std::vector<int> in(bytes / 4), out(bytes / 4), back(bytes / 4);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 2654435761u);
    const std::int64_t shape[] = {static_cast<std::int64_t>(in.size())};
    const Tensor a = make_tensor(i32, shape, gpu), b = make_tensor(i32, shape, cuda(1)), c = make_tensor(i32, shape, cpu);
    copy_from_host(a, in.data());
    const std::vector<int> kept = std::exchange(in, std::vector<int>(in.size(), -1));  // may be reused at once
    copy_bytes(b, a);
    copy_bytes(c, b);
    CHECK(std::memcmp(c.data(), kept.data(), bytes) == 0);
    copy_to_host(out.data(), b);
    CHECK(out == kept);
    cu::PinnedBuffer pinned(cu::device_state(0), bytes);
    copy_to_host(pinned.data(), a, Async::yes);
    synchronize(gpu);
    CHECK(std::memcmp(pinned.data(), kept.data(), bytes) == 0);
    copy_bytes(a, c);
    copy_from_host(a, pinned.data());
    copy_to_host(back.data(), a);
    CHECK(back == kept);
  }
  CHECK(fake.problem() == "");
}

// Random schedules ----------------------------------------------------------------------------------------------

namespace {

enum class Bug { none, waits_ignored, events_lie, use_not_recorded };

// Tensors are written and read by kernels on random streams, ordered by events as they should be; a kernel that
// finds another value than the last one written is a stale read. Returns how many there were.
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
        case 5: if (!tensors_.empty()) read(pick(), stream()); break;
        case 6: if (!tensors_.empty()) write(pick(), stream()); break;
        case 7: if (!tensors_.empty()) copy(); break;
        case 8:
        case 9: if (!tensors_.empty()) drop(); break;
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
    BRRR_CUDA(cuLaunchKernel, kernel, 1, 1, 1, 32, 1, 1, 0, static_cast<CUstream>(on.state()->native()), arguments,
              nullptr);
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
      cuda_runtime().copy(*on.state(), to.data(), tensors_[from].tensor.data(), to.bytes());
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

TEST_CASE("10,000 random schedules without a stale read", "[cuda_allocator][schedules]") {
  CHECK(bad_schedules(10000, Bug::none) == 0);
}

TEST_CASE("the schedules find planted bugs", "[cuda_allocator][schedules]") {
  CHECK(bad_schedules(200, Bug::waits_ignored) > 20);
  // Blocks that wait for events are looked at only when no other fits, so this shows in fewer schedules.
  CHECK(bad_schedules(500, Bug::events_lie) > 3);
  CHECK(bad_schedules(200, Bug::use_not_recorded) > 20);
}

// Faults --------------------------------------------------------------------------------------------------------

namespace {

using Workload = std::vector<int> (*)();

// Each returns what it computed; `existing` tensors are made by the caller.
std::vector<int> allocate_and_copy() {
  std::vector<int> in(40000), out(40000);
  for (int i = 0; i < 40000; ++i) in[i] = i;
  const Tensor a = bytes_on_gpu(160000), b = bytes_on_gpu(160000);
  copy_from_host(a, in.data());
  copy_bytes(b, a);
  copy_to_host(out.data(), b);
  return out;
}
std::vector<int> large_staged_copy() {
  std::vector<int> in(3 * kMiB), out(3 * kMiB);
  for (std::size_t i = 0; i < in.size(); i += 97) in[i] = static_cast<int>(i);
  const Tensor a = bytes_on_gpu(12 * kMiB);
  copy_from_host(a, in.data());
  copy_to_host(out.data(), a);
  return out;
}
std::vector<int> streams_and_events() {
  const Stream a(gpu), b(gpu);
  std::vector<int> in(256, 3), out(256);
  {
    StreamGuard guard(a);
    const Tensor x = bytes_on_gpu(1024);
    copy_from_host(x, in.data());
    b.wait(a.record());
    StreamGuard inner(b);
    const Tensor y = bytes_on_gpu(1024);
    copy_bytes(y, x);
    copy_to_host(out.data(), y);
    Event done(gpu, true);
    done.record(b);
    done.synchronize();
    if (done.done()) out.push_back(1);
  }
  synchronize(gpu);
  return out;
}
std::vector<int> cross_stream_reuse() {
  const Stream other(gpu);
  std::vector<int> out(8);
  for (int i = 0; i < 8; ++i) {
    const Tensor x = bytes_on_gpu(2 * kMiB - 1024);
    cuda_runtime().fill_bytes(*Stream::default_of(gpu).state(), x.data(), i, 4);
    other.wait(Stream::default_of(gpu).record());
    StreamGuard guard(other);
    copy_to_host(&out[i], make_view(x, std::vector<std::int64_t>{1}, std::vector<std::int64_t>{1}));
  }
  empty_cache(gpu);
  return out;
}
std::vector<int> host_work() {
  const Stream stream(gpu);
  auto value = std::make_shared<int>(1);
  for (int i = 0; i < 3; ++i) stream.enqueue([value] { *value *= 2; });
  stream.synchronize();
  return {*value};
}
std::vector<int> pass_through() {
  PassThrough on;
  return allocate_and_copy();
}
std::vector<int> nearly_full() {
  std::vector<int> out;
  for (int i = 0; i < 3; ++i) {
    const Tensor a = bytes_on_gpu(60 * kMiB);
    const Tensor b = bytes_on_gpu(std::size_t(20 + i) * kMiB);
    out.push_back(static_cast<int>(a.bytes() + b.bytes()));
  }
  return out;
}
std::vector<int> captured() {
  auto& stream = static_cast<cu::CudaStream&>(*Stream::default_of(gpu).state());
  const Tensor x = bytes_on_gpu(1024);
  struct Graph {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ~Graph() {
      if (exec && BRRR_CUDA_TRY(cuGraphExecDestroy, exec) != CUDA_SUCCESS) BRRR_CUDA_TRY(cuGraphExecDestroy, exec);
      if (graph && BRRR_CUDA_TRY(cuGraphDestroy, graph) != CUDA_SUCCESS) BRRR_CUDA_TRY(cuGraphDestroy, graph);
    }
  } g;
  cu::begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  try {
    cuda_runtime().fill_bytes(stream, x.data(), 9, 1024);
  } catch (...) {
    g.graph = cu::end_capture(stream);
    throw;
  }
  g.graph = cu::end_capture(stream);
  BRRR_CUDA(cuGraphInstantiate, &g.exec, g.graph, 0);
  BRRR_CUDA(cuGraphLaunch, g.exec, stream.handle);
  std::vector<int> out(256);
  copy_to_host(out.data(), x);
  return out;
}

constexpr std::pair<const char*, Workload> kWorkloads[] = {
    {"allocate_and_copy", allocate_and_copy}, {"large_staged_copy", large_staged_copy},
    {"streams_and_events", streams_and_events}, {"cross_stream_reuse", cross_stream_reuse},
    {"host_work", host_work},                   {"pass_through", pass_through},
    {"nearly_full", nearly_full},               {"captured", captured},
};
constexpr testing::FakeOptions kFaultDriver{.capacity = 128 * kMiB, .seed = 9};

}  // namespace

TEST_CASE("a fault at every call: typed error, nothing changed, nothing leaked, the retry agrees",
          "[cuda_allocator][faults]") {
  long faults = 0, thrown = 0;
  for (const auto& [name, workload] : kWorkloads) {
    INFO(name);
    std::vector<int> expected;
    std::vector<std::pair<std::string_view, long>> calls;
    {
      FakeCuda fake(kFaultDriver);
      cu::count_calls(true);
      expected = workload();
      calls = cu::call_counts();
      cu::count_calls(false);
    }
    for (const auto& [call, count] : calls) {
      for (long k = 1; k <= count; ++k) {
        INFO(call << " number " << k);
        for (const CUresult code : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
          FakeCuda fake(kFaultDriver);
          ++faults;
          {
            cu::fail_call(call, k, code);
            bool failed = false;
            std::vector<int> result;
            try {
              result = workload();
            } catch (const Error& error) {
              failed = true;
              // Work on a queue, a missing device and memory have their own words; the rest names the call.
              CHECK_FALSE(std::string(error.what()).empty());
            }
            thrown += failed;
            if (!failed) CHECK(result == expected);  // the fault was made good
            cu::clear_faults();
            // The failure of device discovery is remembered until the runtime is started anew.
            if (!cuda_is_available()) cu::shut_down();
            std::vector<int> seven(64, 7), read(64);
            const Tensor existing = bytes_on_gpu(256);
            copy_from_host(existing, seven.data());
            const std::int64_t live = memory_stats(gpu).live;
            cu::fail_call(call, k, code);
            try {
              workload();
            } catch (const Error&) {
            }
            cu::clear_faults();
            copy_to_host(read.data(), existing);
            CHECK(read == seven);
            CHECK(memory_stats(gpu).live == live);
            CHECK(workload() == expected);
          }
          CHECK(memory_stats(gpu).live == 0);
          CHECK(fake.problem() == "");
          cu::shut_down();
          CHECK(fake.counts() == FakeCounts{});
        }
      }
    }
  }
  CHECK(thrown > faults / 2);
  WARN(faults << " faults, " << thrown << " reached the caller");
}
