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
         (is_half(c.dtype) || (c.dtype == f32 && target.tf32)) && target.has_tiles() &&
         tiles_support(body, c, aligned);
}

// Whether the results' rows, or columns, begin at multiples of 16 bytes, as the library's fast
// kernels store them.
bool has_aligned_results(const BodyStrides& body, const Contraction& c) {
  const auto size = static_cast<int64_t>(size_of(c.dtype));
  const std::size_t inputs = body.spec.body.inputs.size();
  for (std::size_t o = inputs; o < body.strides.size(); ++o) {
    if ((c.first_row | c.first_column) >> (o - inputs) & 1) continue;
    const std::optional<int64_t> row = joint_stride(body.spec, body.strides[o], c.roles.rows),
                                 col = joint_stride(body.spec, body.strides[o], c.roles.columns);
    if (!row || !col) continue;
    if (!(*col == 1 && *row * size % 16 == 0) && !(*row == 1 && *col * size % 16 == 0))
      return false;
  }
  return true;
}

// Cycles of products of one launch of tiles. `reduces`: one of them also reduces the lines of A.
int64_t cycles_of(std::span<const MatrixProduct> products, DType dtype, int multiprocessors,
                  bool reduces = false) {
  const TileConfig tiles = choose_tiles(products, dtype, multiprocessors, reduces);
  return predicted_cycles(products, dtype, tiles, multiprocessors);
}

constexpr int64_t kLaunchCycles = 2500;  // of a node of a graph, which is saved

// Tiles of both products keep all multiprocessors busy where those of each would leave some idle,
// and the epilogues of one overlap with the products of the other. In 16 bits a product alone is
// the library's, which is faster than tiles where no multiprocessor is idle anyway. Of large
// products the library's tiles load less from the L2.
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

// In TF32 a slice has half as many elements of k, so the sum takes twice as much of the product's
// time; and an activation's gradient that does not sum its columns is shorter.
bool is_worth_reducing_tf32(const MatrixProduct& p, int multiprocessors) {
  constexpr int64_t kLeastDepth = 2048, kMostCycles = 5000;
  const std::span<const MatrixProduct> product(&p, 1);
  return p.k >= kLeastDepth && cycles_of(product, f32, multiprocessors, true) <=
                                   cycles_of(product, f32, multiprocessors) + kMostCycles;
}

// Whether tiles reduce the lines of A beside a product for less than a kernel of its own takes.
// Their results end each tile, so a tile needs many slices; and tiles that split the summed
// dimension reduce nothing. What is reduced is the gradient of a bias, the product that of a
// weight: it shares a launch with the gradient of the layer's input where that is faster, and then
// is not split anyway.
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
// of their own, which loads and stores the results once more.
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

// Tiles are about as fast as the library. A residual in the epilogue takes a fraction of a kernel
// of its own; a function such as exp takes no less than there. Of long products tiles are slower
// than the library, more so with tensors to stage, which take memory from stages of factors; but
// not where the library has to store results that are not aligned.
bool is_generated(const BodyStrides& body, bool aligned, const MatmulTarget& target) {
  constexpr int64_t kMostOfResult = 8;  // FLOPs after the product
  constexpr int64_t kMostFlops = int64_t{1} << 37;
  const std::optional<Contraction> c = contraction_for(body, target);
  if (!c) return false;
  if (is_small(*c, target)) return true;
  const MatrixProduct& p = c->product;
  const int64_t flops = body.spec.flops;
  if (!is_for_tiles(body, *c, aligned, target)) return false;
  if (flops > kMostFlops && has_aligned_results(body, *c)) return false;
  if (has_a_in_registers(p, c->dtype) && flops > kMostFlopsOfRegisters) return false;
  const bool reduces = c->first_column != 0;
  if (reduces && !is_worth_reducing(p, c->dtype, target.multiprocessors)) return false;
  const int64_t results = p.batches() * p.m * p.n;
  const int64_t after = flops - 2 * results * p.k - (reduces ? p.m * p.k : 0);
  return after <= kMostOfResult * results ||
         (c->dtype == f32 && is_worth_in_epilogue(p, after / results, target.multiprocessors));
}

// A batch with two strides would be a library call for each outer index, or copies. Short TF32
// products with factors adjacent along k take less time in tiles than in the library, 16-bit
// products no less; and the library is slow where results are not aligned.
bool is_better_alone(const BodyStrides& body, bool aligned, const MatmulTarget& target) {
  constexpr int64_t kMostFlops = int64_t{1} << 35;
  const std::optional<Contraction> c = contraction_for(body, target);
  if (!c || is_small(*c, target)) return false;
  const MatrixProduct& p = c->product;
  const bool is_short =
      c->dtype == f32 &&
      body.spec.flops <= (has_a_in_registers(p, c->dtype) ? kMostFlopsOfRegisters : kMostFlops);
  const bool fills_tiles = std::min(p.m, p.n) >= 64;
  return (p.batch.size() > 1 || (fills_tiles && (is_short || !has_aligned_results(body, *c)))) &&
         is_for_tiles(body, *c, aligned, target);
}

// Blocks wait for memory most of their time, so four share a multiprocessor. Tiles take all.
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
