// Evidence of steps on CUDA, on the fake driver: what is timed, and that times mean nothing there.
#include "brrr/measure/diagnose.h"
#include "brrr/measure/launch_times.h"
#include "tests/fake_cuda/cupti.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::Evidence;

namespace {

const measure::DiagnoseOptions kQuick{
    .sampling = {.samples = 5, .sample_seconds = 2e-4, .budget_seconds = 0.01}};

}  // namespace

TEST_CASE("a step on CUDA is timed by the host, synchronized and queued", "[diagnose]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const Tensor a = zeros({8, 8}, {.device = cuda(0)});
    const Evidence e = measure::gather(
        cuda(0), [&] { relu(matmul(a, a) + 1.0); }, kQuick);
    CHECK(e.device == cuda(0));
    CHECK(e.mode == Mode::eager);
    CHECK(e.cost.kernels == 3);
    CHECK(e.host);
    CHECK(e.queued);
    CHECK_FALSE(e.in_kernels);
    REQUIRE(e.gpu);
    CHECK(e.further_problems.empty());
    // A launch of each kernel, without the host's part.
    CHECK(e.cost.on_device.ps() <= e.cost.predicted.ps());
    CHECK(measure::shares_of(e).sum() == Approx(1));
    CHECK_FALSE(measure::judge(e).doubts.empty());
  }
  synchronize(cuda(0));
}

TEST_CASE("a replay on CUDA is diagnosed by its entry", "[diagnose][compile]") {
  const testing::Caching on;
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  {
    const Tensor x = zeros({1 << 12}, {.device = cuda(0)});
    // Four chains, which run side by side.
    auto step = compile([&] {
      std::vector<Tensor> ends;
      for (int chain = 0; chain < 4; ++chain) ends.push_back(x * (chain + 2.0) * 0.5 * 0.25);
      return ends;
    });
    for (int i = 0; i < 2; ++i) step();
    const CompiledEntry entry = step.report().entries.front();
    CHECK(entry.lanes == 4);
    const Evidence e = measure::gather(
        cuda(0), [&] { step(); }, kQuick);
    CHECK(e.mode == Mode::graph);
    CHECK(e.cost.kernels == entry.launches);
    CHECK(e.further_problems.empty());
    // All of the work at full rates, and what the longest chain grows by.
    const Roofline& roofline = e.cost.roofline;
    CHECK(roofline.bound.ps() > 0);
    CHECK(roofline.bound.overhead_ps == 0);
    CHECK(roofline.growing.ps() > 0);
    CHECK(roofline.growing.ps() <= e.cost.predicted.bandwidth_ps + e.cost.predicted.compute_ps + 1);
    CHECK(measure::shares_of(e).sum() == Approx(1));
  }
  synchronize(cuda(0));
}

TEST_CASE("spans of events are no evidence of idle time", "[diagnose][timeline]") {
  const testing::Caching on;
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  {
    const Tensor x = zeros({64}, {.device = cuda(0)});
    const auto timeline =
        measure::record_timeline(cuda(0), [&] { relu(x); }, {.steps = 2, .untraced_steps = 6});
    CHECK(timeline.source == "events");
    CHECK_FALSE(timeline.has_kernels());
  }
  synchronize(cuda(0));
}

#if BRRR_HAS_CUPTI

TEST_CASE("a timeline names who caused idle time, and times launches", "[diagnose][timeline]") {
  const testing::Caching on;
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  {
    const Tensor a = zeros({8}, {.device = cuda(0)});
    Tensor x = zeros({8}, {.device = cuda(0)});
    auto step = compile([&] { relu_(add_(mul_(x, a), a)); });
    for (int i = 0; i < 2; ++i) step();
    const auto record = [&](testing::FakeCuptiOptions options) {
      const testing::FakeCupti cupti(options);
      return measure::record_timeline(cuda(0), [&] { step(); }, {.steps = 2, .untraced_steps = 6});
    };
    const measure::Timeline timeline = record({});
    REQUIRE(timeline.has_kernels());
    Evidence e{.device = cuda(0), .mode = Mode::graph, .step = {.median = 1e-3}};
    measure::add_timeline(timeline, e);
    e.perturbation = 0;  // of the fake, nobody knows
    const measure::Diagnosis found = measure::judge(e);
    CHECK(found.unattributed.empty());
    REQUIRE(found.occupancy);
    REQUIRE_FALSE(found.occupancy->sources.empty());
    std::int64_t ns = 0;
    for (const measure::IdleSource& source : found.occupancy->sources) ns += source.ns;
    CHECK(ns == found.occupancy->wall_ns - found.occupancy->busy_ns);
    CHECK(ns + found.occupancy->busy_ns == found.occupancy->wall_ns);
    for (const std::optional<double>& seconds : measure::launch_seconds(timeline, 3))
      CHECK(seconds.has_value());

    // Records were lost: no verdict, and no causes.
    measure::add_timeline(record({.dropped = 12}), e);
    const measure::Diagnosis lost = measure::judge(e);
    CHECK_FALSE(lost.regime);
    CHECK_FALSE(lost.occupancy);
    CHECK(lost.unattributed == "the timeline is incomplete");
    CHECK(std::ranges::count(lost.doubts, "the timeline is incomplete: CUPTI dropped 12 records") ==
          1);
  }
  synchronize(cuda(0));
}

#endif
