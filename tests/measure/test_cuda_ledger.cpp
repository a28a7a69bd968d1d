// The overhead ledger of steps on the fake driver: how often it waits for the device.
#include "brrr/measure/ledger.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::HostClass;

TEST_CASE("the ledger of eager CUDA work waits before launches would", "[ledger]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true});
  const Tensor x = zeros({8}, {.device = cuda(0)});
  std::int64_t queued = 0, most_queued = 0, steps = 0;
  long waits = 0;
  const auto step = [&] {
    const long now = cu::call_count("cuStreamSynchronize");
    queued = now == waits ? queued + 5 : 5;
    waits = now;
    most_queued = std::max(most_queued, queued);
    for (int i = 0; i < 5; ++i) relu(x);
    ++steps;
  };
  struct Counting {
    ~Counting() { cu::count_calls(false); }
  } const counting;
  step();
  const measure::Ledger ledger =
      measure::host_ledger(cuda(0),
                           [&] {
                             if (steps == 4)
                               cu::count_calls(true);  // after the ledger has counted launches
                             step();
                           },
                           {.seconds = 0.3});
  CHECK(ledger.device == cuda(0));
  CHECK(steps > 200);
  CHECK(waits > 0);
  CHECK(most_queued <= 505);
  CHECK(ledger.samples > 5);
  CHECK(ledger[HostClass::dispatch].share > 0);
  synchronize(cuda(0));
}
