// Memory of captured graphs, on the fake driver: a graph's blocks are not reused during the
// lifetime of its pool, and return to their streams, in order, when it is destroyed.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

cu::CudaStream& state_of(const Stream& stream) {
  return static_cast<cu::CudaStream&>(*StreamState::of(stream));
}

void fill(const Stream& stream, const Tensor& x, int value) {
  cuda_runtime().fill_bytes(*StreamState::of(stream), x.data(), value, x.bytes());
}

std::vector<unsigned char> bytes_of(const Tensor& x) {
  std::vector<unsigned char> bytes(x.bytes());
  copy_to_host(bytes.data(), x);
  return bytes;
}

// A graph and its pool, with one owner.
struct Captured {
  cu::CapturePool pool;
  const Stream stream;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;

  explicit Captured(const Stream& s) : pool(*state_of(s).on), stream(s) {}
  ~Captured() {
    if (exec) BRRR_CUDA_TRY(cuGraphExecDestroy, exec);
    if (graph) BRRR_CUDA_TRY(cuGraphDestroy, graph);
  }
  template <class F>
  void capture(F&& f) {
    cu::begin_capture(pool, state_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    f();
    graph = cu::end_capture(pool, state_of(stream));
    BRRR_CUDA(cuGraphInstantiate, &exec, graph, 0);
  }
  void launch(const Stream& on) {
    pool.launched_on(state_of(on));
    BRRR_CUDA(cuGraphLaunch, exec, state_of(on).handle);
  }
};

// out = a temporary full of `value`; the temporary is freed within the capture.
void capture_through_temporary(Captured& graph, const Tensor& out, int value, const void** where) {
  graph.capture([&] {
    const Tensor temporary = bytes_on_gpu(out.bytes());
    *where = temporary.data();
    fill(graph.stream, temporary, value);
    copy_bytes(out, temporary);
  });
}

bool among(const void* address, const std::vector<Tensor>& tensors) {
  return std::ranges::any_of(tensors, [&](const Tensor& x) {
    const char* begin = static_cast<const char*>(x.data());
    return address >= begin && address < begin + x.bytes();
  });
}

void finish(FakeCuda& fake) {
  synchronize(gpu);
  CHECK(memory_stats(gpu).live == 0);
  cu::shut_down();
  CHECK(fake.counts() == FakeCounts{});
}

}  // namespace

TEST_CASE("what is freed in a capture stays the graph's while its pool lives", "[cuda_capture]") {
  const Caching on;
  FakeCuda fake;
  {
    const Stream stream = Stream::default_of(gpu);
    const Tensor out = bytes_on_gpu(4096);
    const void* temporary = nullptr;
    std::optional<Captured> graph(std::in_place, stream);
    capture_through_temporary(*graph, out, 9, &temporary);
    // As many as would fill every block that there is.
    std::vector<Tensor> others;
    for (int i = 0; i < 1200; ++i) others.push_back(bytes_on_gpu(4096));
    CHECK_FALSE(among(temporary, others));
    for (const Tensor& other : others) fill(stream, other, 1);
    graph->launch(stream);
    CHECK(bytes_of(out) == std::vector<unsigned char>(4096, 9));
    for (const Tensor& other : others)
      CHECK(bytes_of(other) == std::vector<unsigned char>(4096, 1));
    // When the pool goes, the memory is the stream's again.
    others.clear();
    const std::int64_t reserved = memory_stats(gpu).reserved;
    graph.reset();
    CHECK(memory_stats(gpu).reserved == reserved);
    for (int i = 0; i < 1600 && !among(temporary, others); ++i)
      others.push_back(bytes_on_gpu(4096));
    CHECK(among(temporary, others));
    CHECK(memory_stats(gpu).reserved <= reserved + std::int64_t(2 * kMiB));
  }
  finish(fake);
}

TEST_CASE("a capture reuses its blocks", "[cuda_capture]") {
  const Caching on;
  FakeCuda fake;
  {
    const Stream stream(gpu);
    const StreamGuard guard(stream);
    Captured graph(stream);
    std::set<const void*> places;
    const std::int64_t before = memory_stats(gpu).reserved;
    graph.capture([&] {
      for (int i = 0; i < 100; ++i) {
        const Tensor x = bytes_on_gpu(kMiB / 2);
        fill(stream, x, i);
        places.insert(x.data());
      }
    });
    CHECK(places.size() == 1);
    CHECK(memory_stats(gpu).reserved == before + std::int64_t(2 * kMiB));
  }
  finish(fake);
}

TEST_CASE("what a capture read and then freed stays the graph's as well", "[cuda_capture]") {
  const Caching on;
  FakeCuda fake;
  {
    const Stream stream = Stream::default_of(gpu);
    const Tensor out = bytes_on_gpu(2048);
    Tensor input = bytes_on_gpu(2048);
    fill(stream, input, 3);
    const void* place = input.data();
    std::optional<Captured> graph(std::in_place, stream);
    graph->capture([&] {
      copy_bytes(out, input);
      input = Tensor();
    });
    std::vector<Tensor> others;
    for (int i = 0; i < 2000; ++i) others.push_back(bytes_on_gpu(2048));
    CHECK_FALSE(among(place, others));
    for (const Tensor& other : others) fill(stream, other, 1);
    graph->launch(stream);
    CHECK(bytes_of(out) == std::vector<unsigned char>(2048, 3));
    others.clear();
    graph.reset();
    for (int i = 0; i < 3000 && !among(place, others); ++i) others.push_back(bytes_on_gpu(2048));
    CHECK(among(place, others));
  }
  finish(fake);
}

TEST_CASE("tensors made in a capture may outlive the graph", "[cuda_capture]") {
  for (const bool pass_through : {false, true}) {
    INFO(pass_through);
    const bool before = allocator_pass_through();
    set_allocator_pass_through(pass_through);
    FakeCuda fake;
    {
      const Stream stream = Stream::default_of(gpu);
      Tensor result;
      {
        Captured graph(stream);
        graph.capture([&] {
          const Tensor temporary = bytes_on_gpu(1024);
          fill(stream, temporary, 4);
          result = bytes_on_gpu(1024);
          copy_bytes(result, temporary);
        });
        for (int i = 0; i < 10; ++i) {
          const Tensor noise = bytes_on_gpu(1024);
          fill(stream, noise, 8);
        }
        graph.launch(stream);
      }
      CHECK(bytes_of(result) == std::vector<unsigned char>(1024, 4));
      const Tensor more = bytes_on_gpu(1024);
      fill(stream, more, 1);
      CHECK(bytes_of(result) == std::vector<unsigned char>(1024, 4));
    }
    finish(fake);
    set_allocator_pass_through(before);
  }
}

TEST_CASE("a pool's memory comes back after launches on other streams", "[cuda_capture]") {
  const Caching on;
  for (const bool told : {true, false}) {
    INFO(told);
    FakeCuda fake;
    {
      const Stream stream = Stream::default_of(gpu), replay(gpu);
      const Tensor out = bytes_on_gpu(4096);
      const void* temporary = nullptr;
      std::vector<Tensor> others;
      {
        Captured graph(stream);
        graph.capture([&] {
          const Tensor x = bytes_on_gpu(4096);
          temporary = x.data();
          fill(stream, x, 9);
          copy_bytes(out, x);
        });
        stream.synchronize();
        fake.hold(state_of(replay).handle, true);  // the launch is late
        if (told) {
          graph.launch(replay);
        } else {
          BRRR_CUDA(cuGraphLaunch, graph.exec, state_of(replay).handle);
        }
      }
      for (int i = 0; i < 1100; ++i) {
        others.push_back(bytes_on_gpu(4096));
        fill(stream, others.back(), 1);
      }
      CHECK(among(temporary, others) != told);
      stream.synchronize();
      fake.hold(state_of(replay).handle, false);
      replay.synchronize();
      bool right = bytes_of(out) == std::vector<unsigned char>(4096, 9);
      for (const Tensor& other : others)
        right &= bytes_of(other) == std::vector<unsigned char>(4096, 1);
      CHECK(right == told);  // an unreported launch runs on memory that was reused
    }
    finish(fake);
  }
}

TEST_CASE("what a capture read and then freed waits for late launches on other streams",
          "[cuda_capture]") {
  const Caching on;
  FakeCuda fake;
  {
    const Stream stream = Stream::default_of(gpu), replay(gpu);
    const Tensor out = bytes_on_gpu(2048);
    Tensor input = bytes_on_gpu(2048);
    fill(stream, input, 3);
    const void* place = input.data();
    {
      Captured graph(stream);
      graph.capture([&] {
        copy_bytes(out, input);
        input = Tensor();
      });
      stream.synchronize();
      fake.hold(state_of(replay).handle, true);
      graph.launch(replay);
    }  // the pool goes; the launch has not run
    std::vector<Tensor> others;
    for (int i = 0; i < 2000; ++i) {
      others.push_back(bytes_on_gpu(2048));
      fill(stream, others.back(), 1);
    }
    CHECK_FALSE(among(place, others));
    stream.synchronize();
    fake.hold(state_of(replay).handle, false);
    replay.synchronize();
    CHECK(bytes_of(out) == std::vector<unsigned char>(2048, 3));
    for (int i = 0; i < 3000 && !among(place, others); ++i) others.push_back(bytes_on_gpu(2048));
    CHECK(among(place, others));
  }
  finish(fake);
}

TEST_CASE("a second stream joins a capture explicitly", "[cuda_capture]") {
  const Caching on;
  FakeCuda fake;
  {
    const Stream first = Stream::default_of(gpu), second(gpu);
    const Tensor out = bytes_on_gpu(1024);
    const void* place = nullptr;
    Captured graph(first);
    graph.capture([&] {
      graph.pool.join(state_of(second));
      second.wait(first.record());
      {
        const StreamGuard guard(second);
        const Tensor temporary = bytes_on_gpu(1024);
        place = temporary.data();
        fill(second, temporary, 6);
        use_on(out, second);
        copy_bytes(out, temporary);
      }
      first.wait(second.record());
    });
    const StreamGuard guard(second);
    std::vector<Tensor> others;
    for (int i = 0; i < 2500; ++i) others.push_back(bytes_on_gpu(1024));
    CHECK_FALSE(among(place, others));
    graph.launch(first);
    first.synchronize();
    CHECK(bytes_of(out) == std::vector<unsigned char>(1024, 6));
  }
  finish(fake);
}

TEST_CASE("misuse of a capture pool is refused", "[cuda_capture]") {
  const Caching on;
  FakeCuda fake;
  {
    const Stream stream = Stream::default_of(gpu);
    cu::CapturePool a(*state_of(stream).on), b(*state_of(stream).on);
    cu::begin_capture(a, state_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK_THROWS_WITH(cu::begin_capture(b, state_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                      "[capture] expected a stream that no pool has taken");
    CHECK_THROWS_AS(a.join(state_of(stream)), Error);
    BRRR_CUDA(cuGraphDestroy, cu::end_capture(a, state_of(stream)));
    // A capture that does not begin leaves the stream its own memory.
    cu::fail_call("cuStreamBeginCapture", 1, CUDA_ERROR_UNKNOWN);
    CHECK_THROWS_AS(cu::begin_capture(b, state_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                    CudaError);
    cu::clear_faults();
    const Tensor x = bytes_on_gpu(512);
    fill(stream, x, 2);
    CHECK(bytes_of(x) == std::vector<unsigned char>(512, 2));
  }
  {
    cu::CapturePool pool(cu::device_state(0));
    CHECK_THROWS_WITH(cu::shut_down(),
                      Catch::Contains("expected no memory of captured graphs on cuda:0, got 1"));
  }
  finish(fake);
}

TEST_CASE("a block freed during a capture waits for the other streams that use it",
          "[cuda_capture]") {
  const Caching caching;
  FakeCuda fake;
  const Stream other(gpu);
  const std::size_t bytes = 12 * kMiB;  // a segment of its own: no other block fits
  Tensor x = bytes_on_gpu(bytes);
  fill(Stream::default_of(gpu), x, 5);
  synchronize(gpu);
  const void* memory = x.data();
  Tensor copy;
  fake.hold(state_of(other).handle, true);
  {
    const StreamGuard guard(other);
    copy = bytes_on_gpu(bytes);
    copy_bytes(copy, x);
  }
  Captured captured{Stream(gpu)};
  captured.capture([&] { x = Tensor(); });

  Tensor next = bytes_on_gpu(bytes);
  CHECK(next.data() != memory);
  fill(Stream::default_of(gpu), next, 9);
  fake.hold(state_of(other).handle, false);
  synchronize(gpu);
  CHECK((bytes_of(copy) == std::vector<unsigned char>(bytes, 5)));
  CHECK(bytes_on_gpu(bytes).data() == memory);  // reused now
}
