// Products by Hopper's tensor cores: which products the tile kernel takes, which tiles it is given,
// and how they cover the products of a launch. Nothing here needs CUDA.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "brrr/ops/jit/tile_epilogue.h"
#include "brrr/ops/jit/tiles.h"
#include "brrr/tensor/error.h"
#include "tests/harness/catch.h"
#include "tests/harness/contraction_bodies.h"
#include "tests/harness/matrix_products.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

namespace {

bool takes(const MatrixProduct& p, DType dtype) { return tiles_support(p, dtype, true); }

// Epilogues that stage so many tensors.
TiledProduct staging(const MatrixProduct& p, std::size_t inputs, std::size_t outputs) {
  TiledProduct tiled{p, {}};
  tiled.epilogue.staged = bf16;
  tiled.epilogue.inputs.assign(inputs, p.d);
  tiled.epilogue.outputs.assign(outputs, p.d);
  return tiled;
}

}  // namespace

TEST_CASE("tiles take what the tensor copy engine can load", "[jit][matmul_schedules]") {
  CHECK(takes(row_major(512, 512, 512), bf16));
  CHECK(takes(row_major(512, 512, 512), f16));
  CHECK(takes(both_along_k(512, 512, 512), f32));
  // TF32 is read along k, or along m to registers; f64 and integers not at all.
  CHECK(!takes(row_major(512, 512, 512), f32));
  MatrixProduct along_m = both_along_k(512, 512, 512);
  along_m.a = {1, 512, {}};
  CHECK(takes(along_m, f32));
  CHECK(has_a_in_registers(along_m, f32));
  CHECK(!has_a_in_registers(along_m, bf16));
  CHECK(!takes(both_along_k(512, 512, 512), f64));
  CHECK(!takes(both_along_k(512, 512, 512), i32));
  // Rows and addresses are multiples of 16 bytes; the result's are the epilogue's affair.
  CHECK(!takes(row_major(512, 512, 511), bf16));
  CHECK(!takes(row_major(512, 511, 512), bf16));
  CHECK(takes(both_along_k(511, 509, 512), bf16));
  CHECK(takes(both_along_k(511, 509, 516), f32));
  CHECK(!takes(both_along_k(511, 509, 514), f32));
  CHECK(!tiles_support(row_major(512, 512, 512), bf16, false));
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

TEST_CASE("results are staged where the tensor copy engine can store them",
          "[jit][matmul_schedules]") {
  const auto stages = [](const MatrixProduct& p, DType result, bool aligned = true) {
    return can_stage(p, result, p.d, aligned);
  };
  CHECK(stages(row_major(64, 64, 64), bf16));
  CHECK(stages(row_major(64, 64, 64), f32));
  CHECK(!stages(row_major(64, 63, 64), bf16));
  CHECK(!stages(row_major(64, 64, 64), bf16, false));
  MatrixProduct edge = row_major(64, 60, 64);
  edge.d.row = 64;
  CHECK(!stages(edge, bf16));
  CHECK(stages(edge, f32));
  MatrixProduct columns = row_major(64, 64, 64);
  columns.d = {1, 64, {}};
  CHECK(!stages(columns, bf16));
  // In f32 also with adjacent elements along m, in rows of 16 bytes.
  CHECK(stages(columns, f32));
  CHECK(is_staged_transposed(columns.d));
  CHECK(!is_staged_transposed(row_major(64, 64, 64).d));
  CHECK(!stages(columns, f32, false));
  columns.m = 62;
  CHECK(!stages(columns, f32));
  columns.m = 60;
  CHECK(stages(columns, f32));
  columns.d.col = 62;
  CHECK(!stages(columns, f32));
}

TEST_CASE("tiles are chosen by the shape", "[jit][matmul_schedules]") {
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

TEST_CASE("an epilogue's operations take time that no products hide", "[jit][matmul_schedules]") {
  const auto cycles = [](std::int64_t m, std::int64_t k, std::int64_t flops) {
    return epilogue_cycles(both_along_k(m, 1024, k), f32, flops, 132);
  };
  // A tile for each multiprocessor: every result of a thread, one after another.
  CHECK(cycles(2048, 1024, 10) == 128 * 55);
  CHECK(cycles(2048, 1024, 20) == 2 * cycles(2048, 1024, 10));
  CHECK(cycles(1024, 1024, 10) == cycles(2048, 1024, 10));
  // In more waves beside the products of the next tile, if these take as long.
  CHECK(cycles(8192, 1024, 10) == cycles(2048, 1024, 10));
  CHECK(cycles(8192, 64, 10) > 2 * cycles(2048, 64, 10));
}

TEST_CASE("clusters share the tiles of several products evenly", "[jit][matmul_schedules]") {
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

TEST_CASE("each tile goes to the cluster that has the least to do", "[jit][matmul_schedules]") {
  const TileConfig c{.ping_pong = true};
  const auto tiles = [](std::int64_t count, std::int64_t k) {
    return row_major(128 * count, 128, k);
  };
  for (const auto& [many, deep, few, shallow] :
       {std::array{300, 2048, 1000, 1024}, std::array{64, 2048, 128, 1024},
        std::array{133, 4096, 7, 64}, std::array{500, 512, 500, 512}, std::array{1, 64, 900, 4096},
        std::array{700, 192, 131, 8192}}) {
    INFO(many << " of " << deep << ", " << few << " of " << shallow);
    const std::array products{tiles(many, deep), tiles(few, shallow)};
    const TileShares shares = share_tiles(products, bf16, c, 132);
    const auto clusters = static_cast<std::size_t>(shares.clusters);
    std::vector<std::int64_t> loads(clusters, 0);
    std::array<std::vector<std::uint16_t>, 2> taken;
    const std::size_t first = deep >= shallow ? 0 : 1;  // the longest tiles
    for (const std::size_t i : {first, 1 - first}) {
      taken[i].assign(clusters, 0);
      const MatrixProduct one = tiles(1, products[i].k);
      const std::int64_t cycles = share_tiles(std::span(&one, 1), bf16, c, 132).cycles;
      for (std::int64_t tile = 0; tile < tiles_of(products[i], c); ++tile) {
        const auto least = std::ranges::min_element(loads);
        *least += cycles;
        ++taken[i][static_cast<std::size_t>(least - loads.begin())];
      }
      std::uint16_t end = 0;
      for (std::size_t cluster = 0; cluster < clusters; ++cluster) {
        end = static_cast<std::uint16_t>(end + taken[i][cluster]);
        REQUIRE(shares.ranges[i][cluster] == end);
      }
    }
    CHECK(shares.cycles == std::ranges::max(loads));
  }
}

TEST_CASE("a launch of tiles has blocks that fill the device", "[jit][matmul_schedules]") {
  const auto scheduled = [](const MatrixProduct& p, const TileConfig& c) {
    const TiledProduct tiled = staging(p, 0, 1);
    return schedule_tiles(std::span(&tiled, 1), bf16, c, 132);
  };
  // A block for each tile, and no more than run at once.
  TileSchedule tiles = scheduled(row_major(256, 384, 512), {});
  CHECK(tiles.blocks == 6);
  CHECK(tiles.threads == 384);
  CHECK(tiles.problems.at(0).tiles_m == 2);
  CHECK(tiles.problems.at(0).tiles_n == 3);
  CHECK(tiles.problems.at(0).band == 1);  // a single wave, along the longer side
  CHECK(tiles.ranges.size() == 1);
  tiles = scheduled(row_major(8192, 4096, 64), {});
  CHECK(tiles.blocks == 132);
  CHECK(tiles.problems.at(0).band == 8);
  CHECK(scheduled(row_major(200, 136, 512), {.splits = 4}).blocks == 16);
  tiles = scheduled(row_major(200, 136, 512), {.cluster_m = 2});
  CHECK(tiles.blocks == 4);
  CHECK(tiles.problems.at(0).tiles_m == 1);
  CHECK(scheduled(row_major(256, 256, 64), {.consumers = 1, .blocks = 2}).threads == 160);
  for (const TileConfig& c : tile_choices()) {
    INFO(to_string(c));
    tiles = scheduled(row_major(1000, 1000, 1000), c);
    CHECK(tiles.shared_bytes <= 227 * 1024);
    CHECK(tiles.blocks % (c.cluster_m * c.cluster_n * c.splits) == 0);
  }
  // Matrices of a batch, and factors that all of them share.
  MatrixProduct batch = row_major(64, 64, 64);
  add_batch(batch, 3, 4096, 0, 4096);
  add_batch(batch, 5, 3 * 4096, 4096, 3 * 4096);
  const TileProblem problem = scheduled(batch, {}).problems.at(0);
  CHECK(problem.batches == 15);
  CHECK(problem.inner_batches == 5);
  CHECK(problem.outer_a == 1);
  CHECK(problem.inner_a == 1);
  CHECK(problem.outer_b == 0);
  CHECK(problem.inner_b == 1);
  // Several products: a range of the tiles of each by cluster.
  const TiledProduct both[] = {staging(row_major(256, 128, 64), 0, 1),
                               staging(row_major(128, 128, 64), 0, 1)};
  tiles = schedule_tiles(both, bf16, {.ping_pong = true}, 132);
  CHECK(tiles.blocks == 3);
  CHECK(tiles.problems.size() == 2);
  CHECK(tiles.ranges.size() == 2);
}

TEST_CASE("A in registers leaves them for the sums", "[jit][matmul_schedules]") {
  for (const std::int64_t m : {64, 512, 1024, 4096}) {
    for (const std::int64_t n : {64, 384, 1024, 4096}) {
      for (const bool reduces : {false, true}) {
        MatrixProduct p = both_along_k(m, n, 2048);
        p.a = {1, m, {}};
        const TileConfig c = choose_tiles(std::span(&p, 1), f32, 132, reduces);
        INFO(to_string(c));
        CHECK(takes_a_in_registers(c));
        CHECK((!reduces || takes_reductions(c)));
      }
    }
  }
}

TEST_CASE("tiles leave shared memory for two stages", "[jit][matmul_schedules]") {
  // Boxes of staged tensors take stages of factors.
  const TileConfig wide{.tile_m = 256, .tile_n = 128};
  const auto stages = [&](std::size_t inputs, std::size_t outputs) {
    const TiledProduct tiled = staging(row_major(4096, 4096, 4096), inputs, outputs);
    return stages_of(wide, std::span(&tiled, 1));
  };
  CHECK(stages(0, 0) == 4);
  CHECK(stages(0, 1) == 4);
  CHECK(stages(1, 1) == 3);
  CHECK(stages(2, 2) == 2);
  const TiledProduct two = staging(row_major(256, 256, 64), 0, 2);
  CHECK_THROWS_WITH(schedule_tiles(std::span(&two, 1), bf16, {.blocks = 3}, 132),
                    Catch::Contains("expected shared memory for two stages"));
  for (const DType dtype : {bf16, f32}) {
    for (const std::int64_t m : {64, 512, 4096}) {
      for (const std::int64_t k : {64, 512, 4096}) {
        const TiledProduct tiled = staging(both_along_k(m, 1536, k), 2, 2);
        const TileConfig c = choose_fitting_tiles(std::span(&tiled, 1), dtype, 132);
        INFO(to_string(c));
        CHECK(stages_of(c, std::span(&tiled, 1)) >= 2);
      }
    }
  }
  TiledProduct reducing = staging(row_major(1024, 1024, 4096), 0, 1);
  reducing.epilogue.reduces = true;
  CHECK(takes_reductions(choose_fitting_tiles(std::span(&reducing, 1), bf16, 132)));
}

TEST_CASE("an f32 epilogue moves tensors with elements adjacent along m",
          "[jit][matmul_schedules]") {
  const std::int64_t m = 512, n = 256, k = 1024;
  const BodySpec of_f32 = residual_of(f32, f32, m, n, k);
  const std::vector<Dims> along_k = {{k, 0, 1}, {0, k, 1}, {0, 1, 0}, {1, m, 0}, {1, m, 0}};
  const auto product = contraction_of({of_f32, along_k});
  REQUIRE(product);
  CHECK(tiles_support({of_f32, along_k}, *product, true));
  const BodyEpilogue epilogue = body_epilogue({of_f32, along_k}, *product, ~0u);
  CHECK(epilogue.staged == std::vector<int>{3, 4});
  CHECK(epilogue.tile.outputs[0].col == m);
  CHECK_THAT(epilogue.tile.text, Catch::Contains("kTransposedInputs = 1, kTransposedOutputs = 1"));
}

TEST_CASE("an epilogue moves each operand as its layout allows", "[jit][matmul_schedules]") {
  const std::int64_t m = 512, n = 256, k = 1024;
  const BodySpec spec = residual_of(bf16, bf16, m, n, k);
  const std::vector<Dims> strides = strides_of_residual(n, k);
  const auto c = contraction_of({spec, strides});
  REQUIRE(c);
  CHECK(tiles_support({spec, strides}, *c, true));
  CHECK_FALSE(tiles_support({spec, strides}, *c, false));
  const auto addresses_of = [](const BodyEpilogue& epilogue) {
    std::vector<std::pair<std::size_t, int>> found;
    for (const BodyEpilogue::Address& each : epilogue.addresses) {
      CHECK(epilogue.words.at(each.word) == 0);
      found.emplace_back(each.word, each.operand);
    }
    return found;
  };
  SECTION("residual and result by the copy engine, the bias once a column") {
    const BodyEpilogue epilogue = body_epilogue({spec, strides}, *c, ~0u);
    CHECK(epilogue.staged == std::vector<int>{3, 4});
    REQUIRE(epilogue.tile.inputs.size() == 1);
    CHECK(epilogue.tile.inputs[0].row == n);
    CHECK(epilogue.tile.outputs.size() == 1);
    CHECK(epilogue.tile.staged == bf16);
    CHECK_FALSE(epilogue.tile.reduces);
    CHECK(addresses_of(epilogue) == std::vector<std::pair<std::size_t, int>>{{0, 2}});
    // Its stride, elements of a matrix and of a row.
    CHECK(epilogue.words.at(1) == 1);
    CHECK(epilogue.words.at(2) == static_cast<std::uint64_t>(m * n));
    CHECK(epilogue.words.at(3) == static_cast<std::uint64_t>(n));
    CHECK_THAT(epilogue.tile.text, Catch::Contains("kInputs = 1, kOutputs = 1"));
    CHECK_THAT(epilogue.tile.text, !Catch::Contains("i64 offset["));
  }
  SECTION("element by element at other addresses") {
    const BodyEpilogue epilogue = body_epilogue({spec, strides}, *c, ~(1u << 3));
    CHECK(epilogue.staged == std::vector<int>{4});
    CHECK(epilogue.tile.inputs.empty());
    CHECK(addresses_of(epilogue) == std::vector<std::pair<std::size_t, int>>{{0, 2}, {2, 3}});
    CHECK_THAT(epilogue.tile.text, Catch::Contains("widen(in3[offset[3]])"));
  }
  SECTION("sums of a factor's lines") {
    const BodySpec gradient = weight_gradient_of(bf16, m, n, k);
    const std::vector<Dims> of_gradient = strides_of_weight_gradient(m, n);
    const auto product = contraction_of({gradient, of_gradient});
    REQUIRE(product);
    CHECK(product->first_column == 2);
    CHECK(tiles_support({gradient, of_gradient}, *product, true));
    const BodyEpilogue epilogue = body_epilogue({gradient, of_gradient}, *product, ~0u);
    CHECK(epilogue.tile.reduces);
    CHECK(epilogue.staged == std::vector<int>{2});
    CHECK(addresses_of(epilogue) == std::vector<std::pair<std::size_t, int>>{{0, 3}});
    CHECK_THAT(epilogue.tile.text, Catch::Contains("store_line"));
    // Not beside a factor with adjacent elements along the sum.
    std::vector<Dims> along_k = of_gradient;
    along_k[0] = {k, 0, 1};
    const auto other = contraction_of({gradient, along_k});
    REQUIRE(other);
    CHECK_FALSE(tiles_support({gradient, along_k}, *other, true));
  }
}
