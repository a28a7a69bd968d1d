// Compiled steps and devices, on the fake driver: mixed devices are refused, and one step may be
// called on both.
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("compile: what crosses devices is refused by name and line", "[compile]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  const Device there = cuda(0);
  const Tensor host = ones({3}), device = zeros({3}, {.device = there});
  const std::string cannot = "] cannot be part of the compiled function \"refused\": ";
  struct Refusal {
    const char* what;
    std::function<void(const Tensor& x)> does;
    std::string message;
  };
  const Refusal refusals[] = {
      {"to another device", [&](auto& x) { to(x, cpu); },
       "[to" + cannot + "it moves values between devices, which a trace cannot hold (at "},
      {"to another device and type", [&](auto& x) { to(x, cpu, f64); },
       "[to" + cannot + "it moves values between devices, which a trace cannot hold (at "},
      {"a copy from another device",
       [&](auto& x) {
         Tensor target = x;
         copy_(target, host);
       },
       "[copy_" + cannot + "it moves values between devices, which a trace cannot hold (at "},
      {"calls on two devices",
       [&](auto& x) {
         x + 1;
         host + 1;
       },
       "[add" + cannot + "it runs on cpu, and the step on cuda:0; a step has one device (at "},
      {"a read", [&](auto& x) { item(sum(x)); },
       "[item" + cannot + "it reads values, which a trace does not have (at "},
      {"another stream",
       [&](auto& x) {
         const StreamGuard guard{Stream(there)};
         x + 1;
       },
       "[add" + cannot + "it is called on another stream than the step; "},
      {"waiting for the device", [&](auto&) { synchronize(there); },
       "[synchronize" + cannot + "it orders work or needs it done, and a trace does none (at "},
  };
  for (const Refusal& each : refusals) {
    INFO(each.what);
    bool bad = true;
    auto step = compile(
        [&](const Tensor& x) {
          if (bad) each.does(x);
          return x * 2;
        },
        {.name = "refused"});
    const std::string text = error_of([&] { step(device); });
    CHECK_THAT(text, Catch::StartsWith(each.message) && Catch::Contains("test_cuda_devices.cpp:"));
    bad = false;
    for (int call = 0; call < 3; ++call) CHECK(step(device).device() == there);
    CHECK(step.report().entries[0].launches > 0);
  }
  CHECK(error_of([&] { compile([&](const Tensor& x) { return x + host; })(device); }) ==
        error_of([&] { device + host; }));
  synchronize(there);
}

TEST_CASE("compile: a step that is called on another device is compiled for it", "[compile]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  auto step = compile([](const Tensor& x) { return x * 2; });
  const Tensor host = ones({3}), device = to(host, cuda(0));
  for (int call = 0; call < 3; ++call) {
    CHECK(bits_of(step(host)) == bits_of(full({3}, 2)));
    CHECK(bits_of(to(step(device), cpu)) == bits_of(full({3}, 2)));
  }
  const CompileReport report = step.report();
  REQUIRE(report.entries.size() == 2);
  CHECK(report.entries[1].reason == "argument 0 is f32[3] on cuda:0, and was f32[3]");
  CHECK(report.entries[0].launches == 0);
  CHECK(report.entries[1].launches > 0);
  synchronize(cuda(0));
}
