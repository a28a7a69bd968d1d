// The CUDA allocator on the fake driver: reuse, other streams, running out, pass-through, exact
// statistics, capture, copies.
#include "brrr/tensor/cuda_allocator.h"
#include "brrr/tensor/cuda_testing.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "brrr/ops/functions.h"
#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/tensor.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"

using namespace brrr;
using namespace brrr::testing;
using Catch::Contains;

namespace {

// Work that stays on the stream until the fake driver is made to run it.
void keep_busy(const Stream& stream) {
  stream.enqueue([] {});
}

CUstream handle_of(const Stream& stream) {
  return static_cast<cu::CudaStream&>(*StreamState::of(stream)).handle;
}

}  // namespace

TEST_CASE("a block freed on its stream is reused there at once, without a driver call",
          "[cuda_allocator]") {
  const Caching on;
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
  const Caching on;
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
  const Caching on;
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
  const Caching on;
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
      if (next != live.begin())
        REQUIRE(std::prev(next)->first + std::prev(next)->second.bytes() <= data);
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
  const Caching on;
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
  CHECK(TensorImpl::of(b)->storage->stream == StreamState::of(other));
}

TEST_CASE("a block used on another stream waits for an event there", "[cuda_allocator]") {
  const Caching on;
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

TEST_CASE("a block used on several other streams waits for each", "[cuda_allocator]") {
  const Caching on;
  for (const std::size_t late : {0u, 1u}) {
    FakeCuda fake;
    const Stream others[] = {Stream(gpu), Stream(gpu)};
    void* first = nullptr;
    {
      const Tensor a = bytes_on_gpu(2 * kMiB - 512);
      first = a.data();
      for (const Stream& other : others) {
        keep_busy(other);
        use_on(a, other);
      }
    }
    const auto comes_again = [&](int blocks) {
      std::vector<Tensor> more;
      for (int i = 0; i < blocks; ++i) {
        more.push_back(bytes_on_gpu(2 * kMiB - 512));
        if (more.back().data() == first) return true;
      }
      return false;
    };
    fake.hold(handle_of(others[late]), true);
    fake.run_all();
    CHECK_FALSE(comes_again(32));
    fake.hold(handle_of(others[late]), false);
    fake.run_all();
    CHECK(comes_again(100));
  }
}

TEST_CASE("what an op on another stream writes to is not reused before it is done",
          "[cuda_allocator]") {
  const Caching on;
  FakeCuda fake({.with_nvrtc = true});
  const Stream other(gpu);
  Tensor x = bytes_on_gpu(2 * kMiB - 512);
  const void* const first = x.data();
  fake.hold(handle_of(other), true);
  {
    const StreamGuard guard(other);
    fill_(x, 7);
  }
  x = Tensor();
  CHECK(bytes_on_gpu(2 * kMiB - 512).data() != first);
  fake.hold(handle_of(other), false);
  fake.run_all();
}

TEST_CASE("out of memory: cached blocks are given back first, then the error has the numbers",
          "[cuda_allocator]") {
  const Caching on;
  FakeCuda fake({.capacity = 64 * kMiB});
  { const Tensor a = bytes_on_gpu(40 * kMiB); }
  const Tensor b = bytes_on_gpu(50 * kMiB);  // the cached 40 go back
  CHECK(memory_stats(gpu).reserved == static_cast<std::int64_t>(50 * kMiB));
  thread_context.op = "add";
  try {
    bytes_on_gpu(30 * kMiB);
    FAIL("no error");
  } catch (const OutOfMemory& error) {
    CHECK(error.requested() == 30 * kMiB);
    CHECK(std::string(error.what()) ==
          "[add] out of memory on cuda:0: requested 31457280 bytes, in use 52428800, cached 0, "
          "free on the device "
          "14680064 of 67108864");
  }
  thread_context.op = nullptr;
  CHECK(memory_stats(gpu).live == static_cast<std::int64_t>(50 * kMiB));
  const Tensor small = bytes_on_gpu(100);
  const Tensor odd = bytes_on_gpu(3 * kMiB);  // no room for a segment of 20 MiB, but for 4
  CHECK_THROWS_AS(bytes_on_gpu(std::size_t{1} << 50), OutOfMemory);
}

TEST_CASE("out of memory waits for other streams before it gives up", "[cuda_allocator]") {
  const Caching on;
  FakeCuda fake({.capacity = 48 * kMiB});
  const Stream other(gpu);
  {
    const Tensor a = bytes_on_gpu(40 * kMiB);
    keep_busy(other);
    use_on(a, other);
  }
  CHECK_NOTHROW(bytes_on_gpu(40 * kMiB));
}

TEST_CASE("pass-through allocates and frees with the driver directly", "[cuda_allocator]") {
  FakeCuda fake;
  PassThrough on;
  const Stream other(gpu);
  {
    const Tensor a = bytes_on_gpu(100), b = bytes_on_gpu(3 * kMiB);
    CHECK(fake.counts().allocations == 2);
    CHECK(fake.counts().bytes == 100 + 3 * kMiB);
    cuda_runtime().fill_bytes(*StreamState::of(other), a.data(), 1, 100);
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
  const Caching on;
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
  const Caching on;
  FakeCuda fake;
  auto& stream = static_cast<cu::CudaStream&>(*StreamState::of(Stream::default_of(gpu)));
  const Stream other(gpu);
  Tensor used = bytes_on_gpu(kMiB);
  const Tensor kept = bytes_on_gpu(256);
  cu::CapturePool pool(*stream.on);
  cu::begin_capture(pool, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuda_runtime().fill_bytes(stream, kept.data(), 7, 256);
  use_on(used, other);
  used = Tensor();
  const Tensor fresh = bytes_on_gpu(30 * kMiB);  // asks the driver, in relaxed mode
  CHECK_THROWS_WITH(empty_cache(gpu),
                    Contains("[empty_cache] not possible while a stream is being captured"));
  CHECK_THROWS_WITH(stream.synchronize(),
                    Contains("[synchronize] not possible while the stream is being captured"));
  CHECK_THROWS_WITH(stream.enqueue([] {}), Contains("[enqueue] not possible"));
  char host[4096] = {};
  CHECK_THROWS_WITH(copy_from_host(kept, host),
                    Contains("being captured into a graph cannot copy from the host"));
  CHECK_THROWS_WITH(copy_to_host(host, kept),
                    Contains("being captured into a graph cannot copy to the host"));
  const CUgraph graph = cu::end_capture(pool, stream);  // nothing of that broke it
  CUgraphExec exec = nullptr;
  BRRR_CUDA(cuGraphInstantiate, &exec, graph, 0);
  BRRR_CUDA(cuGraphLaunch, exec, stream.handle);
  copy_to_host(host, kept);
  CHECK(host[0] == 7);
  CHECK(host[255] == 7);
  BRRR_CUDA(cuGraphExecDestroy, exec);
  BRRR_CUDA(cuGraphDestroy, graph);
  empty_cache(gpu);
}

TEST_CASE("what two streams used and a capture saw freed comes back after the capture",
          "[cuda_allocator]") {
  const Caching on;
  FakeCuda fake;
  auto& stream = static_cast<cu::CudaStream&>(*StreamState::of(Stream::default_of(gpu)));
  const Stream owner(gpu), user(gpu);
  Tensor used;
  {
    const StreamGuard guard(owner);
    used = bytes_on_gpu(kMiB);
  }
  use_on(used, user);
  cu::CapturePool pool(*stream.on);
  cu::begin_capture(pool, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  used = Tensor();
  BRRR_CUDA(cuGraphDestroy, cu::end_capture(pool, stream));
  empty_cache(gpu);
  CHECK(memory_stats(gpu).reserved == 0);
  CHECK(fake.counts().allocations == 0);
}

TEST_CASE("CUDA streams and events keep order, run host work and bring out its failures",
          "[cuda_allocator]") {
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
}

TEST_CASE("an event that is recorded again keeps what a CPU queue waits for", "[cuda_allocator]") {
  FakeCuda fake;
  const Stream first(gpu), second(gpu), queue(cpu);
  std::promise<void> gate;
  int value = 0, seen = -1;
  Event event(gpu);
  first.enqueue([&] { value = 5; });
  event.record(first);
  queue.enqueue([&] { gate.get_future().wait(); });
  queue.wait(event);
  queue.enqueue([&] { seen = value; });
  fake.hold(handle_of(second), true);
  keep_busy(second);
  event.record(second);
  gate.set_value();
  queue.synchronize();
  CHECK(seen == 5);
  CHECK_FALSE(event.done());
  fake.hold(handle_of(second), false);
  event.synchronize();
}

TEST_CASE("copies of every size arrive, between any two devices", "[cuda_allocator]") {
  FakeCuda fake({.devices = 2, .seed = 4});
  for (const std::size_t bytes :
       {std::size_t{4}, std::size_t{65536}, std::size_t{65540}, 4 * kMiB, 9 * kMiB + 4}) {
    std::vector<int> in(bytes / 4), out(bytes / 4), back(bytes / 4);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 2654435761u);
    const std::int64_t shape[] = {static_cast<std::int64_t>(in.size())};
    const Tensor a = make_tensor(i32, shape, gpu), b = make_tensor(i32, shape, cuda(1)),
                 c = make_tensor(i32, shape, cpu);
    copy_from_host(a, in.data());
    const std::vector<int> kept =
        std::exchange(in, std::vector<int>(in.size(), -1));  // may be reused at once
    copy_bytes(b, a);
    copy_bytes(c, b);
    CHECK(std::memcmp(c.data(), kept.data(), bytes) == 0);
    copy_to_host(out.data(), b);
    CHECK(out == kept);
    const Tensor pinned = make_pinned_tensor(i32, shape);
    copy_to_host(pinned.data(), a, Async::yes);
    synchronize(gpu);
    CHECK(std::memcmp(pinned.data(), kept.data(), bytes) == 0);
    copy_bytes(a, c);
    copy_from_host(a, pinned.data());
    copy_to_host(back.data(), a);
    CHECK(back == kept);
  }
}

TEST_CASE("a copy between devices has read its source before the source is written again",
          "[cuda_allocator]") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    FakeCuda fake({.devices = 2, .seed = seed});
    const std::int64_t shape[] = {1000};
    const Tensor from = make_tensor(i32, shape, gpu), to = make_tensor(i32, shape, cuda(1));
    const Stream source = Stream::default_of(gpu), target = Stream::default_of(cuda(1));
    const auto fill = [](const Stream& stream, const Tensor& x, int value) {
      cuda_runtime().fill_bytes(*StreamState::of(stream), x.data(), value, x.bytes());
    };
    fill(source, from, 3);
    fake.hold(handle_of(target), true);
    copy_bytes(to, from);
    fill(source, from, 9);
    fake.run_all();
    CHECK(fake.pending() == 2);  // the copy, and the fill that waits for it
    fake.hold(handle_of(target), false);
    std::vector<unsigned char> got(to.bytes());
    copy_to_host(got.data(), to);
    CHECK(got == std::vector<unsigned char>(to.bytes(), 3));
    copy_to_host(got.data(), from);
    CHECK(got == std::vector<unsigned char>(from.bytes(), 9));
  }
}

TEST_CASE("threads share the allocator", "[cuda_allocator]") {
  FakeCuda fake;
  const Stream shared(gpu);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Stream own(gpu);
      StreamGuard guard(own);
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<Tensor> live;
      for (int i = 0; i < 400; ++i) {
        live.push_back(bytes_on_gpu(4 * (1 + random() % 5000)));
        int value = t * 1000 + i, back = 0;
        if (i % 8 == 0) {
          const Tensor one =
              make_view(live.back(), std::vector<std::int64_t>{1}, std::vector<std::int64_t>{1});
          copy_from_host(one, &value);
          copy_to_host(&back, one);
          wrong += back != value;
        }
        if (i % 5 == 0) use_on(live.back(), shared);
        if (random() % 2) live.erase(live.begin() + static_cast<long>(random() % live.size()));
        if (i % 150 == 0) empty_cache(gpu);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(memory_stats(gpu).live == 0);
}

TEST_CASE("a failure of host work does not affect the stream's next owner", "[cuda_allocator]") {
  FakeCuda fake;
  const int id = [] {
    const Stream first(gpu);
    first.enqueue([] { throw Error("before the end"); });
    return first.id();
  }();
  bool ran = false;
  {
    const Stream second(gpu);  // the failing work has yet to run
    REQUIRE(second.id() == id);
    second.enqueue([&] { ran = true; });
    CHECK_NOTHROW(second.synchronize());
    CHECK(ran);
  }
  CHECK_THROWS_WITH(synchronize(gpu), "before the end");
  CHECK_NOTHROW(synchronize(gpu));
}

TEST_CASE("a read that waits for its stream does not keep other copies waiting",
          "[cuda_allocator]") {
  FakeCuda fake({.seed = 6});
  for (const std::size_t bytes : {std::size_t{4096}, 13 * kMiB}) {
    std::vector<int> in(bytes / 4, 3), slow(bytes / 4), fast(bytes / 4);
    const Tensor x = bytes_on_gpu(bytes);
    copy_from_host(x, in.data());
    synchronize(gpu);
    std::atomic<bool> entered{false}, open{false};
    std::thread reader([&] {
      const Stream blocked(gpu);
      StreamGuard guard(blocked);
      blocked.enqueue([&] {
        entered = true;
        while (!open) std::this_thread::yield();
      });
      copy_to_host(slow.data(), x);
    });
    while (!entered) std::this_thread::yield();
    copy_from_host(x, in.data());
    copy_to_host(fast.data(), x);
    open = true;
    reader.join();
    CHECK(fast == in);
    CHECK(slow == in);
  }
  std::vector<std::thread> threads;  // more of them than slots
  std::atomic<int> wrong{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      const Stream own(gpu);
      StreamGuard guard(own);
      std::vector<int> in(3 * kMiB, t), out(3 * kMiB);
      const Tensor x = bytes_on_gpu(4 * in.size());
      for (int i = 0; i < 3; ++i) {
        copy_from_host(x, in.data());
        copy_to_host(out.data(), x);
        wrong += out != in;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}
