// The batcher: the order of rows, the tensors of its slots, on the CPU and on the fake driver.
#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/catch.h"
#include "tests/harness/nn_reference.h"
#if BRRR_HAS_CUDA
#include "tests/fake_cuda/driver.h"
#endif

using namespace brrr;
using namespace brrr::test;

namespace {

// Row i holds i, 10 i and 100 i, and its target is i.
data::Dataset numbered(std::int64_t rows) {
  std::vector<float> inputs;
  std::vector<std::int64_t> targets;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (const int factor : {1, 10, 100}) inputs.push_back(static_cast<float>(factor * i));
    targets.push_back(i);
  }
  return data::make_dataset(tensor(inputs, {rows, 3}, cpu), tensor(targets, {rows}, cpu));
}

template <class T>
std::vector<T> on_host(const Tensor& x) {
  std::vector<T> values(static_cast<std::size_t>(x.numel()));
  copy_to_host(values.data(), x);
  return values;
}

// The rows of a batch; -1 where its inputs are not those of its targets.
std::vector<std::int64_t> rows_of(const data::Batch& batch) {
  std::vector<std::int64_t> rows = on_host<std::int64_t>(batch.targets);
  const std::vector<float> inputs = on_host<float>(batch.inputs);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t f = 0, factor = 1; f < 3; ++f, factor *= 10) {
      if (inputs[3 * i + f] != static_cast<float>(rows[i] * static_cast<std::int64_t>(factor))) {
        rows[i] = -1;
        break;
      }
    }
  }
  return rows;
}

using Rows = std::vector<std::vector<std::int64_t>>;

Rows batches_of(data::Batcher& batcher, int count) {
  Rows rows;
  for (int i = 0; i < count; ++i) rows.push_back(rows_of(batcher.next()));
  return rows;
}

}  // namespace

TEST_CASE("batcher: in order, epoch after epoch, without what fills no batch", "[data]") {
  for (const int slots : {2, 3, 5}) {
    data::Batcher batcher(numbered(11),
                          {.batch = 4, .device = cpu, .slots = slots, .shuffle = false});
    CHECK(batcher.batches_per_epoch() == 2);
    CHECK(batches_of(batcher, 5) ==
          Rows{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}});
    CHECK(batcher.given() == 5);
  }
}

TEST_CASE("batcher: each epoch has every row once, in an order that the seed fixes", "[data]") {
  const data::BatcherOptions options{.batch = 5, .device = cpu, .seed = 7};
  data::Batcher batcher(numbered(20), options);
  const Rows all = batches_of(batcher, 12);
  std::set<std::vector<std::int64_t>> orders;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> rows;
    for (std::size_t b = 0; b < 4; ++b) {
      rows.insert(rows.end(), all[epoch * 4 + b].begin(), all[epoch * 4 + b].end());
    }
    orders.insert(rows);
    std::ranges::sort(rows);
    std::vector<std::int64_t> every(20);
    std::iota(every.begin(), every.end(), 0);
    CHECK(rows == every);
  }
  CHECK(orders.size() == 3);

  SECTION("again the same, however many slots there are") {
    for (const int slots : {2, 4}) {
      data::Batcher again(numbered(20), {.batch = 5, .device = cpu, .slots = slots, .seed = 7});
      CHECK(batches_of(again, 12) == all);
    }
    data::Batcher other(numbered(20), {.batch = 5, .device = cpu, .seed = 8});
    CHECK(batches_of(other, 12) != all);
  }
  SECTION("and it resumes at any batch") {
    for (const std::int64_t start : {1, 4, 7}) {
      data::Batcher later(numbered(20), {.batch = 5, .device = cpu, .seed = 7, .start = start});
      CHECK(later.given() == start);
      CHECK(batches_of(later, static_cast<int>(12 - start)) ==
            Rows(all.begin() + start, all.end()));
    }
  }
}

TEST_CASE("batcher: a slot's tensors stay the same, and a tape knows that they were filled anew",
          "[data]") {
  data::Batcher batcher(numbered(12), {.batch = 4, .device = cpu, .slots = 3});
  std::vector<const TensorImpl*> first, second;
  std::vector<const void*> places;
  for (int i = 0; i < 3; ++i) {
    const data::Batch& batch = batcher.next();
    first.push_back(TensorImpl::of(batch.inputs));
    first.push_back(TensorImpl::of(batch.targets));
    places.push_back(batch.inputs.data());
  }
  CHECK(std::set(first.begin(), first.end()).size() == 6);
  for (int i = 0; i < 3; ++i) {
    const data::Batch& batch = batcher.next();
    second.push_back(TensorImpl::of(batch.inputs));
    second.push_back(TensorImpl::of(batch.targets));
    CHECK(batch.inputs.data() == places[static_cast<std::size_t>(i)]);
  }
  CHECK(first == second);

  const Tensor w = requires_grad_(ones({3}));
  const Tensor loss = sum(batcher.next().inputs * w);
  batcher.next();
  CHECK_FALSE(error_of([&] { backward(loss); }).empty());
}

TEST_CASE("batcher: what a slow stream still reads is not overwritten", "[data]") {
  data::Batcher batcher(numbered(64), {.batch = 4, .device = cpu, .shuffle = false});
  const Stream stream(cpu);
  const StreamGuard guard(stream);
  std::vector<std::vector<float>> seen(16, std::vector<float>(12));
  for (std::vector<float>& values : seen) {
    const Tensor inputs = batcher.next().inputs;
    stream.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    stream.enqueue([inputs, &values] {
      std::copy_n(static_cast<const float*>(inputs.data()), 12, values.begin());
    });
  }
  stream.synchronize();
  for (std::size_t i = 0; i < 16; ++i) CHECK(seen[i][0] == static_cast<float>(4 * i));
}

TEST_CASE("batcher: a failure on the stream that it waits for reaches the caller", "[data]") {
  const Stream stream(cpu);
  const StreamGuard guard(stream);
  data::Batcher batcher(numbered(8), {.batch = 2, .device = cpu});
  batcher.next();
  stream.enqueue([] { fail("[step] expected luck, got none"); });
  std::string text;
  for (int i = 0; i < 4 && text.empty(); ++i) text = error_of([&] { batcher.next(); });
  CHECK(text == "[step] expected luck, got none");
  CHECK(error_of([&] {
          for (int i = 0; i < 4; ++i) batcher.next();
        }) == "[batcher] expected no earlier failure, got one");
  CHECK(error_of([&] { stream.synchronize(); }) == "[step] expected luck, got none");
}

TEST_CASE("batcher: wrong settings", "[data]") {
  const auto error = [](const data::BatcherOptions& options) {
    return error_of([&] { data::Batcher batcher(numbered(8), options); });
  };
  CHECK(error({.batch = 9, .device = cpu}) ==
        "[batcher] expected a batch of 1 to the 8 rows of the dataset, got 9");
  CHECK_FALSE(error({.batch = 0, .device = cpu}).empty());
  CHECK(error({.batch = 2, .device = cpu, .slots = 1}) ==
        "[batcher] expected 2 to 1024 slots, got 1");
  CHECK_FALSE(error({.batch = 2, .device = cpu, .start = -1}).empty());
  CHECK_FALSE(error({.batch = 2, .device = cuda(15)}).empty());
}

#if BRRR_HAS_CUDA
namespace {

// Steps of a program that reads each batch with copies that the driver runs when it likes.
long wrong_batches(testing::FakeCuda& fake, int slots) {
  constexpr int kSteps = 24;
  std::vector<std::vector<std::int64_t>> seen(kSteps, std::vector<std::int64_t>(4));
  std::vector<Tensor> copies;
  {
    data::Batcher batcher(numbered(40),
                          {.batch = 4, .device = cuda(), .slots = slots, .shuffle = false});
    std::set<const void*> places;
    for (int step = 0; step < kSteps; ++step) {
      const data::Batch& batch = batcher.next();
      places.insert(batch.targets.data());
      copies.push_back(empty({4}, {i64, cuda()}));
      copy_bytes(copies.back(), batch.targets);  // as a kernel would
      fake.step(step % 3);
    }
    CHECK(places.size() == static_cast<std::size_t>(slots));
  }
  long wrong = 0;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<std::int64_t> rows =
        on_host<std::int64_t>(copies[static_cast<std::size_t>(step)]);
    for (std::int64_t i = 0; i < 4; ++i) {
      wrong += rows[static_cast<std::size_t>(i)] != (step * 4 + i) % 40;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("batcher: on a device, whatever the order in which its streams run", "[data][cuda]") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    testing::FakeCuda fake({.seed = seed});
    CHECK(wrong_batches(fake, 2 + static_cast<int>(seed % 3)) == 0);
  }
}

TEST_CASE("batcher: the test above sees a stream that does not wait", "[data][cuda]") {
  long wrong = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    testing::FakeCuda fake({.seed = seed});
    fake.ignore_waits(true);
    wrong += wrong_batches(fake, 2);
  }
  CHECK(wrong > 0);
}
#endif
