// Products by Hopper's tensor cores with epilogues, tested without a GPU: what is launched, and
// that every form of its text compiles.
#include <cstdlib>
#include <string>
#include <vector>

#include "brrr/ops/cuda/matmul_tiles.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/matrix_products.h"
#include "tests/harness/skip.h"
#include "tests/harness/tile_epilogues.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::on_cuda;
using testing::row_major;

namespace {

TileEpilogue sample(const std::string& text, DType dtype, int inputs, int outputs) {
  TileEpilogue epilogue;
  epilogue.text = text;
  epilogue.staged = dtype;
  epilogue.inputs.resize(static_cast<std::size_t>(inputs));
  epilogue.outputs.resize(static_cast<std::size_t>(outputs));
  return epilogue;
}

}  // namespace

TEST_CASE("a product in tiles is one launch of blocks that fill the device", "[cuda_matmul]") {
  testing::FakeCuda fake({.with_nvrtc = true});
  ::setenv("BRRR_CACHE", "off", 1);
  {
    const auto plan = [&](MatrixProduct p, const TileConfig& c) {
      const Tensor a = empty({p.m * p.k}, {.dtype = bf16, .device = cuda()}),
                   b = empty({p.n * p.k}, {.dtype = bf16, .device = cuda()});
      Tensor d = empty({p.m * p.n}, {.dtype = bf16, .device = cuda()});
      const testing::PlainEpilogue plain = testing::plain_epilogue(p, bf16, d.data());
      const TiledProduct tiled{p, plain.epilogue};
      const TileOperands operands{a.data(), b.data(), {d.data()}};
      const TileLaunch tiles =
          plan_tiles(std::span(&tiled, 1), std::span(&operands, 1), bf16, c, cuda());
      const void* arguments[] = {&plain.arguments};
      cu::count_calls(true);
      launch(tiles, arguments, cu::current_stream(cuda()));
      CHECK(cu::call_count("cuLaunchKernelEx") == 1);
      cu::count_calls(false);
      fake.run_all();
      return tiles;
    };
    // A block for each tile.
    CHECK(plan(row_major(256, 384, 512), {}).schedule.blocks == 6);
    // The fake driver refuses maps that the driver would.
    plan(row_major(8192, 4096, 64), {});
    plan(row_major(200, 136, 512), {.splits = 4});
    plan(row_major(200, 136, 512), {.cluster_m = 2});
    for (const TileConfig& c : tile_choices()) {
      INFO(to_string(c));
      plan(row_major(1000, 1000, 1000), c);
    }
  }
  ::unsetenv("BRRR_CACHE");
  CHECK(fake.problem() == "");
}

namespace {

void compile_tiles(const TileConfig& c, DType dtype, const std::vector<TiledProduct>& products) {
  const std::int64_t before = compiler_stats().serialized;
  const std::string cubin = jit::compile_to_cubin(matmul_tiles_source(c, dtype, products), 90,
                                                  {.architecture_specific = true});
  CHECK(compiler_stats().serialized == before);
  const auto kernels = testing::resources_of(cubin);
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].local_bytes == 0);
  // Beside the dynamic part.
  CHECK(kernels[0].shared_bytes <= 1024 + 512);
}

TiledProduct tiled(TileMajors majors, const TileEpilogue& epilogue) {
  MatrixProduct p = row_major(64, 64, 64);
  p.a = majors.a == Major::k ? MatrixStrides{64, 1, {}} : MatrixStrides{1, 64, {}};
  p.b = majors.b == Major::k ? MatrixStrides{1, 64, {}} : MatrixStrides{64, 1, {}};
  return TiledProduct{p, epilogue};
}

TileEpilogue plain(DType dtype, bool staged) {
  return testing::plain_epilogue(row_major(64, staged ? 64 : 63, 64), dtype, nullptr).epilogue;
}

}  // namespace

TEST_CASE("every form of the tiles' text compiles, without spills", "[cuda_sources]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  const auto compile = [](const TileConfig& c, DType dtype, TileMajors majors,
                          const TileEpilogue& epilogue) {
    INFO(to_string(c) << " " << name_of(dtype) << (majors.a == Major::mn ? " T" : " N")
                      << (majors.b == Major::mn ? "N" : "T") << epilogue.text);
    compile_tiles(c, dtype, {tiled(majors, epilogue)});
  };
  std::vector<TileConfig> configs(tile_choices().begin(), tile_choices().end());
  configs.push_back({.cluster_n = 2});
  configs.push_back({.splits = 8});
  configs.push_back({.consumers = 1, .blocks = 2});
  for (const TileConfig& c : configs) {
    compile(c, bf16, {Major::k, Major::mn}, plain(bf16, true));
    compile(c, f32, {Major::k, Major::k}, plain(f32, true));
    if (takes_a_in_registers(c)) compile(c, f32, {Major::mn, Major::k}, plain(f32, true));
  }
  constexpr Major kMajors[] = {Major::k, Major::mn};
  for (const Major a : kMajors) {
    for (const Major b : kMajors) {
      compile({.splits = 2}, bf16, {a, b}, plain(f32, true));
      compile({.ping_pong = true, .cluster_m = 2}, f16, {a, b}, plain(f16, false));
    }
  }
  for (const DType dtype : {bf16, f16, f32}) {
    compile({}, dtype, {}, sample(testing::kBiasGelu, dtype, 0, 2));
    compile({.ping_pong = true}, dtype, {}, sample(testing::kGeluGradient, dtype, 1, 1));
    compile({.splits = 2}, dtype, {}, sample(testing::kResidual, dtype, 1, 1));
  }
  for (const TileConfig& c :
       {TileConfig{}, TileConfig{.ping_pong = true}, TileConfig{.splits = 2}}) {
    compile(c, f32, {}, sample(testing::with_transposed(testing::kBiasGelu, 0, 2), f32, 0, 2));
    compile(c, f32, {Major::mn, Major::k},
            sample(testing::with_transposed(testing::kGeluGradient, 1, 1), f32, 1, 1));
  }
}

// The gradients of a layer's input, weight and bias.
TEST_CASE("several products in one text compile, without spills", "[cuda_sources]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  const TileEpilogue slope = sample(testing::kGeluGradient, bf16, 1, 1);
  const TileEpilogue slope_of_f32 =
      sample(testing::with_transposed(testing::kGeluGradient, 1, 1), f32, 1, 1);
  TileEpilogue with_sums = sample(testing::kWithLineSums, bf16, 0, 1), of_f32 = with_sums;
  with_sums.reduces = of_f32.reduces = true;
  of_f32.staged = f32;
  for (const TileConfig& c : tile_choices()) {
    if (!takes_reductions(c)) continue;
    INFO(to_string(c));
    compile_tiles(c, bf16,
                  {tiled({Major::k, Major::mn}, slope), tiled({Major::mn, Major::mn}, with_sums)});
    compile_tiles(c, f16, {tiled({Major::mn, Major::mn}, with_sums)});
    compile_tiles(c, f32, {tiled({}, plain(f32, true)), tiled({Major::mn, Major::k}, of_f32)});
    compile_tiles(
        c, f32, {tiled({Major::mn, Major::k}, slope_of_f32), tiled({Major::mn, Major::k}, of_f32)});
  }
}
