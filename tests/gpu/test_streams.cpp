// Order of work on a real GPU: random schedules over several streams, with delays, events,
// cross-stream use and reuse of memory. Every value is checked on the device, so nothing but the
// events orders the work.
#include <algorithm>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "brrr/tensor/allocator.h"
#include "tests/gpu/delay.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

enum class Bug { none, waits_left_out };

// Tensors whose elements are all one known value, made, changed, read and dropped on random
// streams. Counts on the device how many elements were found to be something else.
class Schedule {
 public:
  Schedule(std::uint64_t seed, Bug bug) : random_(seed), bug_(bug) {
    streams_.push_back(Stream::default_of(kGpu));
    for (int i = 0; i < 3; ++i) streams_.emplace_back(kGpu);
    for (const Stream& stream : streams_) {
      const StreamGuard guard(stream);
      wrong_.push_back(zeros({}, {.dtype = i64, .device = kGpu}));
    }
  }

  std::int64_t run(int steps) {
    for (int i = 0; i < steps; ++i) {
      const int action = static_cast<int>(random_() % 14);
      if (items_.size() < 2 || action < 3) {
        create();
      } else if (action < 6) {
        derive(pick());
      } else if (action < 8) {
        write(pick());
      } else if (action < 11) {
        check(pick());
      } else if (action == 11 && random_() % 8 == 0) {
        read_back(pick());
      } else {
        drop();
      }
    }
    while (!items_.empty()) {
      check(items_.back());
      items_.pop_back();
    }
    std::int64_t wrong = host_wrong_;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const StreamGuard guard(streams_[s]);
      wrong += item<std::int64_t>(wrong_[s]);
    }
    synchronize(kGpu);
    return wrong;
  }

 private:
  struct Item {
    Tensor tensor;
    int value;
    Event written;
    std::vector<std::pair<Stream, Event>> touched;  // readers, and the event after each
  };

  Item& pick() { return items_[random_() % items_.size()]; }
  std::size_t choose() { return random_() % streams_.size(); }
  void maybe_delay() {
    if (random_() % 3 == 0) delay(static_cast<double>(20 + random_() % 130));
  }
  void wait(const Stream& on, const Event& event) {
    if (bug_ != Bug::waits_left_out) on.wait(event);
  }

  void create() {
    const Stream& on = streams_[choose()];
    const StreamGuard guard(on);
    maybe_delay();
    // Few sizes, so that blocks are reused; 64 x 64 is what matmul takes.
    const std::int64_t counts[] = {256, 4096, 4096, 100000, 1 << 20};
    const int value = ++next_value_;
    Tensor tensor = full({counts[random_() % 5]}, value, {.device = kGpu});
    items_.push_back({std::move(tensor), value, on.record(), {}});
  }

  void derive(Item& from) {
    const Stream& on = streams_[choose()];
    const StreamGuard guard(on);
    wait(on, from.written);
    maybe_delay();
    const Tensor& x = from.tensor;
    int value = from.value;
    Tensor y;
    switch (random_() % 8) {
      case 0:
        y = x + 1;
        ++value;
        break;
      case 1: y = slow_copy(x, 40); break;
      case 2: y = clone(x); break;
      case 3: y = slice(cat({x, x}), 0, 3, x.numel()); break;
      case 4: y = index_select(x, 0, arange(x.size(0), {.device = kGpu})); break;
      case 5: y = cast(cast(x, f64), f32); break;
      case 6: y = reshape(expand(max(x), {256}) * 1, {256}); break;
      default:
        y = x.numel() == 4096
                ? reshape(matmul(eye(64, {.device = kGpu}), view(x, {64, 64})), {4096})
                : where(gt(x, -1), x, 0);
    }
    from.touched.emplace_back(on, on.record());
    items_.push_back({contiguous(y), value, on.record(), {}});
  }

  void write(Item& item) {
    const Stream& on = streams_[choose()];
    const StreamGuard guard(on);
    wait(on, item.written);
    for (const auto& [who, event] : item.touched) wait(on, event);
    item.touched.clear();
    maybe_delay();
    if (random_() % 2) {
      item.tensor += 1;
      ++item.value;
    } else {
      item.value = ++next_value_;
      fill_(item.tensor, item.value);
    }
    item.written = on.record();
  }

  void check(Item& item) {
    const std::size_t s = choose();
    const Stream& on = streams_[s];
    const StreamGuard guard(on);
    wait(on, item.written);
    maybe_delay();
    wrong_[s] += sum(cast(ne(item.tensor, item.value), i64));
    item.touched.emplace_back(on, on.record());
  }

  void read_back(Item& item) {
    const Stream& on = streams_[choose()];
    const StreamGuard guard(on);
    wait(on, item.written);
    for (float got : to_vector<float>(item.tensor))
      host_wrong_ += got != static_cast<float>(item.value);
  }

  void drop() {
    std::swap(pick(), items_.back());
    items_.pop_back();
  }

  std::mt19937_64 random_;
  Bug bug_;
  std::vector<Stream> streams_;
  std::vector<Tensor> wrong_;  // one a stream, used on that stream only
  std::vector<Item> items_;
  int next_value_ = 0;
  std::int64_t host_wrong_ = 0;
};

}  // namespace

TEST_CASE("random schedules over four streams on CUDA read no stale value",
          "[gpu][runtime][streams]") {
  const Caching on;
  const std::int64_t live = memory_stats(kGpu).live;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::int64_t wrong = Schedule(seed, Bug::none).run(40);
    INFO("schedule " << seed << ": " << wrong << " wrong elements");
    CHECK(wrong == 0);
    if (seed % 50 == 49) empty_cache(kGpu);
  }
  CHECK(memory_stats(kGpu).live == live);
}

TEST_CASE("schedules without their waits on CUDA are found out", "[gpu][runtime][streams]") {
  const Caching on;
  int found = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    found += Schedule(seed, Bug::waits_left_out).run(40) != 0;
  CHECK(found > 5);
}

namespace {

// Drops an operand [n, n] of a call on another stream before the call has run.
void check_kept(const std::function<Tensor(const Tensor&)>& run, std::int64_t n,
                const Stream& other) {
  const Tensor value = full({n, n}, 3, {.device = kGpu});
  manual_seed(3);
  const Tensor expected = run(value);
  synchronize(kGpu);
  empty_cache(kGpu);

  Tensor x = clone(value);
  const void* place = x.data();
  synchronize(kGpu);
  manual_seed(3);
  synchronize(kGpu);
  Tensor y;
  {
    const StreamGuard guard(other);
    delay(3000);
    y = run(x);
  }
  x = Tensor();
  const Tensor reused = full({n, n}, 777, {.device = kGpu});
  const bool taken = reused.data() == place;
  synchronize(kGpu);
  CHECK_FALSE(taken);
  CHECK(same_bits(y, expected));
}

}  // namespace

// The block of an operand dropped while another stream still has to read it is not given out again.
TEST_CASE("every op on CUDA keeps what another stream still reads", "[gpu][runtime][streams]") {
  const Caching on;
  const Stream home = Stream::default_of(kGpu), other(kGpu);
  const std::int64_t n = 512;
  const Tensor index = arange(n, {.device = kGpu}), eye_n = eye(n, {.device = kGpu});
  const Tensor rows = expand(unsqueeze(index, 1), {n, n});
  static const Op plus_one =
      register_op(PointwiseOp{.name = "test_plus_one", .expression = "a + 1"});
  struct Case {
    const char* name;
    std::function<Tensor(const Tensor&)> run;
  };
  const Case cases[] = {
      {"add", [](const Tensor& x) { return x + 1; }},
      {"add of a transpose", [](const Tensor& x) { return x + transpose(x, 0, 1); }},
      {"sum", [](const Tensor& x) { return sum(x, {0}); }},
      {"max", [](const Tensor& x) { return max(x, {1}); }},
      {"argmax", [](const Tensor& x) { return argmax(x, 1); }},
      {"matmul", [&](const Tensor& x) { return matmul(x, eye_n); }},
      {"matmul, right", [&](const Tensor& x) { return matmul(eye_n, x); }},
      {"matmul with a vector", [](const Tensor& x) { return matmul(x, select(x, 0, 0)); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"layer_norm", [](const Tensor& x) { return layer_norm(x, 1); }},
      {"cast", [](const Tensor& x) { return cast(x, bf16); }},
      {"clone", [](const Tensor& x) { return clone(x); }},
      {"contiguous", [](const Tensor& x) { return contiguous(transpose(x, 0, 1)); }},
      {"where", [](const Tensor& x) { return where(gt(x, 0), x, 2); }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }},
      {"cat",
       [](const Tensor& x) {
         return cat({x, x}, 1);
       }},
      {"gather", [&](const Tensor& x) { return gather(x, 0, rows); }},
      {"index_select", [&](const Tensor& x) { return index_select(x, 0, index); }},
      {"embedding", [&](const Tensor& x) { return embedding(x, index); }},
      {"scatter_add, base", [&](const Tensor& x) { return scatter_add(x, 0, rows, eye_n); }},
      {"scatter_add, source", [&](const Tensor& x) { return scatter_add(eye_n, 0, rows, x); }},
      {"tril", [](const Tensor& x) { return tril(x); }},
      {"bernoulli", [](const Tensor& x) { return bernoulli(x * 0.125); }},
      {"registered expression", [](const Tensor& x) { return call_op(plus_one, {x}); }},
      {"registered kernel", [](const Tensor& x) { return slow_copy(x, 1); }},
      {"registered kernel of a transpose",
       [](const Tensor& x) { return slow_copy(transpose(x, 0, 1), 1); }},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    check_kept(c.run, n, other);
  }
}

TEST_CASE("memory made on one CUDA stream, used on another and dropped comes back",
          "[gpu][runtime][streams]") {
  const Caching on;
  const Stream other(kGpu);
  const std::int64_t n = 1 << 20;
  double total = 0;
  for (int i = 0; i < 20; ++i) {
    Tensor x = full({n}, i, {.device = kGpu});
    const Event written = Stream::default_of(kGpu).record();
    const StreamGuard guard(other);
    other.wait(written);
    delay(200);
    const Tensor y = sum(x);
    x = Tensor();
    total += item(y);
  }
  CHECK(total == 190.0 * static_cast<double>(n));
  synchronize(kGpu);
  // All of it is free by now, so more rounds ask the driver for nothing.
  const std::int64_t before = memory_stats(kGpu).system_allocations;
  for (int i = 0; i < 50; ++i) {
    Tensor x = full({n}, i, {.device = kGpu});
    const Event written = Stream::default_of(kGpu).record();
    {
      const StreamGuard guard(other);
      other.wait(written);
      const Tensor y = x + 1;
      x = Tensor();
      CHECK(item(select(y, 0, 5)) == i + 1);
    }
  }
  CHECK(memory_stats(kGpu).system_allocations <= before + 1);
}

TEST_CASE("streams and events of CUDA", "[gpu][runtime][streams]") {
  synchronize(kGpu);
  const Stream stream(kGpu);
  CHECK(stream.device() == kGpu);
  CHECK(Stream::current(kGpu) == Stream::default_of(kGpu));
  Event start(kGpu, true), end(kGpu, true), plain(kGpu);
  {
    const StreamGuard guard(stream);
    CHECK(Stream::current(kGpu) == stream);
    delay(1);  // compiled before it is timed
    stream.synchronize();
    CHECK(stream.idle());
    start.record(stream);
    delay(20000);
    end.record(stream);
  }
  CHECK_FALSE(stream.idle());
  CHECK_FALSE(end.done());
  CHECK(Stream::default_of(kGpu).idle());
  end.synchronize();
  CHECK(end.done());
  CHECK(stream.idle());
  CHECK(end.milliseconds_since(start) > 19.9);
  CHECK(end.milliseconds_since(start) < 1000);
  plain.record(stream);
  CHECK(error_of([&] { plain.milliseconds_since(start); }) ==
        "[event] expected two timed events, got one without time");
  CHECK(Event(kGpu).done());
}

TEST_CASE("host work on a CUDA stream runs in its order", "[gpu][runtime][streams]") {
  const Stream stream(kGpu), host(cpu);
  std::vector<int> order;
  const StreamGuard guard(stream);
  delay(5000);
  stream.enqueue([&] { order.push_back(1); });
  delay(2000);
  const Event event = stream.record();
  host.wait(event);
  host.enqueue([&] { order.push_back(2); });
  host.synchronize();
  CHECK(order == std::vector<int>{1, 2});

  stream.enqueue([] { fail("[test] a failure on the stream"); });
  CHECK(error_of([&] { stream.synchronize(); }) == "[test] a failure on the stream");
  stream.synchronize();
  CHECK(item(sum(ones({100}, {.device = kGpu}))) == 100);
}

TEST_CASE("a CUDA stream waits for a CPU queue", "[gpu][runtime][streams]") {
  const Stream stream(kGpu), host(cpu);
  std::vector<float> values(1000, 1.0f);
  Event filled(cpu);
  bool ready = false;
  host.enqueue([&] {
    for (volatile int i = 0; i < 3000000;) i = i + 1;
    ready = true;
  });
  filled.record(host);
  stream.wait(filled);
  const StreamGuard guard(stream);
  stream.enqueue([&] { values[0] = ready ? 5.0f : -1.0f; });
  stream.synchronize();
  CHECK(values[0] == 5.0f);
}
