// The kernels of small contractions compile. Nothing here needs a GPU.
#include <array>
#include <cstdlib>

#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render_contraction.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/harness/catch.h"
#include "tests/harness/contraction_bodies.h"
#include "tests/harness/cubin.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::jit;

namespace {

void check_resources(const std::string& text, int most_registers = 128) {
  for (const int architecture : {80, 90}) {
    for (const auto& kernel : testing::resources_of(jit::compile_to_cubin(text, architecture))) {
      CHECK(kernel.registers <= most_registers);
      CHECK(kernel.local_bytes <= 16);  // around the slow path of a function
    }
  }
}

}  // namespace

TEST_CASE("contractions of computed factors compile for CUDA", "[jit][cuda]") {
  if (const std::string problem = cu::open_library(cu::Library::nvrtc); !problem.empty()) {
    brrr::testing::skip(problem);
    return;
  }
  ::setenv("BRRR_CACHE", "off", 1);
  for (const DType dtype : {f32, f16, bf16}) {
    for (const DType stored : {f32, bf16, i32}) {
      const BodySpec spec = testing::computed_product_of(dtype, stored, 32, 48, 256);
      for (const bool along : {true, false}) {
        const auto c = contraction_of({spec, testing::strides_of_computed(32, 48, 256, along)});
        REQUIRE(c);
        for (const int alignment : {16, 1}) {
          const ContractionPart part = contraction_part(
              spec, *c, [&](int) { return alignment; }, [](int) { return true; });
          INFO(name_of(dtype) << " of " << name_of(stored) << (along ? " along" : " across")
                              << " aligned to " << alignment);
          check_resources(contraction_source(std::array{part}), alignment > 1 ? 128 : 144);
        }
      }
    }
  }
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("contractions compile for CUDA", "[jit][cuda]") {
  if (const std::string problem = cu::open_library(cu::Library::nvrtc); !problem.empty()) {
    brrr::testing::skip(problem);
    return;
  }
  ::setenv("BRRR_CACHE", "off", 1);
  for (const DType dtype : {f32, f16, bf16}) {
    const BodySpec spec = testing::layer_of(dtype, {4, 24, 32, 48});
    const Dims out = {24 * 32, 32, 1, 0}, row = {0, 0, 1, 0}, of_a = {24, 1, 0, 0},
               of_b = {32, 0, 1, 0};
    const auto c = contraction_of(
        {spec,
         std::vector<Dims>{{24 * 48, 48, 0, 1}, {48 * 32, 0, 1, 32}, row, out, out, of_a, of_b}});
    REQUIRE(c);
    for (const OperandLayout b : {OperandLayout::mn_contiguous, OperandLayout::strided}) {
      ContractionPart part{&spec.body, *c, {dtype, OperandLayout::k_contiguous, b, 2}};
      ContractionPart other = part;
      other.prefetch_a = other.prefetch_others = true;
      other.prefetch_b = b != OperandLayout::strided;
      const std::string text = contraction_source(std::array{part, other});
      INFO(name_of(dtype) << " " << static_cast<int>(b));
      check_resources(text);
    }
  }
  ::unsetenv("BRRR_CACHE");
}
