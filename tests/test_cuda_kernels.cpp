// Generated CUDA kernels compile: every row of the op table for every type, layout and
// architecture; specs of many ops; the cache of cubins. Nothing here needs a GPU; without NVRTC
// there is nothing to do.
#include <cstdlib>
#include <filesystem>

#include "ops/jit/compiler.h"
#include "tensor/cuda_api.h"
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

// Many kernels in one source: NVRTC's start costs more than most of them.
class Batch {
 public:
  explicit Batch(int architecture) : architecture_(architecture) {}
  ~Batch() { flush(); }

  void add(KernelSpec spec) {
    spec.name += "_" + std::to_string(number_++);
    text_ += "namespace k" + std::to_string(number_) + " {\n" + render_cuda(spec) + "}\n";
    if (++waiting_ == 24) flush();
  }
  void flush() {
    if (waiting_ == 0) return;
    std::string cubin;
    CHECK_NOTHROW(cubin = compile_to_cubin(text_, architecture_));
    for (const KernelResources& kernel : resources_of(cubin)) {
      ++kernels;
      INFO(kernel.entry);
      CHECK(kernel.registers > 0);
      CHECK(kernel.registers <= 255);
      CHECK(kernel.shared_bytes <= 48 * 1024);
    }
    text_.clear();
    waiting_ = 0;
  }
  int kernels = 0;

 private:
  int architecture_, number_ = 0, waiting_ = 0;
  std::string text_;
};

enum class Variant { flat, scalars, narrow, rows, wide, turned };
constexpr int kVariants = 6;

KernelSpec variant_of(const OpInfo& info, DType dtype, Variant variant) {
  if (variant == Variant::scalars) {
    KernelSpec spec =
        flat_spec(info, dtype, static_cast<std::uint8_t>(((1 << info.arity) - 1) & ~1));
    return spec;
  }
  KernelSpec spec = flat_spec(info, dtype);
  switch (variant) {
    case Variant::narrow:
      spec.width = std::max(1, spec.width / 2);
      spec.unroll = 1;
      break;
    case Variant::rows:
      spec.walk = Walk::strided;
      spec.rank = 2;
      spec.inputs.back().access = Access::broadcast;
      break;
    case Variant::wide:
      spec.walk = Walk::strided;
      spec.rank = 5;
      spec.width = 1;
      spec.wide = true;
      break;
    case Variant::turned:
      spec.walk = Walk::tiled;
      spec.rank = 3;
      spec.width = 1;
      spec.tile = size_of(dtype) <= 4 ? 64 : 32;
      spec.inputs.back().access = Access::transposed;
      break;
    default: break;
  }
  return spec;
}

}  // namespace

TEST_CASE("every pointwise row compiles for every type and layout", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  // All combinations take minutes: each row and type is compiled for both architectures in layouts
  // that take turns.
  const bool all = std::getenv("BRRR_TEST_ALL") != nullptr;
  Batch old(80), now(90);
  int turn = 0;
  for (const OpInfo& info : all_rows()) {
    if (info.kind != OpKind::pointwise) continue;
    for (const DType dtype : dtypes_of(info)) {
      for (int v = 0; v < kVariants; ++v) {
        const auto variant = static_cast<Variant>(v);
        if (all || turn % kVariants == v) old.add(variant_of(info, dtype, variant));
        if (all || (turn + 3) % kVariants == v) now.add(variant_of(info, dtype, variant));
      }
      ++turn;
    }
  }
  old.flush();
  now.flush();
  CHECK(old.kernels >= turn);
  CHECK(now.kernels >= turn);
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("every reduction row compiles for every type and walk", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  const bool all = std::getenv("BRRR_TEST_ALL") != nullptr;
  Batch old(80), now(90);
  int turn = 0;
  for (const OpInfo& info : all_rows()) {
    if (info.kind == OpKind::pointwise) continue;
    for (const DType dtype : dtypes_of(info)) {
      for (int v = 0; v < 4; ++v) {
        KernelSpec spec = info.kind == OpKind::reduction
                              ? reduction_spec(info, dtype, result_of(info, dtype))
                              : arg_reduction_spec(info, dtype);
        spec.walk = v < 2 ? Walk::rows : Walk::columns;
        const bool single = info.kind == OpKind::arg_reduction;
        spec.width = v % 2 == 0 ? std::min(widest_access(spec), single ? 8 : 16) : 1;
        spec.unroll = 4;
        spec.lanes = v == 0 ? 256 : v == 1 ? 8 : 32;
        spec.rank = v == 3 ? 3 : 1;
        spec.reduced_rank = v == 1 && !single ? 2 : 1;
        spec.wide = v == 3;
        if (all || turn % 4 == v) old.add(spec);
        if (all || (turn + 2) % 4 == v) now.add(spec);
      }
      ++turn;
    }
  }
  old.flush();
  now.flush();
  CHECK(old.kernels >= 3 * turn);
  CHECK(now.kernels >= 3 * turn);
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("conversions between all types compile", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  Batch batch(90);
  for (int from = 0; from < kDTypes; ++from) {
    for (int to = 0; to < kDTypes; ++to) {
      KernelSpec spec = copy_spec(static_cast<DType>(from), static_cast<DType>(to));
      spec.width = widest_access(spec);
      batch.add(spec);
    }
  }
  batch.flush();
  CHECK(batch.kernels == kDTypes * kDTypes);
  ::unsetenv("BRRR_CACHE");
}

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
