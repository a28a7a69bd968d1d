// The overhead ledger: of given stacks, of known steps, and what it says where it is incomplete.
#include "brrr/measure/ledger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/tensor/measure_library.h"
#include "brrr/tensor/sanitizers.h"
#include "tests/harness/catch.h"
#include "tests/harness/own_code.h"
#include <brrr/brrr.h>

using namespace brrr;
using Catch::Contains;
using measure::Frame;
using measure::HostClass;
using measure::HostProfile;
using measure::Ledger;

namespace {

// Frames by the names and modules of a stack, innermost first: "brrr::add@libbrrr.so".
class Profile {
 public:
  Profile& add(std::int64_t ns, std::int64_t samples, const std::vector<std::string>& stack,
               bool complete = true) {
    HostProfile::Stack added{.frames = {}, .ns = ns, .samples = samples, .complete = complete};
    for (const std::string& each : stack) {
      const std::size_t at = each.find('@');
      added.frames.push_back(static_cast<std::uint32_t>(profile.frames.size()));
      profile.frames.push_back({.function = each.substr(0, at),
                                .module = at == each.npos ? "libbrrr.so.0" : each.substr(at + 1),
                                .named = each.find('+') == each.npos});
    }
    profile.stacks.push_back(std::move(added));
    return *this;
  }

  HostProfile profile;
};

HostClass class_of(const std::vector<std::string>& stack, bool complete = true) {
  const HostProfile profile = Profile().add(1, 1, stack, complete).profile;
  return profile.class_of(profile.stacks[0]);
}

measure::Timing timing(double seconds) { return {.median = seconds, .samples = 25}; }

}  // namespace

TEST_CASE("every name of the ledger's table is in the program", "[ledger]") {
  measure::LoadedCode code;
  std::set<std::string> names;
  for (const auto address : {reinterpret_cast<std::uintptr_t>(&measure::host_ledger),
                             reinterpret_cast<std::uintptr_t>(&open_measure_library)}) {
    const auto functions = code.functions_near(address);
    names.insert(functions.begin(), functions.end());
  }
  REQUIRE(names.size() > 1000);
  for (const measure::KnownName& known : measure::known_names()) {
    const std::string name = known.name, inside = name + "::";
    if (name == "brrr::cli") continue;  // of the program brrr
    INFO(name);
    const auto next = names.lower_bound(inside);
    CHECK((names.contains(name) || (next != names.end() && next->starts_with(inside))));
  }
}

TEST_CASE("no name is twice in the ledger's table", "[ledger]") {
  std::set<std::string> names;
  for (const measure::KnownName& known : measure::known_names())
    CHECK(names.insert(known.name).second);
}

TEST_CASE("the innermost known frame gives a sample its class", "[ledger]") {
  CHECK(class_of({"brrr::add", "main@program"}) == HostClass::dispatch);
  CHECK(class_of({"brrr::infer::matmul", "brrr::run_cpu"}) == HostClass::shapes);
  CHECK(class_of({"memmove@libc.so.6", "brrr::on_cpu::copy", "brrr::run_cpu"}) ==
        HostClass::kernels);
  CHECK(class_of({"std::vector::push_back", "brrr::autograd::record", "brrr::add"}) ==
        HostClass::autograd);
  CHECK(class_of({"malloc@libc.so.6", "brrr::Tensor::Tensor"}) == HostClass::dispatch);
  CHECK(class_of({"brrr::cpu_memory::allocate", "brrr::new_storage"}) == HostClass::allocation);
  CHECK(class_of({"brrr::nn::Linear::forward", "brrr::cli::Toy::loss"}) == HostClass::optimizer);
  CHECK(class_of({"brrr::cli::Toy::loss"}) == HostClass::user);
  CHECK(class_of({"brrr_kernel_17@kernel.so", "brrr::graph::ListExecutor::run"}) ==
        HostClass::kernels);
  CHECK(class_of({"brrr::graph::ListExecutor::run"}) == HostClass::launch);
  // A longer name counts, and only whole names do.
  CHECK(class_of({"brrr::core::run_chunks", "brrr::on_cpu::matmul"}) == HostClass::waiting);
  CHECK(class_of({"brrr::core::run_chunks_of", "brrr::on_cpu::matmul"}) == HostClass::dispatch);
  CHECK(class_of({"brrrr::add@program"}) == HostClass::user);
  // The user's code, called by the library or not.
  CHECK(class_of({"sin@libm.so.6", "loss@program", "brrr::backward"}) == HostClass::user);
  CHECK(class_of({"clock_gettime@[vdso]"}) == HostClass::user);
#if BRRR_HAS_CUDA
  CHECK(class_of({"libcuda.so.1+0x10@libcuda.so.1", "cuLaunchKernel@libcuda.so.1",
                  "brrr::on_cuda::pointwise", "brrr::run_cuda"}) == HostClass::launch);
  CHECK(class_of({"libcuda.so.1+0x10@libcuda.so.1", "brrr::cu::CudaStream::synchronize"}) ==
        HostClass::waiting);
  CHECK(class_of({"cuMemAllocAsync@libcuda.so.1", "brrr::cu::Allocator::take"}) ==
        HostClass::allocation);
#endif
}

TEST_CASE("a stack that is not followed has the class of its known frames or its module",
          "[ledger]") {
  CHECK(class_of({"brrr::on_cpu::beyond"}, false) == HostClass::kernels);
  CHECK(class_of({"sgemm_kernel@libopenblas.so.0"}, false) == HostClass::kernels);
  CHECK(class_of({"libcuda.so.1+0x7@libcuda.so.1"}, false) == HostClass::launch);
  CHECK(class_of({"libfoo.so+0x7@libfoo.so"}, false) == HostClass::other);
  CHECK(class_of({"memcpy@libc.so.6"}, false) == HostClass::other);
}

TEST_CASE("the ledger adds stacks up by class", "[ledger]") {
  HostProfile profile = Profile()
                            .add(6'000'000, 60, {"brrr::on_cpu::matmul", "brrr::run_cpu"})
                            .add(1'500'000, 15, {"brrr::run_cpu"})
                            .add(1'500'000, 15, {"brrr::add"})
                            .add(1'000'000, 10, {"loss@program"})
                            .profile;
  const Ledger ledger =
      measure::ledger_of(cpu, std::move(profile), 1000, timing(10e-6), timing(10.2e-6));
  CHECK(ledger.samples == 100);
  CHECK(ledger[HostClass::kernels].ns == Approx(6000));
  CHECK(ledger[HostClass::kernels].share == Approx(0.6));
  CHECK(ledger[HostClass::kernels].standard_error == Approx(std::sqrt(0.6 * 0.4 / 100)));
  CHECK(ledger[HostClass::dispatch].ns == Approx(3000));
  CHECK(ledger[HostClass::dispatch].samples == 30);
  CHECK(ledger[HostClass::user].ns == Approx(1000));
  CHECK(ledger[HostClass::launch].ns == 0);
  CHECK(ledger.sum_ns() == Approx(10000));
  CHECK(ledger.closure() == Approx(0).margin(1e-9));
  CHECK(ledger.perturbation() == Approx(0.02));
  CHECK(ledger.is_complete());
}

TEST_CASE("an incomplete ledger says what it lacks", "[ledger]") {
  HostProfile profile = Profile()
                            .add(9'000'000, 90, {"brrr::add"})
                            .add(500'000, 5, {"libcuda.so.1+0x7@libcuda.so.1"}, false)
                            .add(50'000, 1, {"libfoo.so+0x7@libfoo.so"}, false)
                            .add(450'000, 4, {"brrr::on_cpu::beyond"}, false)
                            .profile;
  profile.lost = 3;
  profile.without_symbols = {"libbrrr.so.0"};
  measure::Timing untraced = timing(9e-6);
  untraced.spread = 0.3;
  const Ledger ledger = measure::ledger_of(cpu, std::move(profile), 1000, untraced, timing(10e-6));
  CHECK_FALSE(ledger.is_complete());
  CHECK(
      ledger.missing ==
      std::vector<std::string>{
          "3 of 103 samples did not fit in memory",
          "libbrrr.so.0 has no symbol table (.symtab): its local functions have no names",
          "in 5.0 % of the time the stack could not be followed beyond libcuda.so.1",
          "the samples of the step's time are widely spread: the machine was busy with other work",
          "the classes add up to 111.1 % of the untraced step",
          "sampling made the step 11.1 % slower"});
  const Ledger none = measure::ledger_of(cpu, {}, 0, timing(1e-6), timing(1e-6));
  CHECK(none.missing == std::vector<std::string>{"no sample was taken: the step ran too briefly"});
}

// Stacks are whole where handlers run at once; a thread sanitizer calls them later.
#if !BRRR_TSAN
namespace {

Ledger quick_ledger(const std::function<void()>& step, Device device = cpu) {
  return measure::host_ledger(device, step, {.seconds = 1});
}

}  // namespace

TEST_CASE("a training step's time is in the classes of its work", "[ledger][timing]") {
  nn::MLP model({16, 16, 16, 16, 16});
  const Tensor x = randn({4, 16}), y = randn({4, 16});
  optim::Optimizer optimizer(model, optim::adam(1e-3));
  const Ledger ledger = quick_ledger([&] {
    optimizer.zero_grad();
    backward(nn::mse_loss(model(x), y));
    optimizer.step();
  });
  REQUIRE(ledger.samples > 20);
  CHECK(ledger[HostClass::kernels].share > 0.05);
  CHECK(ledger[HostClass::dispatch].share > 0.01);
  CHECK(ledger[HostClass::autograd].share > 0.01);
  CHECK(ledger[HostClass::allocation].share > 0);
  CHECK(ledger[HostClass::other].share < 0.02);
  CHECK(ledger[HostClass::waiting].share < 0.05);
  double shares = 0;
  for (const measure::LedgerLine& line : ledger.lines) shares += line.share;
  CHECK(shares == Approx(1));
  CHECK(ledger.profile.without_symbols.empty());
  CHECK(ledger.untraced.median > 0);
  CHECK(ledger.interruption_ns > 0);
  // Loose: other tests may run beside this one.
  CHECK(std::abs(ledger.closure()) < 0.7);
}

TEST_CASE("the user's own code has its class", "[ledger]") {
  const Tensor a = ones({1});
  const Ledger ledger = quick_ledger([&] {
    own_code::prepare_batch();
    add(a, a);
  });
  CHECK(ledger[HostClass::user].share > 0.9);
  CHECK(ledger[HostClass::user].ns > 40e3);
  REQUIRE_FALSE(ledger.code.empty());
  CHECK_THAT(ledger.code[0].place, Contains("own_code.h") || Contains("prepare_batch"));
  double of_lines = 0;
  for (const measure::CodeLine& line : ledger.code) of_lines += line.share;
  CHECK(of_lines == Approx(ledger[HostClass::user].share).margin(0.05));
}

TEST_CASE("a step that sleeps is sampled so rarely that its classes add up", "[ledger][timing]") {
  const Ledger ledger = quick_ledger([] { own_code::wait_for_batch(); });
  CHECK(ledger[HostClass::user].share > 0.95);
  REQUIRE_FALSE(ledger.code.empty());
  CHECK_THAT(ledger.code[0].place, Contains("wait_for_batch"));
  if (!ledger.untraced.disturbed()) CHECK(std::abs(ledger.closure()) < 0.03);
}

TEST_CASE("waiting for a queue is in its class", "[ledger]") {
  const Stream queue(cpu);
  const Ledger ledger = quick_ledger([&] {
    queue.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    queue.synchronize();
  });
  CHECK(ledger[HostClass::waiting].share > 0.8);
}

TEST_CASE("a replayed step's kernels are kernels, generated ones too", "[ledger][timing]") {
  Tensor x = ones({1 << 18});
  for (const Mode mode : {Mode::graph, Mode::fused}) {
    auto step = compile([x]() mutable { add_(mul_(cos_(x), 0.5), 0.25); },
                        {.mode = mode, .fallback = OnFallback::warn});
    for (int i = 0; i < 2; ++i) step();
    const Ledger ledger = quick_ledger([&] { step(); });
    INFO((mode == Mode::fused ? "fused" : "graph"));
    CHECK(ledger[HostClass::kernels].share + ledger[HostClass::waiting].share > 0.9);
    CHECK(ledger[HostClass::kernels].share > 0.4);
    CHECK(ledger[HostClass::autograd].share < 0.05);
  }
}

#endif
