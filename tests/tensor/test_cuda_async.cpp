// Asynchronous copies and pinned memory on the fake driver, which runs nothing before the host
// waits: early reads and early reuse become visible.
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"
#include "tests/harness/errors_expected.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::testing;

namespace {

constexpr std::int64_t kLarge = 100000;  // elements: too many bytes for a slot of small staging

Tensor counted(int first, std::int64_t n = kLarge) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return tensor(values, {n});
}

bool counts_from(const Tensor& x, int first) {
  return to_vector<std::int32_t>(x) == to_vector<std::int32_t>(counted(first, x.numel()));
}

void overwrite(const Tensor& x, int value) {
  std::fill_n(x.data<std::int32_t>(), x.numel(), value);
}

// Calls that make the host wait, while this lives.
class Waits {
 public:
  Waits() { cu::count_calls(true); }
  ~Waits() { cu::count_calls(false); }
  long count() const {
    long n = 0;
    for (const auto& [call, times] : cu::call_counts())
      n += call.find("Synchronize") != std::string_view::npos ? times : 0;
    return n;
  }
};

}  // namespace

TEST_CASE("a copy from pinned memory waits for nothing and reads in its stream's order",
          "[cuda_async]") {
  FakeCuda fake;
  const Tensor x = pin_memory(counted(0));
  CHECK(is_pinned(x));
  CHECK(TensorImpl::of(pin_memory(x)) == TensorImpl::of(x));
  CHECK_FALSE(is_pinned(counted(0)));
  Tensor y;
  {
    const Waits waits;
    y = to(x, gpu, Async::yes);
    CHECK(waits.count() == 0);
  }
  CHECK(y.device() == gpu);
  CHECK(fake.pending() > 0);
  overwrite(x, 7);  // what the caller promised not to do: the copy has not read yet
  CHECK(to_vector<std::int32_t>(y) == std::vector<std::int32_t>(kLarge, 7));
  CHECK(counts_from(to(pin_memory(counted(3)), gpu), 3));  // without Async it has, at return
}

TEST_CASE("pageable memory is staged: it may change at once", "[cuda_async]") {
  FakeCuda fake;
  for (const std::int64_t n : {std::int64_t{10}, kLarge}) {
    Tensor x = counted(5, n);
    const Waits waits;
    const Tensor y = to(x, gpu, Async::yes);
    CHECK(waits.count() == 0);
    CHECK(fake.pending() > 0);
    overwrite(x, 7);
    CHECK(counts_from(y, 5));
  }
  Tensor transposed = transpose(reshape(counted(0, 6), {2, 3}), 0, 1);
  CHECK(to_vector<std::int32_t>(to(transposed, gpu, Async::yes)) ==
        std::vector<std::int32_t>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("a copy to the host arrives in pinned memory when the stream has got there",
          "[cuda_async]") {
  FakeCuda fake;
  const Tensor there = to(counted(1), gpu);
  synchronize(gpu);
  Tensor here;
  {
    const Waits waits;
    here = to(there, cpu, Async::yes);
    CHECK(waits.count() == 0);
  }
  CHECK(here.device() == cpu);
  CHECK(is_pinned(here));
  overwrite(here, -1);
  CHECK(fake.pending() > 0);
  CHECK(here.data<std::int32_t>()[0] == -1);
  const Event done = Stream::current(gpu).record();
  done.synchronize();
  CHECK(counts_from(here, 1));
  CHECK_FALSE(is_pinned(to(there, cpu)));

  // The same memory again, by copy_bytes.
  const Tensor other = to(counted(9), gpu);
  {
    const Waits waits;
    copy_bytes(here, other, Async::yes);
    CHECK(waits.count() == 0);
  }
  synchronize(gpu);
  CHECK(counts_from(here, 9));
}

TEST_CASE("pinned memory outlives its tensor while a copy uses it", "[cuda_async]") {
  const Caching caching;
  for (int seed = 0; seed < 20; ++seed) {
    FakeCuda fake({.seed = static_cast<std::uint64_t>(seed)});
    Tensor y;
    const void* memory;
    {
      const Tensor x = pin_memory(counted(2));
      memory = x.data();
      y = to(x, gpu, Async::yes);
    }
    {
      const Tensor second = pin_memory(counted(50));
      CHECK(second.data() != memory);
      CHECK(counts_from(y, 2));  // waits
    }
    synchronize(gpu);
    const Tensor a = pin_memory(counted(0)), b = pin_memory(counted(0));
    CHECK((a.data() == memory || b.data() == memory));  // taken again when the copy is done

    // A result that nobody waits for is not written over somebody else's tensor.
    to(y, cpu, Async::yes);
    const Tensor later = pin_memory(counted(60));
    fake.run_all();
    CHECK(counts_from(later, 60));
  }
}

TEST_CASE("an asynchronous copy is in the order of the current stream", "[cuda_async]") {
  for (int seed = 0; seed < 20; ++seed) {
    FakeCuda fake({.seed = static_cast<std::uint64_t>(seed)});
    const Tensor x = pin_memory(counted(4));
    const Stream copies(gpu);
    Tensor y, back;
    {
      StreamGuard guard(copies);
      y = to(x, gpu, Async::yes);
    }
    Stream::default_of(gpu).wait(copies.record());
    back = to(y, cpu, Async::yes);  // on the default stream, after the event
    Stream::default_of(gpu).synchronize();
    CHECK(counts_from(back, 4));
  }
}

TEST_CASE("moving with another type", "[cuda_async]") {
  FakeCuda fake;
  const Tensor x = counted(0, 10);
  CHECK(TensorImpl::of(to(x, cpu, i32)) == TensorImpl::of(x));
  CHECK(to(x, cpu, f64).dtype() == f64);
  const Tensor y = to(cast(x, f64), gpu, i32);  // the smaller type travels
  CHECK(y.dtype() == i32);
  CHECK(y.device() == gpu);
  CHECK(counts_from(y, 0));
  const Tensor shadow = to(meta({2}), gpu, f16);
  CHECK(shadow.is_meta());
  CHECK(shadow.device() == gpu);
  CHECK(shadow.dtype() == f16);
}

TEST_CASE("while a stream is captured, pinned memory leaves the driver in peace", "[cuda_async]") {
  const Caching caching;
  FakeCuda fake;
  Tensor y = to(counted(0), gpu);
  synchronize(gpu);
  auto& stream = static_cast<cu::CudaStream&>(*StreamState::of(Stream::default_of(gpu)));
  cu::CapturePool pool(*stream.on);
  const Stream other(gpu);
  const void* memory;
  Tensor kept;
  {
    StreamGuard guard(other);
    const Tensor x = pin_memory(counted(8));
    memory = x.data();
    kept = to(x, gpu, Async::yes);
    cu::begin_capture(pool, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }  // x goes
  const Tensor second = pin_memory(counted(9));
  CHECK(second.data() != memory);
  BRRR_CUDA(cuGraphDestroy, cu::end_capture(pool, stream));
  Stream::default_of(gpu).wait(other.record());
  CHECK(counts_from(kept, 8));
  synchronize(gpu);
  const Tensor third = pin_memory(counted(9));
  CHECK(third.data() == memory);
}

TEST_CASE("pinned memory is cached, freed at once in pass-through, and retried when it runs out",
          "[cuda_async]") {
  FakeCuda fake;
  const std::int64_t bytes[] = {4 * static_cast<std::int64_t>(kMiB)};
  {
    const Caching caching;
    const void* memory = make_pinned_tensor(boolean, bytes).data();
    CHECK(fake.counts().pinned == 1);
    CHECK(make_pinned_tensor(boolean, bytes).data() == memory);
    empty_cache(gpu);
    CHECK(fake.counts().pinned == 0);
  }
  {
    const PassThrough direct;
    {
      const Tensor one = make_pinned_tensor(boolean, bytes),
                   other = make_pinned_tensor(boolean, bytes);
      CHECK(fake.counts().pinned == 2);
    }
    CHECK(fake.counts().pinned == 0);
  }
  cu::fail_call("cuMemAllocHost", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(make_pinned_tensor(boolean, bytes).numel() == bytes[0]);
  cu::clear_faults();
  empty_cache(gpu);
  const std::int64_t too_many[] = {std::int64_t{1} << 45};
  CHECK(test::error_of([&] { make_pinned_tensor(boolean, too_many); }) ==
        "[allocate] out of pinned memory: requested 35184372088832 bytes, in use 0, cached 0");
  CHECK(memory_stats(gpu).reserved == 0);
}

TEST_CASE("pinned memory that lives keeps the runtime up; misuse is named", "[cuda_async]") {
  {
    FakeCuda fake;
    Tensor x = pin_memory(counted(0, 4));
    CHECK(test::error_of([] { cu::shut_down(); }) ==
          "[shut_down] expected no live storage in pinned memory, got 16 bytes");
    CHECK(test::error_of([&] { pin_memory(to(x, gpu)); }) ==
          "[pin_memory] expected a tensor on the CPU, got i32[4] on cuda:0");
    CHECK(test::error_of([] { pin_memory(meta({2})); }).starts_with("[pin_memory]"));
    CHECK(test::error_of([] { pin_memory(Tensor()); }).starts_with("[pin_memory]"));
    CHECK(make_pinned_tensor(f32, Dims{0, 3}).numel() == 0);
    CHECK(test::error_of([] { make_pinned_tensor(f32, Dims{-1}); }).find("-1") !=
          std::string::npos);
    x = {};
    empty_cache(gpu);
    CHECK(fake.counts().pinned == 1);  // the staging
  }
  if (!cuda_is_available()) {
    CHECK(test::error_of([] {
            pin_memory(counted(0, 4));
          }).starts_with("[pin_memory] expected a CUDA device, got none"));
    CHECK_FALSE(is_pinned(counted(0, 4)));
  }
}
