// The choice of tiles for products by a model of the time that they take, and which block computes
// which tiles.
#include "brrr/ops/jit/tiles.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "brrr/ops/jit/geometry.h"

namespace brrr::jit {
namespace {

// Each is the fastest for some product of a transformer's or an MLP's step. On a tie the first: in
// a single wave ping-pong has nothing to overlap, and half as many warps for the epilogue.
constexpr TileConfig kChoices[] = {
    {.tile_m = 128, .tile_n = 128},
    {.tile_m = 128, .tile_n = 128, .ping_pong = true},
    {.tile_m = 128, .tile_n = 128, .ping_pong = true, .cluster_m = 2},
    {.tile_m = 128, .tile_n = 192, .ping_pong = true},
    {.tile_m = 256, .tile_n = 128},
    {.tile_m = 128, .tile_n = 256},
    {.tile_m = 64, .tile_n = 128, .ping_pong = true},
    {.tile_m = 128, .tile_n = 64, .ping_pong = true},
    {.tile_m = 128, .tile_n = 128, .splits = 2},
    {.tile_m = 128, .tile_n = 128, .splits = 4},
    {.tile_m = 128, .tile_n = 64, .splits = 2},
};

// Blocks that run at once. Clusters of four leave multiprocessors of a group of 16 or 18 idle.
std::int64_t slots_of(const TileConfig& c, int multiprocessors) {
  const int cluster = c.cluster_m * c.cluster_n * c.splits;
  const std::int64_t all = std::int64_t{multiprocessors} * c.blocks / cluster;
  return std::max<std::int64_t>(1, cluster > 2 ? all * 10 / 11 : all);
}

std::int64_t waves_of(const MatrixProduct& p, const TileConfig& c, int multiprocessors) {
  return ceil_div(tiles_of(p, c), slots_of(c, multiprocessors));
}

// Cycles: until the first slice of a tile is there, and until the blocks of a cluster have met.
constexpr std::int64_t kTileStart = 600, kClusterStart = 1500;
std::int64_t cycles_of_products(const MatrixProduct& p, DType dtype, const TileConfig& c) {
  constexpr std::int64_t kBytesPerCycle = 56;  // into a multiprocessor, from the L2
  const std::int64_t slices = ceil_div(ceil_div(p.k, slice_of(dtype)), c.splits);
  const std::int64_t load =
      (c.tile_m / c.cluster_n + c.tile_n / c.cluster_m) * kSliceBytes / kBytesPerCycle;
  return slices * std::max<std::int64_t>(c.tile_m * c.tile_n / 32, load);
}
std::int64_t cycles_of_epilogue(DType dtype, const TileConfig& c) {
  return c.tile_m * c.tile_n * static_cast<std::int64_t>(size_of(dtype)) / 16 / c.splits;
}

std::int64_t cycles_of(const MatrixProduct& p, DType dtype, const TileConfig& c,
                       int multiprocessors) {
  constexpr std::int64_t kJoin = 4000;
  const std::int64_t waves = waves_of(p, c, multiprocessors);
  const std::int64_t products = cycles_of_products(p, dtype, c),
                     epilogue = cycles_of_epilogue(dtype, c);
  std::int64_t cycles = waves * kTileStart;
  if (waves == 1 || !c.ping_pong) {
    cycles += waves * (products + epilogue);
  } else {
    cycles += waves * std::max(products, epilogue) + epilogue;
  }
  if (c.cluster_m * c.cluster_n * c.splits > 1) cycles += kClusterStart;
  if (c.splits > 1) cycles += c.tile_m * c.tile_n * kJoin / (128 * 128);
  return cycles;
}

// Tiles of one product: how many, and what each costs.
struct TileCost {
  std::int64_t tiles, cycles;
};
TileCost cost_of(const MatrixProduct& p, DType dtype, const TileConfig& c) {
  const std::int64_t busy = std::max(cycles_of_products(p, dtype, c), cycles_of_epilogue(dtype, c));
  return {tiles_of(p, c), kTileStart + busy};
}

}  // namespace

std::int64_t tiles_of(const MatrixProduct& p, const TileConfig& c) {
  return ceil_div(p.m, c.tile_m * c.cluster_m) * ceil_div(p.n, c.tile_n * c.cluster_n) *
         p.batches();
}

namespace {

// What clusters have to do, by ranges of clusters with equally much. The next tile goes to the one
// that has the least, the first among equals.
class ClusterLoads {
 public:
  explicit ClusterLoads(std::int64_t clusters) { loads_.push({0, 0, clusters}); }

  void add(const TileCost& of, TileRanges& ranges) {
    for (std::int64_t left = of.tiles; left > 0;) {
      const auto [cycles, first, count] = loads_.top();
      loads_.pop();
      const std::int64_t taken = std::min(left, count);
      for (std::int64_t i = first; i < first + taken; ++i) ++ranges[static_cast<std::size_t>(i)];
      loads_.push({cycles + of.cycles, first, taken});
      most_ = std::max(most_, cycles + of.cycles);
      if (taken < count) loads_.push({cycles, first + taken, count - taken});
      left -= taken;
    }
  }
  std::int64_t most() const { return most_; }

 private:
  using Load = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // cycles, first, count
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads_;
  std::int64_t most_ = 0;
};

}  // namespace

// The longest tiles first.
TileShares share_tiles(std::span<const MatrixProduct> products, DType dtype, const TileConfig& c,
                       int multiprocessors) {
  std::vector<TileCost> costs;
  std::int64_t tiles = 0;
  for (const MatrixProduct& p : products) {
    costs.push_back(cost_of(p, dtype, c));
    tiles += costs.back().tiles;
  }
  TileShares shares;
  shares.clusters = std::min({tiles, slots_of(c, multiprocessors), std::int64_t{kMostClusters}});
  shares.ranges.assign(costs.size(), TileRanges{});
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return costs[i].cycles; });
  ClusterLoads loads(shares.clusters);
  for (const std::size_t i : order) loads.add(costs[i], shares.ranges[i]);
  shares.cycles = loads.most();
  for (TileRanges& ends : shares.ranges) {
    for (std::size_t cluster = 1; cluster < ends.size(); ++cluster)
      ends[cluster] = static_cast<std::uint16_t>(ends[cluster] + ends[cluster - 1]);
  }
  return shares;
}

std::span<const TileConfig> tile_choices() { return kChoices; }

std::int64_t predicted_cycles(std::span<const MatrixProduct> products, DType dtype,
                              const TileConfig& c, int multiprocessors) {
  if (products.size() == 1) return cycles_of(products[0], dtype, c, multiprocessors);
  return share_tiles(products, dtype, c, multiprocessors).cycles + cycles_of_epilogue(dtype, c) +
         (c.cluster_m * c.cluster_n > 1 ? kClusterStart : 0);
}

// A thread executes a FLOP of the epilogue in 5.5 cycles, with what it loads, converts and stores.
std::int64_t epilogue_cycles(const MatrixProduct& p, DType dtype, std::int64_t flops,
                             int multiprocessors) {
  constexpr std::int64_t kHalfCyclesOfFlop = 11, kThreads = 128;
  constexpr TileConfig kTiles{.ping_pong = true};
  const std::int64_t more =
                         kTiles.tile_m * kTiles.tile_n / kThreads * flops * kHalfCyclesOfFlop / 2,
                     beside = cycles_of_products(p, dtype, kTiles),
                     longer = cycles_of_epilogue(dtype, kTiles) + more - beside;
  return more + (waves_of(p, kTiles, multiprocessors) - 1) * std::max<std::int64_t>(longer, 0);
}

namespace {

int sums_of_thread(const TileConfig& c) {
  return c.tile_m * c.tile_n / (c.ping_pong ? 128 : 128 * c.consumers);
}

}  // namespace

bool takes_a_in_registers(const TileConfig& c) {
  return c.consumers == 2 && c.blocks == 1 && sums_of_thread(c) <= 128;
}

bool takes_reductions(const TileConfig& c) {
  // Registers are shared among sums of a consumer's thread, and lines of a reducer's.
  return c.consumers == 2 && c.blocks == 1 && c.splits == 1 && c.cluster_n == 1 &&
         sums_of_thread(c) <= 128 && c.tile_m <= 128;
}

TileConfig choose_tiles(std::span<const MatrixProduct> products, DType dtype, int multiprocessors,
                        bool reduces) {
  const bool in_registers = std::ranges::any_of(
      products, [&](const MatrixProduct& p) { return has_a_in_registers(p, dtype); });
  TileConfig best;
  std::int64_t least = INT64_MAX;
  for (const TileConfig& c : kChoices) {
    if ((products.size() > 1 && !c.ping_pong) || (reduces && !takes_reductions(c))) continue;
    if (in_registers && !takes_a_in_registers(c)) continue;
    const std::int64_t slices = ceil_div(products[0].k, slice_of(dtype));
    if (c.splits > 1 && slices < 4 * c.splits) continue;
    // Blocks of a cluster wait for one another, which nothing hides in one wave.
    if (products.size() == 1 && c.cluster_m * c.cluster_n > 1 &&
        waves_of(products[0], c, multiprocessors) == 1)
      continue;
    const std::int64_t cycles = predicted_cycles(products, dtype, c, multiprocessors);
    if (cycles < least) {
      best = c;
      least = cycles;
    }
  }
  return best;
}

TileConfig choose_fitting_tiles(std::span<const TiledProduct> products, DType dtype,
                                int multiprocessors) {
  std::vector<MatrixProduct> shapes;
  for (const TiledProduct& x : products) shapes.push_back(x.product);
  const bool reducing = any_reduces(products);
  const TileConfig best = choose_tiles(shapes, dtype, multiprocessors, reducing);
  if (stages_of(best, products) >= 2) return best;
  const TileConfig* fits = std::ranges::find_if(kChoices, [&](const TileConfig& choice) {
    return choice.splits == 1 && stages_of(choice, products) >= 2 &&
           (!reducing || takes_reductions(choice));
  });
  return fits == std::end(kChoices) ? best : *fits;
}

}  // namespace brrr::jit
