// bare_launches, the limit of benchmarks of ops and steps, on the fake driver.
#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"

using namespace brrr;

TEST_CASE("bare launches repeat the kernels of some work with their arguments", "[cuda_limits]") {
  testing::FakeCuda fake({.with_nvrtc = true});
  struct Seen {
    long launches = 0;
    const void* a = nullptr;
    std::int64_t count = 0;
  };
  auto seen = std::make_shared<Seen>();
  fake.define_kernel("add_f32", {8, 8, 8, 8}, [seen](const testing::FakeLaunch& launch) {
    ++seen->launches;
    seen->a = launch.argument<const void*>(1);
    seen->count = launch.argument<std::int64_t>(3);
  });
  {
    const Tensor a = empty({100}, {.device = cuda(0)}), b = empty_like(a);
    int calls = 0;
    const auto bare = measure::bare_launches(cuda(0), [&] {
      ++calls;
      add(a, b);
    });
    REQUIRE(bare);
    CHECK(bare->kernels == 1);
    CHECK(calls == 2);  // the second was captured
    synchronize(cuda(0));
    CHECK(seen->launches == 1);
    for (int i = 0; i < 5; ++i) bare->launch();
    synchronize(cuda(0));
    CHECK(calls == 2);
    CHECK(seen->launches == 6);
    CHECK(seen->a == a.data());
    CHECK(seen->count == 100);

    // Several, in their order: the second reads what the first wrote.
    const auto two = measure::bare_launches(cuda(0), [&] { add(add(b, b), b); });
    REQUIRE(two);
    CHECK(two->kernels == 2);
    two->launch();
    synchronize(cuda(0));
    CHECK(seen->a != b.data());

    // Nothing, and more than kernels.
    CHECK_FALSE(measure::bare_launches(cuda(0), [&] { view(a, {10, 10}); }));
    CHECK_FALSE(measure::bare_launches(cuda(0), [&] {
      add(a, b);
      BRRR_CUDA(cuMemsetD8Async, reinterpret_cast<CUdeviceptr>(a.data()), 0, a.bytes(),
                cu::current_stream(cuda(0)).handle);
    }));

    // An op that fails leaves a stream that works.
    const auto breaks = [&, call = 0]() mutable {
      if (++call == 2) fail("[test] expected to be captured");
    };
    CHECK_THROWS_WITH(measure::bare_launches(cuda(0), breaks), "[test] expected to be captured");
    const long before = seen->launches;
    add(a, b);
    synchronize(cuda(0));
    CHECK(seen->launches == before + 1);
  }
  CHECK(fake.counts().graphs == 0);
}
