// Generated CUDA kernels of many ops compile; errors of the compiler; the cache of cubins. Nothing
// here needs a GPU; without NVRTC there is nothing to do. Kernels of one op: test_cuda_texts.cpp.
#include <cstdlib>
#include <filesystem>

#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/catch.h"
#include "tests/jit_rows.h"
#include "tests/skip.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

namespace {

bool has_nvrtc() {
  const std::string problem = cu::open_library(cu::Library::nvrtc);
  if (!problem.empty()) brrr::testing::skip(problem);
  return problem.empty();
}

}  // namespace

TEST_CASE("specs of many ops are one kernel", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  SECTION("a chain shares the function of equal expressions") {
    KernelSpec spec;
    spec.name = "cos_cos";
    int x = spec.add_input(f32);
    for (int i = 0; i < 2; ++i) x = add_pointwise(spec, row_named("cos"), f32, f32, {x});
    spec.add_output(x, f32);
    spec.width = 4;
    const std::string text = render_cuda(spec);
    CHECK(text.find("cos(a)") == text.rfind("cos(a)"));
    CHECK_FALSE(compile_to_cubin(text, 90).empty());
  }
  SECTION("x * 2 + 1, over and over, needs no more registers") {
    KernelSpec spec;
    spec.name = "linear";
    int x = spec.add_input(f32);
    const int two = spec.add_scalar(f32), one = spec.add_scalar(f32);
    for (int i = 0; i < 64; ++i) {
      x = add_pointwise(spec, row_named("mul"), f32, f32, {x, two});
      x = add_pointwise(spec, row_named("add"), f32, f32, {x, one});
    }
    spec.add_output(x, f32);
    spec.width = 4;
    spec.unroll = 2;
    const auto resources = resources_of(compile_to_cubin(render_cuda(spec), 90));
    REQUIRE(resources.size() == 1);
    CHECK(resources[0].registers <= 32);
    CHECK(resources[0].local_bytes == 0);
  }
  SECTION("several outputs, halves rounded as if stored") {
    KernelSpec spec;
    spec.name = "two";
    spec.strict = true;
    const int x = spec.add_input(bf16), y = spec.add_input(bf16);
    const int product = add_pointwise(spec, row_named("mul"), bf16, bf16, {x, y});
    const int sum = add_pointwise(spec, row_named("add"), bf16, bf16, {product, x});
    const int test = add_pointwise(spec, row_named("gt"), bf16, bf16, {sum, y});
    spec.add_output(sum, bf16);
    spec.add_output(test, boolean);
    spec.width = 8;
    const std::string text = render_cuda(spec);
    CHECK(text.find("rounded<bf16>") != std::string::npos);
    CHECK_FALSE(compile_to_cubin(text, 90).empty());
  }
  SECTION("expressions before and after two reductions") {
    KernelSpec spec;
    spec.name = "deviation";
    spec.walk = Walk::rows;
    const int x = spec.add_input(f32);
    const int square = add_pointwise(spec, row_named("square"), f32, f32, {x});
    const int mean = add_reduction(spec, row_named("mean"), f32, x);
    const int mean_square = add_reduction(spec, row_named("mean"), f32, square);
    const int mean_squared = add_pointwise(spec, row_named("square"), f32, f32, {mean});
    const int variance =
        add_pointwise(spec, row_named("sub"), f32, f32, {mean_square, mean_squared});
    spec.add_output(mean, f32);
    spec.add_output(add_pointwise(spec, row_named("sqrt"), f32, f32, {variance}), f32);
    spec.width = 4;
    spec.lanes = 256;
    CHECK(partial_size(spec) == 8);
    CHECK_FALSE(compile_to_cubin(render_cuda(spec), 90).empty());
    spec.walk = Walk::columns;
    spec.lanes = 32;
    CHECK_FALSE(compile_to_cubin(render_cuda(spec), 80).empty());
  }
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("a kernel that does not compile is shown with its lines", "[jit]") {
  if (!has_nvrtc()) return;
  CacheDirectory directory;
  CHECK_THROWS_WITH(
      compile_to_cubin("\nextern \"C\" __global__ void f(float* x) {\n  *x = nothing;\n}\n", 90),
      Catch::Contains("expected a kernel that compiles for sm_90") &&
          Catch::Contains("kernel(3)") && Catch::Contains("   3   *x = nothing;"));
  CHECK(directory.files().empty());
}

TEST_CASE("cubins are compiled once, and again when an entry is damaged", "[jit]") {
  if (!has_nvrtc()) return;
  CacheDirectory directory;
  const std::string source = "extern \"C\" __global__ void f(float* x) { *x = 1; }\n";
  const CompilerStats before = compiler_stats();
  const std::string cubin = compile_to_cubin(source, 90);
  CHECK(compile_to_cubin(source, 90) == cubin);
  CHECK(compiler_stats().compiled == before.compiled + 1);
  CHECK(compiler_stats().disk_hits == before.disk_hits + 1);
  REQUIRE(directory.files().size() == 1);

  SECTION("what decides the code is in the key") {
    compile_to_cubin(source, 80);
    compile_to_cubin(source, 90, {.fmad = true});
    compile_to_cubin(source + " ", 90);
    CHECK(compiler_stats().compiled == before.compiled + 4);
    CHECK(directory.files().size() == 4);
  }
  SECTION("damage") {
    std::filesystem::resize_file(directory.files()[0], 1000);
    CHECK(compile_to_cubin(source, 90) == cubin);
    CHECK(compiler_stats().compiled == before.compiled + 2);
    CHECK(compiler_stats().disk_refused == before.disk_refused + 1);
    CHECK(compile_to_cubin(source, 90) == cubin);
    CHECK(compiler_stats().compiled == before.compiled + 2);
  }
}
