// Compiled steps on the fake driver, which runs a graph's nodes in any order that its edges allow:
// an edge that is missing shows.
#include <exception>
#include <optional>
#include <random>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/graph/cuda_boundary_copies.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"
#include "tests/harness/memory_checks.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

// A driver with kernels. All that is declared after it in a scope is freed before its last checks.
struct Driver {
  const NoDiskCache off;
  FakeCuda fake;

  explicit Driver(std::uint64_t seed = 9)
      : fake({.capacity = 256 * kMiB, .seed = seed, .with_nvrtc = true}) {
    define_kernels(fake);
  }
  ~Driver() {
    if (std::uncaught_exceptions() > 0) return;
    synchronize(gpu);
    CHECK(memory_stats(gpu).live == 0);
  }
};

Tensor counted(std::int64_t n, Device device, float step) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = step * static_cast<float>(static_cast<int>(i * 5 % 17) - 8);
  return tensor(values, {n}, device);
}

// Sums and products with numbers of what is there, in a random order; some are written over older
// values, some to tensors from outside. The same seed makes the same step on every device.
struct RandomStep {
  std::uint64_t seed;
  int calls;
  std::vector<Tensor> outside;

  RandomStep(std::uint64_t s, int n, Device device) : seed(s), calls(n) {
    for (int i = 0; i < 3; ++i) outside.push_back(counted(40, device, 0.25f * (i + 1)));
  }
  std::vector<Tensor> operator()(const Tensor& x) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<Tensor> values = {x};
    values.insert(values.end(), outside.begin(), outside.end());
    for (int i = 0; i < calls; ++i) {
      const Tensor a = values[below(values.size())], b = values[below(values.size())];
      switch (below(6)) {
        case 0: copy_(outside[below(3)], mul(a, 0.5)); break;
        case 1: {
          Tensor target = values[below(values.size())];
          if (TensorImpl::of(target) != TensorImpl::of(x)) copy_(target, add(a, b));
          break;
        }
        case 2: values.push_back(mul(a, 0.75)); break;
        default: values.push_back(mul(add(a, b), 0.5)); break;
      }
    }
    return {values.back(), values[values.size() / 2]};
  }
};

std::vector<std::vector<float>> run(std::uint64_t seed, Device device, Mode mode) {
  RandomStep steps(seed, 30, device);
  auto step = compile([&](const Tensor& x) { return steps(x); }, {.mode = mode});
  std::vector<Tensor> kept;
  for (int i = 0; i < 5; ++i) {
    for (Tensor& result : step(counted(40, device, 1.0f + i))) kept.push_back(std::move(result));
  }
  kept.insert(kept.end(), steps.outside.begin(), steps.outside.end());
  std::vector<std::vector<float>> values;
  for (const Tensor& x : kept) values.push_back(to_vector<float>(x));
  return values;
}

}  // namespace

TEST_CASE("a captured graph has every edge that its data need", "[compile][cuda_compile]") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    const auto expected = run(seed, cpu, Mode::eager);
    CHECK(run(seed, cpu, Mode::graph) == expected);
    const Driver driver(seed + 1);
    CHECK(run(seed, gpu, Mode::graph) == expected);
  }
}

// A sum of masked products, and its gradient: masks are what a backward pass reads.
Tensor masked_sum(const Tensor& w, const Tensor& g) {
  zero_grad(w);
  Tensor h;
  for (int i = 0; i < 12; ++i) {
    const Tensor part = w * (0.5 + i), kept = where(part >= i, part, 0.0);
    h = h.defined() ? h + kept : kept;
  }
  backward(h, g);
  return detach(h);
}

// Masks of the forward pass, on lanes in any order that the edges allow.
TEST_CASE("values are computed again in a captured graph", "[compile][cuda_compile][remat]") {
  const auto run = [](Mode mode, Remat remat) {
    const Tensor w = requires_grad_(counted(4096, gpu, 0.5f)), g = counted(4096, gpu, 0.25f);
    auto step = compile([&] { masked_sum(w, g); }, {.mode = mode, .remat = remat});
    std::vector<std::vector<float>> gradients;
    for (int call = 0; call < 4; ++call) {
      step();
      gradients.push_back(to_vector<float>(grad_of(w)));
    }
    const CompileReport report = step.report();
    return std::pair(gradients, report.entries.empty() ? 0 : report.entries[0].arena_bytes);
  };
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Driver driver(seed);
    const auto [expected, none] = run(Mode::eager, Remat::none());
    const auto [kept, baseline] = run(Mode::graph, Remat::none());
    const auto [again, cut] = run(Mode::graph, Remat::full());
    CHECK((kept == expected && again == expected));
    CHECK(cut < baseline);
  }
}

TEST_CASE("the planned peak is that of a captured graph's replay",
          "[compile][cuda_compile][remat]") {
  const auto check = [](Mode mode, Remat remat) {
    const Driver driver;
    const Tensor w = requires_grad_(counted(1 << 16, gpu, 0.5f)), g = counted(1 << 16, gpu, 0.25f);
    auto step = compile([&] { return masked_sum(w, g); }, {.mode = mode, .remat = remat});
    for (int call = 0; call < 2; ++call) step();  // the second one is captured
    const PlannedPeak peak = planned_peak(step, gpu);
    CHECK(peak.planned > 0);
    CHECK(peak.measured == peak.planned);
  };
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    check(mode, Remat::none());
    check(mode, Remat::full());
  }
}

TEST_CASE("the planned peak contains a captured graph's scratch and constants",
          "[compile][cuda_compile][remat]") {
  const testing::Caching on;
  const Driver driver;
  const Tensor w = requires_grad_(counted(1 << 20, gpu, 0.5f));
  auto step = compile([&] {
    zero_grad(w);
    const Tensor loss = sum(w);  // in parts, which are scratch
    backward(loss);
    return detach(loss);
  });
  for (int call = 0; call < 2; ++call) step();
  const CompiledEntry entry = step.report().entries.at(0);
  CHECK(entry.scratch_bytes > 0);
  CHECK(static_cast<std::size_t>(memory_stats(gpu).captured) == entry.scratch_bytes);
  CHECK(entry.constant_bytes > 0);
  CHECK(entry.result_bytes == 4);
  const PlannedPeak peak = planned_peak(step, gpu);
  CHECK(peak.measured == peak.planned);
  CHECK(memory_stats(gpu).captured == 0);
}

// Kernels choose how to load by the address, so a copy of an argument has the address's phase.
TEST_CASE("an argument is copied to an address of the same phase", "[compile][cuda_compile]") {
  const Driver driver;
  auto step = compile([](const Tensor& x) { return mul(add(x, x), 0.5); });
  const Tensor all = counted(48, gpu, 1.5f);
  const std::vector<float> expected = to_vector<float>(all);
  for (int call = 0; call < 4; ++call) {
    for (std::int64_t first : {0, 1, 3, 5}) {  // 5 has the phase of 1
      const std::vector<float> part(expected.begin() + first, expected.begin() + first + 40);
      CHECK(to_vector<float>(step(slice(all, 0, first, first + 40))) == part);
    }
  }
  const CompileReport report = step.report();
  REQUIRE(report.entries.size() == 3);
  CHECK(report.entries[1].reason ==
        "argument 0 starts 4 bytes past a multiple of 16, and started 0");
  CHECK(report.entries[1].calls == 8);
  CHECK(report.eager_calls == 0);
}

// Written arguments are copied back with the bytes between their elements, which may belong to
// another.
TEST_CASE("arguments that interleave and are both written are not replayed",
          "[compile][cuda_compile]") {
  const Driver driver;
  auto step = compile([](Tensor a, Tensor b) {
    sub_(a, b);
    sub_(b, a);
  });
  const Tensor all = reshape(counted(48, gpu, 1.5f), {8, 6}),
               want = reshape(counted(48, cpu, 1.5f), {8, 6});
  for (int call = 0; call < 3; ++call) {
    step(narrow(all, 1, 0, 3), narrow(all, 1, 3, 3));
    Tensor low = narrow(want, 1, 0, 3), high = narrow(want, 1, 3, 3);
    sub_(low, high);
    sub_(high, low);
    CHECK(to_vector<float>(all) == to_vector<float>(want));
  }
  CHECK(step.report().eager_reasons ==
        std::vector<std::string>{"arguments 0 and 1 share memory, and the step writes to 1"});
}

TEST_CASE("a fixed argument is read where it is", "[compile][cuda_compile]") {
  const Driver driver;
  const auto twice = [](const Tensor& x) { return mul(add(x, x), 0.5); };
  auto copied = compile(twice), in_place = compile(twice);
  Tensor slot = counted(48, gpu, 1);
  for (int call = 0; call < 4; ++call) {
    copy_(slot, counted(48, gpu, static_cast<float>(call)));
    const std::vector<float> expected = to_vector<float>(slot);
    CHECK(to_vector<float>(copied(slot)) == expected);
    CHECK(to_vector<float>(in_place(fixed(slot))) == expected);
  }
  CHECK(copied.report().entries[0].launches == 4);  // in, two calls, out
  CHECK(in_place.report().entries[0].launches == 3);
}

// Parts that are computed in place in a concatenation are written by calls of several lanes.
TEST_CASE("an argument that a step overwrites is copied back whole", "[compile][cuda_compile]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Driver driver(seed);
    // The calls after the write need memory; the copy of the argument is not free for them.
    const auto function = [](Tensor x, const Tensor& y) {
      copy_(x, add(x, y));
      Tensor z = mul(y, 0.5);
      for (int i = 0; i < 5; ++i) z = add(mul(z, 0.5), y);
      return z;
    };
    auto step = compile(function);
    Tensor x = counted(40, gpu, 1), expected = counted(40, cpu, 1);
    for (int call = 0; call < 4; ++call) {
      const float value = static_cast<float>(call + 1);
      const Tensor result = step(x, counted(40, gpu, value));
      CHECK(to_vector<float>(result) ==
            to_vector<float>(function(expected, counted(40, cpu, value))));
      CHECK(to_vector<float>(x) == to_vector<float>(expected));
    }
  }
}

TEST_CASE("a result is copied out after all of its parts are written", "[compile][cuda_compile]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Driver driver(seed);
    std::vector<Tensor> starts;
    for (int i = 0; i < 6; ++i) starts.push_back(counted(64, gpu, static_cast<float>(i + 1)));
    const auto chains = [&](const Tensor& x) {
      std::vector<Tensor> ends;
      for (Tensor end : starts) {
        for (int i = 0; i < 4; ++i) end = mul(add(end, x), 0.5);
        ends.push_back(end);
      }
      return cat(ends);
    };
    auto step = compile(chains);
    for (int call = 0; call < 6; ++call) {
      const Tensor x = counted(64, gpu, static_cast<float>(call));
      std::vector<float> expected;
      for (Tensor end : starts) {
        for (int i = 0; i < 4; ++i) end = mul(add(end, x), 0.5);
        const std::vector<float> part = to_vector<float>(end);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      CHECK(to_vector<float>(step(x)) == expected);
    }
    CHECK(step.report().entries[0].lanes == 6);
  }
}

TEST_CASE("a step that could not be captured is captured at the next call",
          "[compile][cuda_compile]") {
  for (const char* call : {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate",
                           "cuEventCreate", "cuStreamCreate", "cuGraphGetNodes", "cuGraphLaunch"}) {
    INFO(call);
    const Driver driver;
    const Tensor y = counted(40, gpu, 2);
    auto step = compile([&](const Tensor& x) {
      const Tensor side = mul(y, 2);
      return add(add(x, y), side);
    });
    const Tensor x = counted(40, gpu, 1);
    const std::vector<float> expected = to_vector<float>(step(x));
    cu::fail_call(call, 1, CUDA_ERROR_UNKNOWN);
    std::optional<Tensor> result;
    for (int i = 0; i < 3 && !result; ++i) {
      try {
        result = step(x);
      } catch (const CudaError& error) {
        CHECK(std::string(error.what()).starts_with("["));
        CHECK(std::string(error.what()).find(call) != std::string::npos);
      }
    }
    cu::clear_faults();
    REQUIRE(result);
    CHECK(to_vector<float>(*result) == expected);
    CHECK(to_vector<float>(step(x)) == expected);
    CHECK(step.report().entries[0].launches > 0);
  }
}

TEST_CASE("a step replayed on another stream comes after its last replay",
          "[compile][cuda_compile]") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Driver driver(seed);
    Tensor total = counted(40, gpu, 0);
    std::vector<Tensor> terms;
    for (int i = 0; i < 8; ++i) terms.push_back(counted(40, gpu, static_cast<float>(i)));
    auto step = compile([&](const Tensor& x) { copy_(total, mul(add(total, x), 0.5)); });
    const Stream a(gpu), b(gpu);
    const Event made = Stream::default_of(gpu).record();
    a.wait(made);
    b.wait(made);
    for (int i = 0; i < 8; ++i) {
      const StreamGuard guard(i % 3 == 0 ? a : i % 3 == 1 ? b : Stream::default_of(gpu));
      step(terms[static_cast<std::size_t>(i)]);
    }
    synchronize(gpu);
    Tensor expected = counted(40, cpu, 0);
    for (int i = 0; i < 8; ++i)
      copy_(expected, mul(add(expected, counted(40, cpu, static_cast<float>(i))), 0.5));
    CHECK(to_vector<float>(total) == to_vector<float>(expected));
  }
}

TEST_CASE("a step may be destroyed while its replays are under way", "[compile][cuda_compile]") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Driver driver(seed);
    const Tensor x = counted(4000, gpu, 1);
    const Stream stream(gpu);
    stream.wait(Stream::default_of(gpu).record());
    Tensor result;
    {
      const StreamGuard guard(stream);
      auto step = compile([&] { return mul(add(mul(x, 3), x), 0.5); });
      for (int i = 0; i < 4; ++i) result = step();
    }
    // Blocks allocated now must not be those that the graph still writes to.
    std::vector<Tensor> others;
    for (int i = 0; i < 8; ++i) others.push_back(counted(4000, gpu, 5));
    synchronize(gpu);
    CHECK(to_vector<float>(result) == to_vector<float>(mul(x, 2)));
    for (const Tensor& other : others)
      CHECK(to_vector<float>(other) == to_vector<float>(counted(4000, cpu, 5)));
  }
}

TEST_CASE("scratch of a destroyed step is freed after its replays on other streams",
          "[compile][cuda_compile]") {
  const testing::Caching on;
  Driver driver;
  const Tensor x = counted(1 << 20, gpu, 1);
  const Stream first(gpu), late(gpu);
  for (const Stream& stream : {first, late}) stream.wait(Stream::default_of(gpu).record());
  const auto handle = static_cast<cu::CudaStream&>(*StreamState::of(late)).handle;
  Tensor result;
  {
    auto step = compile([&] { return sum(x); });  // in parts, which are scratch
    {
      const StreamGuard guard(first);
      for (int call = 0; call < 3; ++call) result = step();
    }
    REQUIRE(step.report().entries[0].scratch_bytes > 0);
    first.synchronize();
    driver.fake.hold(handle, true);
    const StreamGuard guard(late);
    result = step();
  }
  std::vector<Tensor> others;
  {
    const StreamGuard guard(first);
    for (int i = 0; i < 8000; ++i) {
      others.push_back(make_tensor(i32, Dims{128}, gpu));
      cuda_runtime().fill_bytes(*StreamState::of(first), others.back().data(), 1, 512);
    }
  }
  first.synchronize();
  driver.fake.hold(handle, false);
  late.synchronize();
  const StreamGuard guard(late);
  CHECK(to_vector<float>(result) == to_vector<float>(sum(to(x, cpu))));
  bool whole = true;
  for (const Tensor& other : others)
    whole &= to_vector<std::int32_t>(other) == std::vector<std::int32_t>(128, 0x01010101);
  CHECK(whole);
}

TEST_CASE("the copies at a graph's edges compile", "[compile][kernels]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  for (const int architecture : {80, 90})
    CHECK_FALSE(jit::compile_to_cubin(graph::boundary_copies_source(), architecture).empty());
}
