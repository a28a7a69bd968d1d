#include "brrr/ops/jit/contraction_choice.h"

#include <algorithm>
#include <array>

#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/small_product.h"
#include "brrr/ops/jit/tile_epilogue.h"

namespace brrr::jit {
namespace {

using std::int64_t;

bool is_small(const Contraction& c, const MatmulTarget& target) {
  return is_small(c.product, c.dtype, target.tf32);
}

bool is_for_tiles(const BodyStrides& body, const Contraction& c, bool aligned,
                  const MatmulTarget& target) {
  return !has_computed_factor(body.spec.body) &&
         (is_half(c.dtype) || (c.dtype == f32 && target.tf32)) && target.architecture == 90 &&
         tiles_support(body, c, aligned);
}

// Cycles of products of one launch of tiles. `reduces`: one of them also reduces the lines of A.
int64_t cycles_of(std::span<const MatrixProduct> products, DType dtype, int multiprocessors,
                  bool reduces = false) {
  const TileConfig tiles = choose_tiles(products, dtype, multiprocessors, reduces);
  return predicted_cycles(products, dtype, tiles, multiprocessors);
}

constexpr int64_t kLaunchCycles = 2500;  // of a launch that is saved, about 1.3 us

// Tiles of both products keep all multiprocessors busy where those of each would leave some idle,
// and the epilogues of one overlap with the products of the other. In 16 bits a product alone is
// the library's, which is faster than tiles where no multiprocessor is idle anyway: on an H100 a
// transformer's step of 8 x 1024 x 1024 x 4 takes 6844 us where pairs that save less are apart,
// 7016 where they are not (nvidia-h100-2026-11-26-rows-with-columns.json). Of large products the
// library's tiles load less from the L2: on an H200 the gradients of 8192 x 1024 by 3072 x 1024
// take 167 to 176 us together; apart 65 and 66, and the sum for the bias. Steps of an MLP of 4096 x
// 2048 x 6 take 1102 and 1088 us (nvidia-h200-2026-11-27-attention.json).
bool are_faster_in_one_launch(const std::array<MatrixProduct, 2>& products, DType dtype,
                              int multiprocessors, bool reduces = false) {
  constexpr int64_t kLibraryPercent = 96;  // of the time of tiles
  constexpr int64_t kMostFlops = int64_t{3} << 33;
  const auto is_large = [](const MatrixProduct& p) {
    return 2 * p.batches() * p.m * p.n * p.k > kMostFlops;
  };
  if (is_half(dtype) && std::ranges::any_of(products, is_large)) return false;
  const std::span<const MatrixProduct> both = products;
  const int64_t apart = cycles_of(both.first(1), dtype, multiprocessors) +
                        cycles_of(both.last(1), dtype, multiprocessors);
  return cycles_of(both, dtype, multiprocessors, reduces) <
         (is_half(dtype) ? apart * kLibraryPercent / 100 : apart) + kLaunchCycles;
}

// In TF32 a slice has half as many elements of k, and an activation's gradient that does not sum
// its columns takes 4 us less. Steps of MLPs on an H100 with bias gradients in the products and
// beside the activations' gradients, in us: 2048 x 1024 x 8 647 and 675, 2048 x 768 x 6 370 and
// 385, 1024 x 1024 x 8 488 and 472 (nvidia-h100-2026-11-26-tf32-steps.json).
bool is_worth_reducing_tf32(const MatrixProduct& p, int multiprocessors) {
  constexpr int64_t kLeastDepth = 2048, kMostCycles = 5000;
  const std::span<const MatrixProduct> product(&p, 1);
  return p.k >= kLeastDepth && cycles_of(product, f32, multiprocessors, true) <=
                                   cycles_of(product, f32, multiprocessors) + kMostCycles;
}

// Whether tiles reduce the lines of A beside a product for less than the 5 us of a kernel of its
// own. Their results end each tile, so a tile needs many slices; and tiles that split the summed
// dimension reduce nothing. What is reduced is the gradient of a bias, the product that of a
// weight: it shares a launch with the gradient of the layer's input where that is faster, and then
// is not split anyway. Steps of 16-bit models on an H200 with bias gradients in the products and on
// their own, in us: MLPs of 2048 x 1024 x 8 274 and 305, 1024 x 1024 x 8 201 and 230; a transformer
// of 8 x 512 x 512 x 4 1216 and 1247; with 8 slices, MLPs of 512 x 2048 x 6 289 and 288; in place
// of splits, 4096 x 512 x 8 304 and 277 (nvidia-h200-2026-11-25-line-sums.json).
bool is_worth_reducing(const MatrixProduct& p, DType dtype, int multiprocessors) {
  constexpr int64_t kLeastDepth = 1024, kMostCycles = 1000;
  if (dtype == f32) return is_worth_reducing_tf32(p, multiprocessors);
  if (p.k < kLeastDepth) return false;
  MatrixProduct of_input;
  of_input.m = p.k, of_input.n = p.n, of_input.k = p.m;
  const std::array both{of_input, p};
  const auto takes_as_long = [&](std::span<const MatrixProduct> products) {
    return cycles_of(products, dtype, multiprocessors, true) <=
           cycles_of(products, dtype, multiprocessors) + kMostCycles;
  };
  return takes_as_long(std::span(both).last(1)) ||
         (are_faster_in_one_launch(both, dtype, multiprocessors) && takes_as_long(both));
}

// Whether `flops` for each result of a TF32 product take less time in its epilogue than in a kernel
// of their own, which loads and stores the results once more at about 190 a cycle.
bool is_worth_in_epilogue(const MatrixProduct& p, int64_t flops, int multiprocessors) {
  constexpr int64_t kResultsOfCycle = 190;
  const int64_t results = p.batches() * p.m * p.n;
  return epilogue_cycles(p, f32, flops, multiprocessors) <=
         results / kResultsOfCycle + kLaunchCycles;
}

}  // namespace

std::optional<Contraction> contraction_for(const BodyStrides& body, const MatmulTarget& target) {
  std::optional<Contraction> c = contraction_of(body);
  if (!c || c->dtype != f32 || is_small(*c, target) || tiles_support(c->product, f32, true))
    return c;
  std::optional<Contraction> swapped = contraction_of(body, true);
  return swapped && tiles_support(swapped->product, f32, true) ? swapped : c;
}

// Tiles are about as fast as the library. Measured on an H200, bf16 4096 x 2048 x 512: a residual
// costs 1 to 1.5 us of what a kernel of its own takes; a gelu, with its exponential and two
// results, 9 to 12, no less than a kernel of its own; steps take as long or 1 % longer. Of long
// products tiles are slower: 8192 x 4096 x 4096 takes 367 us where the library takes 350, and 483
// with three tensors to stage, which take memory from stages of factors
// (nvidia-h200-2026-11-23-column-sums.json, -25-tiled-launches.json).
bool is_generated(const BodyStrides& body, bool aligned, const MatmulTarget& target) {
  constexpr int64_t kMostOfResult = 8;  // FLOPs after the product
  constexpr int64_t kMostFlops = int64_t{1} << 37;
  const std::optional<Contraction> c = contraction_for(body, target);
  if (!c) return false;
  if (is_small(*c, target)) return true;
  const MatrixProduct& p = c->product;
  const int64_t flops = body.spec.flops;
  if (flops > kMostFlops || !is_for_tiles(body, *c, aligned, target)) return false;
  if (has_a_in_registers(p, c->dtype) && flops > kMostFlopsOfRegisters) return false;
  const bool reduces = c->first_column != 0;
  if (reduces && !is_worth_reducing(p, c->dtype, target.multiprocessors)) return false;
  const int64_t results = p.batches() * p.m * p.n;
  const int64_t after = flops - 2 * results * p.k - (reduces ? p.m * p.k : 0);
  return after <= kMostOfResult * results ||
         (c->dtype == f32 && is_worth_in_epilogue(p, after / results, target.multiprocessors));
}

// A batch with two strides would be a library call for each outer index, or copies. TF32 products
// with K-major factors take 0.79 to 1.01 of the library's time up to 9 Gflop, 1.03 at 275
// (bench/results/nvidia-h200-2026-11-22-tiles.json). 16-bit products take as long as the library's
// in isolation, but made steps 4 % slower (nvidia-h200-2026-11-23-steps.json).
bool is_better_alone(const BodyStrides& body, bool aligned, const MatmulTarget& target) {
  constexpr int64_t kMostFlops = int64_t{1} << 35;
  const std::optional<Contraction> c = contraction_for(body, target);
  if (!c || is_small(*c, target)) return false;
  const MatrixProduct& p = c->product;
  const bool is_measured =
      c->dtype == f32 && std::min(p.m, p.n) >= 64 &&
      body.spec.flops <= (has_a_in_registers(p, c->dtype) ? kMostFlopsOfRegisters : kMostFlops);
  return (p.batch.size() > 1 || is_measured) && is_for_tiles(body, *c, aligned, target);
}

// Blocks wait for memory most of their time, so four share a multiprocessor: on an H200 the step of
// 8 layers of 256 x 256 with 128 rows takes 58.3 us where 384 blocks are one launch and 63.6 where
// they are two, in bf16 47.7 and 55.2 (nvidia-h200-2026-11-24-small-steps.json). Tiles take all.
double share_of_device(const BodyStrides& body, const MatmulTarget& target) {
  constexpr double kBlocksOfMultiprocessor = 4;
  const std::optional<Contraction> c = contraction_of(body);
  if (!c || !is_small(*c, target)) return 1;
  return static_cast<double>(small_grid(c->product).blocks()) /
         (kBlocksOfMultiprocessor * target.multiprocessors);
}

namespace {

bool fits_tile_ranges(const MatrixProduct& p) {
  constexpr int64_t kMostTiles = 65535;  // what a TileRanges counts to
  return p.batches() * ceil_div(p.m, 64) * ceil_div(p.n, 64) <= kMostTiles;
}

}  // namespace

bool are_better_together(const BodyStrides& one, const BodyStrides& other,
                         const MatmulTarget& target) {
  const std::optional<Contraction> c = contraction_for(one, target),
                                   d = contraction_for(other, target);
  if (!c || !d || is_small(*c, target) != is_small(*d, target)) return false;
  if (is_small(*c, target))
    return share_of_device(one, target) + share_of_device(other, target) <= 1;
  const std::array products{c->product, d->product};
  return d->dtype == c->dtype && std::ranges::all_of(products, fits_tile_ranges) &&
         are_faster_in_one_launch(products, c->dtype, target.multiprocessors,
                                  (c->first_column | d->first_column) != 0);
}

}  // namespace brrr::jit
