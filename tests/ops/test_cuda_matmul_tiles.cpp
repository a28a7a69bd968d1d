// Products by Hopper's tensor cores with epilogues, tested without a GPU: which products the kernel
// takes, which tiles it is given, what is launched, and that every form of its text compiles.
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
#include "tests/harness/skip.h"
#include "tests/harness/tile_epilogues.h"

using namespace brrr;
using namespace brrr::on_cuda;

namespace {

// a with rows of k, b with rows of n, both without gaps.
MatrixProduct row_major(std::int64_t m, std::int64_t n, std::int64_t k) {
  MatrixProduct p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = {k, 1, {}};
  p.b = {n, 1, {}};
  p.d = {n, 1, {}};
  return p;
}
// The same with b's columns adjacent, as TF32 needs it.
MatrixProduct both_along_k(std::int64_t m, std::int64_t n, std::int64_t k) {
  MatrixProduct p = row_major(m, n, k);
  p.b = {1, k, {}};
  return p;
}
void add_batch(MatrixProduct& p, std::int64_t size, std::int64_t a, std::int64_t b,
               std::int64_t d) {
  p.batch.push_back(size);
  p.a.batch.push_back(a);
  p.b.batch.push_back(b);
  p.d.batch.push_back(d);
}

bool takes(const MatrixProduct& p, DType dtype, std::uintptr_t a = 256, std::uintptr_t b = 256) {
  return supports(p, dtype, reinterpret_cast<const void*>(a), reinterpret_cast<const void*>(b));
}

TileEpilogue sample(const char* text, DType dtype, int inputs, int outputs) {
  TileEpilogue epilogue;
  epilogue.text = text;
  epilogue.staged = dtype;
  epilogue.inputs.resize(static_cast<std::size_t>(inputs));
  epilogue.outputs.resize(static_cast<std::size_t>(outputs));
  return epilogue;
}

}  // namespace

TEST_CASE("tiles take what the tensor copy engine can load", "[cuda_matmul]") {
  CHECK(takes(row_major(512, 512, 512), bf16));
  CHECK(takes(row_major(512, 512, 512), f16));
  CHECK(takes(both_along_k(512, 512, 512), f32));
  // TF32 is read along k only, f64 and integers not at all.
  CHECK(!takes(row_major(512, 512, 512), f32));
  CHECK(!takes(both_along_k(512, 512, 512), f64));
  CHECK(!takes(both_along_k(512, 512, 512), i32));
  // Rows and addresses are multiples of 16 bytes; the result's are the epilogue's affair.
  CHECK(!takes(row_major(512, 512, 511), bf16));
  CHECK(!takes(row_major(512, 511, 512), bf16));
  CHECK(takes(both_along_k(511, 509, 512), bf16));
  CHECK(takes(both_along_k(511, 509, 516), f32));
  CHECK(!takes(both_along_k(511, 509, 514), f32));
  CHECK(!takes(row_major(512, 512, 512), bf16, 264));
  CHECK(!takes(row_major(512, 512, 512), bf16, 256, 258));
  // A dimension of one element has no stride to speak of.
  CHECK(takes(both_along_k(1, 1, 7), bf16));
  MatrixProduct gaps = row_major(512, 512, 512);
  gaps.a = {1024, 2, {}};
  CHECK(!takes(gaps, bf16));
  // Batches in two dimensions, also of one matrix for all.
  MatrixProduct batch = row_major(64, 64, 64);
  add_batch(batch, 3, 4096, 0, 4096);
  CHECK(takes(batch, bf16));
  add_batch(batch, 5, 3 * 4096, 4096, 3 * 4096);
  CHECK(takes(batch, bf16));
  add_batch(batch, 2, 15 * 4096, 4096, 15 * 4096);
  CHECK(!takes(batch, bf16));
  MatrixProduct unaligned = row_major(64, 64, 64);
  add_batch(unaligned, 3, 4097, 4096, 4096);
  CHECK(!takes(unaligned, bf16));
  CHECK(!takes(row_major(0, 64, 64), bf16));
  CHECK(!takes(row_major(64, 64, 0), bf16));
  CHECK(!takes(row_major(std::int64_t{1} << 31, 64, 64), bf16));
  CHECK(!takes(row_major(std::int64_t{1} << 29, std::int64_t{1} << 29, 64), bf16));
}

TEST_CASE("results are staged where the tensor copy engine can store them", "[cuda_matmul]") {
  const auto stages = [](const MatrixProduct& p, DType result, std::uintptr_t d = 256) {
    return !testing::plain_epilogue(p, result, reinterpret_cast<void*>(d)).epilogue.outputs.empty();
  };
  CHECK(stages(row_major(64, 64, 64), bf16));
  CHECK(stages(row_major(64, 64, 64), f32));
  CHECK(!stages(row_major(64, 63, 64), bf16));
  CHECK(!stages(row_major(64, 64, 64), bf16, 264));
  MatrixProduct edge = row_major(64, 60, 64);
  edge.d.row = 64;
  CHECK(!stages(edge, bf16));
  CHECK(stages(edge, f32));
  MatrixProduct columns = row_major(64, 64, 64);
  columns.d = {1, 64, {}};
  CHECK(!stages(columns, bf16));
}

TEST_CASE("tiles are chosen by the shape", "[cuda_matmul]") {
  const auto chosen = [](const MatrixProduct& p, DType dtype) {
    return to_string(choose_tiles(std::span(&p, 1), dtype, 132));
  };
  // One wave of 128 x 128.
  CHECK(chosen(row_major(4096, 512, 512), bf16) == "128x128");
  CHECK(chosen(row_major(4096, 512, 2048), bf16) == "128x128");
  CHECK(chosen(row_major(2048, 1024, 1024), bf16) == "128x128");
  // 256 tiles of 128 x 192 are two whole waves.
  CHECK(chosen(row_major(4096, 1536, 512), bf16) == "128x192 ping-pong");
  // Few tiles and a deep sum are split.
  CHECK(chosen(row_major(512, 1536, 4096), bf16) == "128x128, 2 splits");
  CHECK(chosen(row_major(512, 512, 4096), bf16) == "128x128, 4 splits");
  CHECK(chosen(row_major(8192, 4096, 4096), bf16) == "128x128 ping-pong, cluster 2x1");
  // In one wave blocks of a cluster would only wait for one another.
  CHECK(chosen(both_along_k(4096, 512, 2048), f32) == "128x128");
  MatrixProduct scores = both_along_k(512, 512, 64);
  add_batch(scores, 64, 512 * 64, 512 * 64, 512 * 512);
  CHECK(chosen(scores, bf16) == "256x128");
  MatrixProduct mix = row_major(512, 64, 512);
  add_batch(mix, 64, 512 * 512, 512 * 64, 512 * 64);
  CHECK(chosen(mix, bf16) == "128x64 ping-pong");
}

TEST_CASE("a product in tiles is one launch of blocks that fill the device", "[cuda_matmul]") {
  testing::FakeCuda fake({.with_nvrtc = true});
  ::setenv("BRRR_CACHE", "off", 1);
  {
    const auto plan = [&](MatrixProduct p, const TileConfig& c) {
      const Tensor a = empty({p.m * p.k}, {.dtype = bf16, .device = cuda()}),
                   b = empty({p.n * p.k}, {.dtype = bf16, .device = cuda()});
      Tensor d = empty({p.m * p.n}, {.dtype = bf16, .device = cuda()});
      const testing::PlainEpilogue plain = testing::plain_epilogue(p, bf16, d.data());
      const TiledProduct tiled{p, a.data(), b.data(), plain.epilogue};
      const TileLaunch tiles = plan_tiles(std::span(&tiled, 1), bf16, c, cuda());
      const void* arguments[] = {&plain.arguments};
      cu::count_calls(true);
      launch(tiles, arguments, cu::current_stream(cuda()));
      CHECK(cu::call_count("cuLaunchKernelEx") == 1);
      cu::count_calls(false);
      fake.run_all();
      return tiles;
    };
    const std::int64_t multiprocessors = jit::multiprocessors_of(cuda());
    // A block for each tile, and no more than run at once.
    TileLaunch tiles = plan(row_major(256, 384, 512), {});
    CHECK(tiles.grid.x == std::min<std::int64_t>(6, multiprocessors));
    CHECK(tiles.threads == 384);
    CHECK(tiles.products[0].problem.tiles_m == 2);
    CHECK(tiles.products[0].problem.tiles_n == 3);
    tiles = plan(row_major(8192, 4096, 64), {});
    CHECK(tiles.grid.x == multiprocessors);
    tiles = plan(row_major(200, 136, 512), {.splits = 4});
    CHECK(tiles.grid.x == 16);
    tiles = plan(row_major(200, 136, 512), {.cluster_m = 2});
    CHECK(tiles.grid.x == 4);
    CHECK(tiles.products[0].problem.tiles_m == 1);
    for (const TileConfig& c : tile_choices()) {
      INFO(to_string(c));
      tiles = plan(row_major(1000, 1000, 1000), c);
      CHECK(tiles.shared_bytes <= 227 * 1024);
      CHECK(tiles.grid.x % (c.cluster_m * c.cluster_n * c.splits) == 0);
    }
    // A tile whose two stages do not fit in shared memory beside the boxes of the epilogue.
    const MatrixProduct p = row_major(256, 256, 64);
    const TiledProduct tiled{p, reinterpret_cast<void*>(256), reinterpret_cast<void*>(256),
                             sample(testing::kBiasGelu, bf16, 0, 2)};
    CHECK_THROWS_WITH(plan_tiles(std::span(&tiled, 1), bf16, {.blocks = 3}, cuda()),
                      Catch::Contains("expected shared memory for two stages"));
  }
  ::unsetenv("BRRR_CACHE");
  CHECK(fake.problem() == "");
}

namespace {

void compile_tiles(const TileConfig& c, DType dtype, const std::vector<TiledProduct>& products) {
  const std::string cubin = jit::compile_to_cubin(matmul_tiles_text(c, dtype, products), 90,
                                                  {.architecture_specific = true});
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
  return TiledProduct{p, nullptr, nullptr, epilogue};
}

TileEpilogue plain(DType dtype, bool staged) {
  return testing::plain_epilogue(row_major(64, staged ? 64 : 63, 64), dtype, nullptr).epilogue;
}

}  // namespace

TEST_CASE("every form of the tiles' text compiles, without spills", "[cuda_texts]") {
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
}

// The gradients of a layer's input, weight and bias.
TEST_CASE("several products in one text compile, without spills", "[cuda_texts]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  const TileEpilogue slope = sample(testing::kGeluGradient, bf16, 1, 1);
  TileEpilogue with_sums = sample(testing::kWithLineSums, bf16, 0, 1);
  with_sums.reduces = true;
  for (const TileConfig& c : tile_choices()) {
    if (!takes_reductions(c)) continue;
    INFO(to_string(c));
    compile_tiles(c, bf16,
                  {tiled({Major::k, Major::mn}, slope), tiled({Major::mn, Major::mn}, with_sums)});
    compile_tiles(c, f16, {tiled({Major::mn, Major::mn}, with_sums)});
    compile_tiles(c, f32, {tiled({}, plain(f32, true)), tiled({}, plain(f32, true))});
  }
}

TEST_CASE("clusters share the tiles of several products evenly", "[cuda_matmul]") {
  const auto shares_of = [](std::vector<MatrixProduct> products, const TileConfig& c) {
    const TileShares shares = share_tiles(products, bf16, c, 132);
    for (std::size_t i = 0; i < products.size(); ++i) {
      // Every tile is in the range of one cluster.
      const TileRanges& ends = shares.ranges[i];
      CHECK(std::ranges::is_sorted(ends));
      CHECK(ends[static_cast<std::size_t>(shares.clusters) - 1] == tiles_of(products[i], c));
    }
    return shares;
  };
  const TileConfig c{.ping_pong = true};
  // 64 tiles of 32 slices, 128 of 16: each block has one of the former or two of the latter.
  const MatrixProduct deep = row_major(1024, 1024, 2048), wide = row_major(2048, 1024, 1024);
  const std::vector<MatrixProduct> both{wide, deep};
  const TileShares shares = shares_of(both, c);
  CHECK(shares.clusters == 132);
  const std::int64_t of_deep = share_tiles(std::span(&deep, 1), bf16, c, 132).cycles;
  CHECK(shares.cycles >= of_deep);
  CHECK(shares.cycles < of_deep * 11 / 10);
  // Few tiles: a block each. Two blocks of a cluster share the columns of B.
  CHECK(shares_of({row_major(256, 128, 64), row_major(128, 128, 64)}, c).clusters == 3);
  CHECK(shares_of(both, {.ping_pong = true, .cluster_m = 2}).clusters == 66);
  // Two launches would leave multiprocessors idle.
  CHECK(predicted_cycles(both, bf16, c, 132) <
        predicted_cycles(std::span(&deep, 1), bf16, c, 132) +
            predicted_cycles(std::span(&wide, 1), bf16, c, 132));
}
