// Timelines of a real GPU: through CUPTI, where it can be used.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/measure/cupti_recorder.h"
#include "brrr/measure/timeline.h"
#include "brrr/nn/mlp.h"
#include "brrr/ops/functions.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::measure;
using brrr::testing::kGpu;

namespace {

std::string why_no_cupti() {
  item(zeros({1}, {.device = kGpu}));  // CUPTI needs a context
  std::string why;
  record_by_cupti(why);
  return why;
}

Timeline record(const std::function<void()>& step) {
  return record_timeline(kGpu, step, {.steps = 3, .untraced_steps = 10});
}

std::vector<DeviceSpan> kernels_of(const Timeline& timeline) {
  std::vector<DeviceSpan> kernels;
  for (const DeviceSpan& span : timeline.spans) {
    if (span.work == DeviceWork::kernel) kernels.push_back(span);
  }
  return kernels;
}

// What holds of every complete timeline.
void check_consistent(const Timeline& timeline) {
  for (const std::string& each : timeline.missing) INFO(each);
  CHECK(timeline.is_complete());
  CHECK(timeline.source.starts_with("CUPTI"));
  CHECK(timeline.steps.size() == 3);
  CHECK(timeline.busy_ns() > 0);
  CHECK(timeline.busy_ns() <= timeline.step_ns());
  std::map<int, std::int64_t> end;
  for (const DeviceSpan& span : timeline.spans) {
    INFO(span.name);
    CHECK(span.start_ns >= end[span.stream]);
    CHECK(span.end_ns >= span.start_ns);
    end[span.stream] = span.end_ns;
    REQUIRE(span.cause);
    // One clock: no kernel starts before the span that launches it, none ends after its step. The
    // device's clock is interpolated: within 20 us.
    CHECK(span.start_ns >= timeline.host[*span.cause].start_ns - 20'000);
    CHECK(span.end_ns <= timeline.steps.back().end_ns + 20'000);
  }
}

}  // namespace

TEST_CASE("CUPTI sees the kernels of eager ops, copies and waits", "[timeline]") {
  if (const std::string why = why_no_cupti(); !why.empty()) return testing::skip(why);
  const Tensor a = rand({1 << 20}, {.device = kGpu}), b = rand({1 << 20}, {.device = kGpu});
  const Timeline timeline = record([&] { item(sum(relu(a + b))); });
  check_consistent(timeline);
  const std::vector<DeviceSpan> kernels = kernels_of(timeline);
  REQUIRE(kernels.size() >= 9);
  std::vector<std::string> ops;
  for (const DeviceSpan& kernel : kernels) {
    CHECK_FALSE(kernel.replayed);
    CHECK_FALSE(kernel.name.empty());
    if (ops.empty() || ops.back() != kernel.ops) ops.push_back(kernel.ops);
  }
  std::vector<std::string> wanted;
  for (int step = 0; step < 3; ++step)
    wanted.insert(wanted.end(), {"add", "relu", "sum", "cast"});  // item reads a double
  CHECK(ops == wanted);
  CHECK(std::ranges::count(timeline.spans, DeviceWork::copy, &DeviceSpan::work) == 3);
  CHECK(std::ranges::count(timeline.host, HostWork::launch, &HostSpan::work) >= 9);
  CHECK(std::ranges::count(timeline.host, HostWork::wait, &HostSpan::work) >= 6);
}

TEST_CASE("CUPTI sees each kernel of a replay, with its launch and ops", "[timeline]") {
  if (const std::string why = why_no_cupti(); !why.empty()) return testing::skip(why);
  const Tensor x = rand({256, 256}, {.device = kGpu}), w = rand({256, 256}, {.device = kGpu});
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    auto step = compile([&] { return relu(matmul(x, w) + 1.0) * 2.0; }, {.mode = mode});
    const Tensor before = step();
    const Timeline timeline = record([&] { step(); });
    check_consistent(timeline);
    const std::vector<DeviceSpan> kernels = kernels_of(timeline);
    CHECK(kernels.size() % 3 == 0);
    CHECK(kernels.size() >= 6);  // of a step one or more, and the copy of the result
    std::size_t known = 0;
    for (const DeviceSpan& kernel : kernels) {
      INFO(kernel.name << ": " << kernel.ops);
      CHECK(kernel.replayed);
      known += kernel.launch.has_value();
    }
    // All but the copy of the result.
    CHECK(known >= 3);
    CHECK(known + 3 == kernels.size());
    CHECK(std::ranges::any_of(kernels, [&](const DeviceSpan& kernel) {
      return kernel.ops.find(mode == Mode::graph ? "relu" : " + ") != std::string::npos;
    }));
    CHECK(testing::same_bits(step(), before));  // replays go on after the recording
  }
}

TEST_CASE("a training step is recorded on a GPU, and later steps go on", "[timeline]") {
  if (const std::string why = why_no_cupti(); !why.empty()) return testing::skip(why);
  nn::MLP model({256, 256, 256}, {.device = kGpu});
  const Tensor x = rand({64, 256}, {.device = kGpu});
  const Timeline timeline = record([&] { backward(sum(model(x))); });
  check_consistent(timeline);
  CHECK(std::ranges::any_of(timeline.host,
                            [](const HostSpan& span) { return span.where == "mlp.layers.1"; }));
  CHECK(std::isfinite(timeline.perturbation()));
  CHECK(record([&] { backward(sum(model(x))); }).is_complete());  // a second recording
}
