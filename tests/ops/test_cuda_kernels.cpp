// Generated CUDA kernels of many ops compile; errors of the compiler; the cache of cubins. Nothing
// here needs a GPU; without NVRTC there is nothing to do. Kernels of one op: test_cuda_sources.cpp.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/jit_cuda_bodies.h"
#include "tests/harness/skip.h"

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

TEST_CASE("bodies of many ops are one kernel", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  SECTION("a chain shares the function of equal expressions") {
    Body body;
    body.name = "cos_cos";
    int x = body.add_input(f32);
    for (int i = 0; i < 2; ++i) x = add_pointwise(body, row_named("cos"), f32, f32, {x});
    body.add_output(x, f32);
    const std::string text = render_cuda(body, flat(4));
    CHECK(text.find("cos(a)") == text.rfind("cos(a)"));
    CHECK_FALSE(compile_to_cubin(text, 90).empty());
  }
  SECTION("x * 2 + 1, over and over, needs no more registers") {
    Body body;
    body.name = "linear";
    int x = body.add_input(f32);
    const int two = body.add_scalar(f32), one = body.add_scalar(f32);
    for (int i = 0; i < 64; ++i) {
      x = add_pointwise(body, row_named("mul"), f32, f32, {x, two});
      x = add_pointwise(body, row_named("add"), f32, f32, {x, one});
    }
    body.add_output(x, f32);
    const auto resources =
        brrr::testing::resources_of(compile_to_cubin(render_cuda(body, flat(4, 2)), 90));
    REQUIRE(resources.size() == 1);
    CHECK(resources[0].registers <= 32);
    CHECK(resources[0].local_bytes == 0);
  }
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("bodies of several outputs and of reductions are one kernel", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  SECTION("several outputs, halves rounded as if stored") {
    Body body;
    body.name = "two";
    body.strict = true;
    const int x = body.add_input(bf16), y = body.add_input(bf16);
    const int product = add_pointwise(body, row_named("mul"), bf16, bf16, {x, y});
    const int sum = add_pointwise(body, row_named("add"), bf16, bf16, {product, x});
    const int test = add_pointwise(body, row_named("gt"), bf16, bf16, {sum, y});
    body.add_output(sum, bf16);
    body.add_output(test, boolean);
    const std::string text = render_cuda(body, flat(8));
    CHECK(text.find("rounded<bf16>") != std::string::npos);
    CHECK_FALSE(compile_to_cubin(text, 90).empty());
  }
  SECTION("expressions before and after two reductions") {
    Body body;
    body.name = "deviation";
    const int x = body.add_input(f32);
    const int square = add_pointwise(body, row_named("square"), f32, f32, {x});
    const int mean = add_reduction(body, row_named("mean"), f32, x);
    const int mean_square = add_reduction(body, row_named("mean"), f32, square);
    const int mean_squared = add_pointwise(body, row_named("square"), f32, f32, {mean});
    const int variance =
        add_pointwise(body, row_named("sub"), f32, f32, {mean_square, mean_squared});
    body.add_output(mean, f32);
    body.add_output(add_pointwise(body, row_named("sqrt"), f32, f32, {variance}), f32);
    Schedule schedule;
    schedule.walk = Walk::rows;
    schedule.width = 4;
    schedule.lanes = 256;
    CHECK(partial_size(body) == 8);
    CHECK_FALSE(compile_to_cubin(render_cuda(body, schedule), 90).empty());
    schedule.walk = Walk::columns;
    schedule.lanes = 32;
    CHECK_FALSE(compile_to_cubin(render_cuda(body, schedule), 80).empty());
  }
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("fast bodies divide and contract in fewer instructions", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  Case c = softmax_case(f32, 64, 512);
  const auto size_of_code = [&] {
    const Scheduled s = schedule_of(c, c.inputs, outputs_of(c, cpu), {132, 8});
    return compile_to_cubin(render_cuda(c.body, s.schedule), 90, options_of(c.body)).size();
  };
  const std::size_t exact = size_of_code();
  c.body.fast = true;
  CHECK(size_of_code() + 1000 < exact);
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("values of a pass stay in registers for later ones", "[jit]") {
  using namespace pieces;
  const Case softmax = softmax_case(f32, 8, 64);
  const Body& body = softmax.body;
  const std::vector<RowPass> computed_again = passes_of(body);
  REQUIRE(computed_again.size() == 3);
  const auto is_exp = [&](int value) { return body.value(value).expression == "exp(a)"; };
  CHECK(std::ranges::any_of(computed_again[1].elements, is_exp));
  CHECK(std::ranges::any_of(computed_again[2].elements, is_exp));

  std::vector<RowPass> kept = computed_again;
  keep_values(body, kept, 1);
  REQUIRE(kept[1].live_out.size() == 1);
  CHECK(is_exp(kept[1].live_out[0]));
  CHECK(kept[2].live_in == kept[1].live_out);
  CHECK(std::ranges::any_of(kept[1].elements, is_exp));
  CHECK_FALSE(std::ranges::any_of(kept[2].elements, is_exp));

  kept = computed_again;
  keep_values(body, kept, 0);
  CHECK(kept[1].live_out.empty());
  CHECK(kept[2].elements == computed_again[2].elements);
}

TEST_CASE("bodies of many levels compile for CUDA", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  std::set<std::string> texts, walks;
  const auto compile_for = [&](const Case& c, int architecture, DeviceShape device) {
    const Scheduled s = schedule_of(c, c.inputs, outputs_of(c, cpu), device);
    const std::string text = render_cuda(c.body, s.schedule);
    if (!texts.insert(text + std::to_string(architecture)).second) return;
    walks.insert(c.body.name + std::to_string(static_cast<int>(s.schedule.walk)) +
                 (s.schedule.keeps ? " keeps" : "") + (s.schedule.join_lanes > 0 ? " joins" : "") +
                 (s.schedule.cluster > 1 ? " cluster" : ""));
    INFO(c.body.name << " " << c.dims[0] << " x " << c.dims[1]);
    for (const KernelResources& kernel :
         resources_of(compile_to_cubin(text, architecture, options_of(c.body)))) {
      CHECK(kernel.local_bytes <= 16);  // around the slow path of a division
      CHECK(kernel.shared_bytes <= 48 * 1024);
    }
  };
  const auto compile = [&](const Case& c) {
    compile_for(c, 80, {108, 1});
    compile_for(c, 90, {132, 8});
  };
  for (const Case& c : cases_with_references(f32)) compile(c);
  for (const DType dtype : {f64, f16, bf16}) {
    compile(softmax_case(dtype, 33, 64));
    compile(layer_norm_case(dtype, 33, 64));
    compile(bounded_case(dtype, 32, 64, Bounded::elements));
  }
  compile(bias_gradient_case(bf16, 2048, 1024, true));
  compile(dropout_case(f32, 37, 53));
  compile(dropout_case(bf16, 32, 64));
  compile(dropout_case(f32, 32, 64, true));
  compile(dropout_case(bf16, 37, 53, true));
  std::string all;
  for (const std::string& walk : walks) all += walk + "\n";
  INFO(all);
  for (const char* expected :
       {"softmax_rows3 keeps", "softmax_rows3\n", "softmax_columns4 keeps", "softmax_columns4\n",
        "layer_norm3 keeps", "layer_norm3\n", "bias_gradient4\n", "bias_gradient4 cluster",
        "broadcast1", "gather1", "cross_entropy3", "dropout1", "bounded1", "bounded_transposed2",
        "bounded_rows3", "bounded_columns4"}) {
    INFO(expected);
    CHECK(all.find(expected) != std::string::npos);
  }
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("threads share a row until each keeps few of its elements", "[jit]") {
  const auto schedule = [](const Case& c) {
    return schedule_of(c, c.inputs, outputs_of(c, cpu), {132, 8}).schedule;
  };
  const auto each = [](const ReductionSchedule& s) { return s.width * s.unroll; };
  const ReductionSchedule softmax = schedule(softmax_case(bf16, 1024, 1000));
  CHECK(softmax.keeps);
  CHECK(softmax.threads == 128);
  CHECK(softmax.lanes == 32);
  CHECK(each(softmax) == 32);
  CHECK(softmax.shared == 0);
  // Scale and shift are the same in all rows, so a thread keeps x alone.
  const Case layer_norm = layer_norm_case(bf16, 1024, 1024);
  const ReductionSchedule norm = schedule(layer_norm);
  CHECK(norm.keeps);
  CHECK(norm.threads == 128);
  CHECK(norm.lanes == 32);
  CHECK(each(norm) == 32);
  CHECK(std::popcount(norm.shared) == 2);
  CHECK(schedule(layer_norm_case(bf16, 1024, 4096)).lanes == 128);
  // All operands of a single row are its own.
  const ReductionSchedule single = schedule(layer_norm_case(bf16, 1, 1024));
  CHECK(single.keeps);
  CHECK(single.shared == 0);
  // Of two inputs that vary by row a thread keeps both, and in 16 bits not the third, which all
  // rows share: half as many threads then take a row.
  const auto two_inputs = [&](DType dtype) {
    Case two = layer_norm_case(dtype, 1024, 1024);
    two.inputs[1] = two.inputs[0];
    return schedule(two);
  };
  const ReductionSchedule halves = two_inputs(bf16), singles = two_inputs(f32);
  CHECK(halves.keeps);
  CHECK(halves.shared == 4);
  CHECK(halves.lanes == 64);
  CHECK(each(halves) == 16);
  CHECK(singles.keeps);
  CHECK(singles.shared == 0);
  CHECK(singles.threads == 128);
  CHECK(singles.lanes == 128);
  CHECK(each(singles) == 8);
  // A row of few vectors is not shared by more threads than it has.
  const ReductionSchedule narrow = schedule(softmax_case(f32, 5000, 12));
  CHECK(narrow.lanes == 4);
}

TEST_CASE("columns of a kernel that stores its elements are cut into the parts of one wave",
          "[jit]") {
  constexpr DeviceShape kDevice{132, 8};
  const auto schedule = [&](std::int64_t rows, std::int64_t cols, bool stores) {
    const Case c = bias_gradient_case(bf16, rows, cols, stores);
    return schedule_of(c, c.inputs, outputs_of(c, cpu), kDevice).schedule;
  };
  for (const auto& [rows, cols] : {std::pair{2048, 1024}, {8192, 512}, {1024, 4096}, {65536, 64}}) {
    INFO(rows << " x " << cols);
    const ReductionSchedule s = schedule(rows, cols, true);
    CHECK(s.cluster == 1);
    CHECK(s.join_lanes > 0);
    CHECK(s.blocks * s.parts >= 5 * kDevice.multiprocessors / 2);
    CHECK(s.blocks * s.parts <= 3 * kDevice.multiprocessors);
    CHECK(s.part * (s.parts - 1) < rows);
    CHECK(s.part * s.parts >= rows);
  }
  CHECK(schedule(2048, 1024, false).cluster > 1);
  CHECK(schedule(8192, 512, false).cluster > 1);
  CHECK(schedule(128, 256, true).join_lanes == 0);  // a second kernel would cost more
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
    compile_to_cubin(source, 90, {.random = true});
    compile_to_cubin(source, 90, {.fast = true});
    compile_to_cubin(source + " ", 90);
    CHECK(compiler_stats().compiled == before.compiled + 5);
    CHECK(directory.files().size() == 5);
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
