// The source of the tile kernel for the products of a launch.
#include <fmt/format.h>

#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/sources.h"
#include "brrr/ops/jit/tiles.h"

namespace brrr::jit {

std::string to_string(const TileConfig& c) {
  std::string text = fmt::format("{}x{}", c.tile_m, c.tile_n);
  if (c.ping_pong) text += " ping-pong";
  if (!c.ping_pong && c.consumers == 1) text += " one consumer";
  if (c.cluster_m * c.cluster_n > 1)
    text += fmt::format(", cluster {}x{}", c.cluster_m, c.cluster_n);
  if (c.splits > 1) text += fmt::format(", {} splits", c.splits);
  if (c.blocks > 1) text += fmt::format(", {} blocks", c.blocks);
  return text;
}

namespace {

// The asynchronous instruction for 64 x n results and 32 bytes of k, as a function of the source.
std::string instruction_source(int n, DType dtype, const MatrixProduct& product) {
  const int registers = n / 2;
  const TileMajors majors = majors_of(product, dtype);
  const bool registers_a = has_a_in_registers(product, dtype);
  std::string results, operands;
  for (int i = 0; i < registers; ++i) {
    results += fmt::format("{}%{}", i ? ", " : "", i);
    operands += fmt::format("{}\"+f\"(d[{}])", i ? ", " : "", i);
  }
  const std::string_view type = dtype == f32 ? "tf32" : name_of(dtype);
  const std::string transposes =
      dtype == f32 ? "" : fmt::format(", {:d}, {:d}", majors.a == Major::mn, majors.b == Major::mn);
  const std::string a = registers_a ? fmt::format("{{%{}, %{}, %{}, %{}}}", registers,
                                                  registers + 1, registers + 2, registers + 3)
                                    : fmt::format("%{}", registers);
  const int after_a = registers + (registers_a ? 4 : 1);
  return fmt::format(
      "BRRR_FN void multiply_add(float (&d)[{0}], {1}, u64 b, bool accumulate) {{\n"
      "  asm volatile(\"{{ .reg .pred accumulate; setp.ne.u32 accumulate, %{2}, 0; "
      "wgmma.mma_async.sync.aligned.m64n{3}k{4}.f32.{5}.{5} {{{6}}}, {7}, %{8}, accumulate, 1, "
      "1{9}; }}\"\n      : {10}\n      : {11}, \"l\"(b), \"r\"(u32(accumulate)));\n}}\n",
      registers, registers_a ? "const u32 (&a)[4]" : "u64 a", after_a + 1, n, dtype == f32 ? 8 : 16,
      type, results, a, after_a, transposes, operands,
      registers_a ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])" : "\"l\"(a)");
}

// The kernel over products of the namespaces product_0, product_1 ...
std::string entry_source(std::size_t products) {
  std::string parameters, arguments;
  for (std::size_t i = 0; i < products; ++i) {
    parameters += fmt::format(
        "const __grid_constant__ TensorMap a_{0}, const __grid_constant__ TensorMap b_{0}, const "
        "__grid_constant__ product_{0}::StagedMaps maps_{0}, const __grid_constant__ TileProblem "
        "p_{0}, const __grid_constant__ product_{0}::Epilogue epilogue_{0}, ",
        i);
    arguments += fmt::format(
        ", product_{0}::Product{{a_{0}, b_{0}, p_{0}, {{epilogue_{0}, maps_{0}, p_{0}}}}}", i);
  }
  return fmt::format(
      "extern \"C\" __global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, "
      "kBlocksPerMultiprocessor)\nmatmul_tiles({}const __grid_constant__ TileRanges ranges) {{\n"
      "  compute(ranges{});\n}}\n",
      parameters, arguments);
}

// Lines of A are reduced in vectors of 16 bytes, each by one of the blocks that load it: a power of
// two for each block.
std::int64_t reduced_vectors(const TiledProduct& x, DType dtype, const TileConfig& c) {
  if (!x.epilogue.reduces) return 0;
  const std::int64_t all = c.tile_m * static_cast<std::int64_t>(size_of(dtype)) / 16;
  std::int64_t share = 1;
  while (share * ceil_div(x.product.n, c.tile_n) < all) share *= 2;
  return share;
}

// What a product has in its namespace.
std::string product_source(const TiledProduct& x, DType dtype, const TileConfig& c) {
  const TileMajors majors = majors_of(x.product, dtype);
  return fmt::format(
             "constexpr bool kMnMajorA = {}, kMnMajorB = {};\n"
             "constexpr int kReducedVectors = {};\n"
             "typedef OperandTile<kMnMajorA, kTileM, kClusterN> TileA;\n"
             "typedef OperandTile<kMnMajorB, kTileN, kClusterM> TileB;\n",
             majors.a == Major::mn, majors.b == Major::mn, reduced_vectors(x, dtype, c)) +
         instruction_source(c.tile_n, dtype, x.product) + x.epilogue.text +
         (has_a_in_registers(x.product, dtype) ? sources::matmul_tiles_a_in_registers_inl
                                               : sources::matmul_tiles_a_in_shared_inl) +
         sources::matmul_tiles_epilogue_inl + sources::matmul_tiles_product_inl;
}

}  // namespace

std::string matmul_tiles_source(const TileConfig& c, DType dtype,
                                std::span<const TiledProduct> products) {
  const StagedCounts staged = staged_counts_of(products);
  std::string text =
      pieces::typedef_of(dtype, "Element") +
      fmt::format(
          "constexpr int kTileM = {}, kTileN = {}, kStages = {}, kConsumers = {};\n"
          "constexpr bool kPingPong = {};\n"
          "constexpr int kClusterM = {}, kClusterN = {}, kSplits = {};\n"
          "constexpr int kBlocksPerMultiprocessor = {};\n"
          "constexpr int kProducts = {}, kMostInputs = {}, kMostOutputs = {}, kMostClusters = {};\n"
          "constexpr bool kAnyReduces = {};\n",
          c.tile_m, c.tile_n, stages_of(c, products), c.consumers, c.ping_pong, c.cluster_m,
          c.cluster_n, c.splits, c.blocks, products.size(), staged.inputs, staged.outputs,
          kMostClusters, any_reduces(products)) +
      sources::matmul_tiles_instructions_inl + sources::matmul_tiles_geometry_inl;
  for (std::size_t i = 0; i < products.size(); ++i)
    text += fmt::format("namespace product_{0} {{\n{1}}}  // namespace product_{0}\n", i,
                        product_source(products[i], dtype, c));
  return text + sources::matmul_tiles_cu + entry_source(products.size());
}

}  // namespace brrr::jit
