// Streams and events on the CPU: order, waiting without blocking, failures.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/malloc_count.h"

using namespace brrr;
using namespace std::chrono_literals;

namespace {

// A gate that work on a queue waits at, so that a test decides when it goes on.
struct Gate {
  std::atomic<bool> open{false};
  void wait() {
    while (!open) std::this_thread::sleep_for(100us);
  }
};

}  // namespace

TEST_CASE("the CPU's default stream runs inline and throws at the call", "[streams]") {
  const Stream stream = Stream::default_of(cpu);
  const auto me = std::this_thread::get_id();
  std::thread::id ran;
  stream.enqueue([&] { ran = std::this_thread::get_id(); });
  CHECK(ran == me);
  CHECK(stream.id() == 0);
  CHECK(stream.idle());
  CHECK(stream == Stream::current(cpu));
  CHECK_THROWS_AS(stream.enqueue([] { throw Error("now"); }), Error);
  CHECK_NOTHROW(stream.synchronize());
}

TEST_CASE("a queue runs in order on another thread", "[streams]") {
  const Stream stream(cpu);
  Gate gate;
  std::vector<int> order;
  std::thread::id ran;
  stream.enqueue([&] { gate.wait(); });
  for (int i = 0; i < 100; ++i) stream.enqueue([&, i] { order.push_back(i); });
  stream.enqueue([&] { ran = std::this_thread::get_id(); });
  CHECK_FALSE(stream.idle());
  CHECK(order.empty());
  gate.open = true;
  stream.synchronize();
  CHECK(stream.idle());
  CHECK(ran != std::this_thread::get_id());
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[i] == i);
}

TEST_CASE("a queue is busy, and is waited for, while its last work runs", "[streams]") {
  const Stream stream(cpu);
  Gate gate;
  std::atomic<bool> started{false}, done{false};
  stream.enqueue([&] {
    started = true;
    gate.wait();
    done = true;
  });
  while (!started) std::this_thread::yield();
  CHECK_FALSE(stream.idle());
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    gate.open = true;
  });
  stream.synchronize();
  CHECK(done);
  CHECK(stream.idle());
  opener.join();
  while (!done) std::this_thread::yield();  // what it works on is this test's
}

TEST_CASE("a queue waits for an event of another without blocking the host", "[streams]") {
  const Stream first(cpu), second(cpu);
  Gate gate;
  std::atomic<int> value{0};
  int seen = -1;
  first.enqueue([&] {
    gate.wait();
    value = 7;
  });
  const Event event = first.record();
  second.wait(event);
  second.enqueue([&] { seen = value; });
  CHECK_FALSE(event.done());
  CHECK_FALSE(second.idle());
  gate.open = true;
  second.synchronize();
  CHECK(event.done());
  CHECK(seen == 7);
}

TEST_CASE("recording an event again leaves earlier waits as they were", "[streams]") {
  const Stream first(cpu), second(cpu);
  Gate gate;
  Event event(cpu);
  CHECK(event.done());  // never recorded: nothing to wait for
  event.synchronize();
  first.enqueue([] {});
  event.record(first);
  second.wait(event);
  std::atomic<bool> passed{false};
  second.enqueue([&] { passed = true; });
  first.enqueue([&] { gate.wait(); });
  event.record(first);
  second.synchronize();  // would hang, if it waited for the second recording
  CHECK(passed);
  CHECK_FALSE(event.done());
  gate.open = true;
  event.synchronize();
  CHECK(event.done());
}

TEST_CASE("the inline stream waits on the host", "[streams]") {
  const Stream queue(cpu);
  std::atomic<bool> ran{false};
  queue.enqueue([&] {
    std::this_thread::sleep_for(2ms);
    ran = true;
  });
  Stream::default_of(cpu).wait(queue.record());
  CHECK(ran);
}

TEST_CASE("guards nest and are per thread", "[streams]") {
  const Stream a(cpu), b(cpu);
  CHECK(current_cpu_queue() == nullptr);
  {
    StreamGuard outer(a);
    CHECK(Stream::current(cpu) == a);
    {
      StreamGuard inner(b);
      CHECK(Stream::current(cpu) == b);
      StreamGuard plain(Stream::default_of(cpu));
      CHECK(current_cpu_queue() == nullptr);
    }
    CHECK(Stream::current(cpu) == a);
    std::thread([] { CHECK(current_cpu_queue() == nullptr); }).join();
  }
  CHECK(Stream::current(cpu).id() == 0);
}

TEST_CASE("a failure surfaces at the next synchronize and later work is skipped", "[streams]") {
  const Stream stream(cpu);
  bool ran = false;
  stream.enqueue([] { throw Error("[add] broke"); });
  stream.enqueue([&] { ran = true; });
  CHECK_THROWS_WITH(stream.synchronize(), "[add] broke");
  CHECK_FALSE(ran);
  stream.enqueue([&] { ran = true; });
  CHECK_NOTHROW(stream.synchronize());
  CHECK(ran);
}

TEST_CASE("a failure follows events to streams that wait", "[streams]") {
  const Stream first(cpu), second(cpu), third(cpu);
  bool ran_second = false, ran_third = false;
  first.enqueue([] { throw Error("first"); });
  const Event event = first.record();
  second.wait(event);
  second.enqueue([&] { ran_second = true; });
  third.enqueue([&] { ran_third = true; });
  CHECK_THROWS_WITH(event.synchronize(), "first");
  CHECK_THROWS_WITH(second.synchronize(), "first");
  CHECK_NOTHROW(third.synchronize());
  CHECK_THROWS_WITH(first.synchronize(), "first");
  CHECK_FALSE(ran_second);
  CHECK(ran_third);
}

TEST_CASE("synchronizing the device rethrows, also for streams that are gone", "[streams]") {
  {
    Stream(cpu).enqueue([] { throw std::runtime_error("lost"); });
  }
  CHECK_THROWS_WITH(synchronize(cpu), "lost");
  CHECK_NOTHROW(synchronize(cpu));
  const Stream next(cpu);  // perhaps the same queue: it is clean
  bool ran = false;
  next.enqueue([&] { ran = true; });
  next.synchronize();
  CHECK(ran);
}

TEST_CASE("a stream that waits for itself is an error", "[streams]") {
  const Stream stream(cpu);
  stream.enqueue([&] { stream.synchronize(); });
  CHECK_THROWS_WITH(stream.synchronize(), Catch::Contains("cannot wait for itself"));
}

TEST_CASE("timed events measure, others refuse", "[streams]") {
  const Stream stream(cpu);
  Event start(cpu, true), end(cpu, true), plain(cpu);
  start.record(stream);
  stream.enqueue([] { std::this_thread::sleep_for(5ms); });
  end.record(stream);
  const double ms = end.milliseconds_since(start);
  CHECK(ms >= 5.0);
  plain.record(stream);
  CHECK_THROWS_AS(end.milliseconds_since(plain), Error);
  CHECK_THROWS_AS(end.milliseconds_since(Event(cpu, true)), Error);
}

TEST_CASE("streams are pooled and handles keep them", "[streams]") {
  StreamState* state = nullptr;
  {
    const Stream stream(cpu);
    state = StreamState::of(stream);
    const Stream other(cpu);
    CHECK(StreamState::of(other) != state);
    StreamGuard guard(stream);
    const Stream current = Stream::current(cpu);
    CHECK(current == stream);
  }
  const Stream again(cpu), more(cpu);
  CHECK((StreamState::of(again) == state || StreamState::of(more) == state));
}

TEST_CASE("devices that are not there are refused by name", "[streams]") {
  CHECK_THROWS_WITH(Stream(Device(DeviceType::cpu, 1)),
                    "[stream] expected one of 1 CPU device, got cpu:1");
  if (!cuda_is_available()) {
    CHECK_THROWS_AS(Stream(cuda(0)), CudaError);
    CHECK_THROWS_WITH(synchronize(cuda(0)), Catch::Contains("expected a CUDA device, got none"));
  }
}

TEST_CASE("copies follow the current stream", "[streams]") {
  const std::int64_t shape[] = {4};
  const Tensor a = make_tensor(f32, shape, cpu), b = make_tensor(f32, shape, cpu);
  const float ones[4] = {1, 2, 3, 4};
  copy_from_host(a, ones);
  const Stream stream(cpu);
  StreamGuard guard(stream);
  Gate gate;
  stream.enqueue([&] { gate.wait(); });
  copy_bytes(b, a);
  float out[4] = {};
  copy_to_host(out, b, Async::yes);
  CHECK(out[3] == 0);
  gate.open = true;
  stream.synchronize();
  CHECK(out[3] == 4);
  float again[4] = {};
  copy_to_host(again, b);
  CHECK(again[0] == 1);
  CHECK_THROWS_WITH(copy_bytes(make_tensor(f64, shape, cpu), a),
                    "[copy] expected 32 bytes for f64[4], got f32[4]");
}

TEST_CASE("many threads, queues and events", "[streams]") {
  constexpr int kStreams = 8, kRounds = 200;
  std::vector<Stream> streams;
  for (int i = 0; i < kStreams; ++i) streams.emplace_back(cpu);
  std::vector<long> value(kStreams, 0);
  // A ring: each stream adds its left neighbour's value, ordered by events only.
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kStreams; ++i) {
      const int left = (i + kStreams - 1) % kStreams;
      streams[i].wait(streams[left].record());
      streams[i].enqueue([&value, i, left] { value[i] = value[left] + 1; });
      streams[left].wait(streams[i].record());
    }
  }
  synchronize(cpu);
  CHECK(value[kStreams - 1] == kStreams * kRounds);
}

#if BRRR_COUNTS_MALLOC
TEST_CASE("ops on a queue allocate nothing in the steady state", "[streams]") {
  const testing::Caching on;
  const Stream stream(cpu);
  const StreamGuard guard(stream);
  Tensor x = zeros({64}), y = ones({64});
  const auto work = [&](int times) {
    Gate gate;
    stream.enqueue([&] { gate.wait(); });  // so that all wait at a time
    const testing::MallocCount count;
    for (int i = 0; i < times; ++i) {
      add_(x, y);
      mul_(x, 0.5);
    }
    gate.open = true;
    stream.synchronize();
    return count.calls();
  };
  work(200);
  CHECK(work(200) == 0);
  CHECK(work(100) == 0);
}
#endif

TEST_CASE("what a queue skips after a failure is given back", "[streams]") {
  const std::int64_t before = memory_stats(cpu).live;
  {
    const Stream stream(cpu);
    const StreamGuard guard(stream);
    Tensor x = ones({100});
    stream.synchronize();
    stream.enqueue([] { throw Error("broke"); });
    const Tensor y = add(x, x);
    CHECK_THROWS_WITH(stream.synchronize(), "broke");
    add_(x, 1);
    CHECK(to_vector<float>(x)[99] == 2);
  }
  CHECK(memory_stats(cpu).live == before);
}

TEST_CASE("draws on a queue and steps on another stream keep their order", "[streams]") {
  manual_seed(3);
  const std::vector<float> first = to_vector<float>(rand({64}));
  next_random_step(cpu);
  const std::vector<float> second = to_vector<float>(rand({64}));
  manual_seed(3);
  const Stream stream(cpu);
  Gate gate;
  Tensor late, later;
  {
    const StreamGuard guard(stream);
    stream.enqueue([&] { gate.wait(); });
    late = rand({64});
  }
  std::thread opener([&] {
    std::this_thread::sleep_for(5ms);
    gate.open = true;
  });
  next_random_step(cpu);  // must not overtake the draw
  opener.join();
  {
    const StreamGuard guard(stream);
    later = rand({64});
  }
  stream.synchronize();
  CHECK(to_vector<float>(late) == first);
  CHECK(to_vector<float>(later) == second);
}
