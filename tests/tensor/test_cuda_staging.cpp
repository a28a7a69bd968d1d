// The pinned slots that copies of pageable memory pass through, on the fake driver: a copy never
// waits for another stream.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/host_copy.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"

using namespace brrr;
using namespace brrr::testing;
using namespace std::chrono_literals;

namespace {

// Streams on which nothing happens until `release`.
class Blocked {
 public:
  Blocked(FakeCuda& fake, int count) : fake_(fake) {
    for (int i = 0; i < count; ++i) streams_.emplace_back(gpu);
    hold(true);
  }
  ~Blocked() { release(); }
  void release() { hold(false); }
  const std::vector<Stream>& streams() const { return streams_; }

 private:
  void hold(bool on) {
    for (const Stream& stream : streams_)
      fake_.hold(static_cast<CUstream>(StreamState::of(stream)->native()), on);
  }
  FakeCuda& fake_;
  std::vector<Stream> streams_;
};

void round_trip(const Stream& stream, std::size_t count, int first) {
  const StreamGuard guard(stream);
  std::vector<int> in(count), out(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = first + static_cast<int>(i % 1000);
  const Tensor x = bytes_on_gpu(4 * count);
  copy_from_host(x, in.data());
  copy_to_host(out.data(), x);
  CHECK(in == out);
}

}  // namespace

TEST_CASE("copies continue while blocked streams use every slot", "[cuda_staging]") {
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{1} * kMiB, 6 * kMiB}) {
    INFO(bytes);
    const std::size_t count = bytes / 4;
    const bool small = bytes <= cu::Staging::kSmall;
    const int slots = small ? 16 : 4, of_a_copy = bytes > cu::Staging::kLarge ? 2 : 1;
    FakeCuda fake;
    {
      const std::vector<int> values(count, 5);
      std::vector<Tensor> waiting;
      const Stream other(gpu);
      Blocked blocked(fake, 2);
      // As many as there are slots, from both streams; none of them can be done.
      for (int i = 0; i < slots / of_a_copy; ++i) {
        const StreamGuard guard(blocked.streams()[static_cast<std::size_t>(i % 2)]);
        waiting.push_back(bytes_on_gpu(bytes));
        copy_from_host(waiting.back(), values.data());
      }
      const long pinned = fake.counts().pinned;
      for (int round = 0; round < 20; ++round) round_trip(other, count, round);
      round_trip(Stream::default_of(gpu), count, 7);
      // One slot a stream, whatever it copies.
      CHECK(fake.counts().pinned <= pinned + 2);
      CHECK(fake.counts().pinned > pinned);
      blocked.release();
      std::vector<int> back(count);
      synchronize(gpu);
      for (const Tensor& x : waiting) {
        copy_to_host(back.data(), x);
        CHECK(back == values);
      }
      // Free slots are used again.
      const long grown = fake.counts().pinned;
      for (int round = 0; round < 20; ++round) round_trip(Stream(gpu), count, round);
      CHECK(fake.counts().pinned == grown);
    }
    synchronize(gpu);
    cu::shut_down();
    CHECK(fake.counts() == FakeCounts{});
  }
}

TEST_CASE("threads continue when other threads use all slots", "[cuda_staging]") {
  FakeCuda fake;
  {
    Blocked blocked(fake, 20);
    std::vector<std::thread> readers;  // each takes a slot and waits in it
    std::atomic<int> done{0};
    for (const Stream& stream : blocked.streams()) {
      readers.emplace_back([&done, stream] {
        const StreamGuard guard(stream);
        std::vector<int> out(16);
        copy_to_host(out.data(), bytes_on_gpu(64));
        ++done;
      });
    }
    std::this_thread::sleep_for(20ms);
    for (int round = 0; round < 5; ++round) round_trip(Stream::default_of(gpu), 256, round);
    CHECK(done == 0);
    blocked.release();
    for (std::thread& reader : readers) reader.join();
    CHECK(done == 20);
  }
  synchronize(gpu);
}
