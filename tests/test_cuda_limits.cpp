// The bare launch that benchmarks hold an op against, on a fake device.
#include "measure/limits.h"
#include "ops/functions.h"
#include "tensor/cuda_api.h"
#include "tensor/error.h"
#include "tensor/stream.h"
#include "tests/catch.h"
#include "tests/fake_cuda.h"

using namespace brrr;

TEST_CASE("a bare launch repeats the kernel of an op with its arguments", "[cuda_limits]") {
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
  constexpr measure::Sampling kShort{.samples = 5, .sample_seconds = 1e-5, .budget_seconds = 0.1};
  {
    const Tensor a = empty({100}, {.device = cuda(0)}), b = empty_like(a);
    int calls = 0;
    const auto timing = measure::bare_launch(
        cuda(0),
        [&] {
          ++calls;
          return add(a, b);
        },
        kShort);
    REQUIRE(timing);
    CHECK(timing->samples == 5);
    CHECK(timing->median > 0);
    CHECK(calls == 2);  // all other launches were bare
    CHECK(seen->launches > 5);
    CHECK(seen->a == a.data());
    CHECK(seen->count == 100);

    // Nothing, and more than one kernel.
    CHECK_FALSE(measure::bare_launch(
        cuda(0),
        [&] {
          return view(a, {10, 10});
        },
        kShort));
    CHECK_FALSE(measure::bare_launch(
        cuda(0), [&] { return add(add(a, b), b); }, kShort));

    // An op that fails leaves a stream that works.
    const auto breaks = [&, call = 0]() mutable {
      if (++call == 2) fail("[test] expected to be captured");
      return a;
    };
    CHECK_THROWS_WITH(measure::bare_launch(cuda(0), breaks, kShort),
                      "[test] expected to be captured");
    const long before = seen->launches;
    add(a, b);
    synchronize(cuda(0));
    CHECK(seen->launches == before + 1);
    CHECK(fake.counts().graphs == 0);
  }
  CHECK(fake.problem() == "");
}
