// Contractions: which layouts are products, which kernel each is given, how small ones load their
// factors, and what is loaded before the wait. Nothing here needs CUDA.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "brrr/ops/jit/contraction_choice.h"
#include "brrr/ops/jit/render_contraction.h"
#include "tests/harness/catch.h"
#include "tests/harness/contraction_bodies.h"
#include "tests/harness/matrix_products.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

namespace {

MatrixProduct small_product(std::int64_t m, std::int64_t n, std::int64_t k, Dims batch = {}) {
  MatrixProduct p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.batch = batch;
  return p;
}

constexpr MatmulTarget kHopper{132, 90, false}, kHopperTf32{132, 90, true}, kAmpere{108, 80, false};

}  // namespace

TEST_CASE("contractions are found by their strides", "[jit][matmul_schedules]") {
  const BodySpec spec = layer_of(bf16, {4, 24, 32, 48});
  const Dims a = {24 * 48, 48, 0, 1}, b = {48 * 32, 0, 1, 32};
  const Dims out = {24 * 32, 32, 1, 0}, row = {0, 0, 1, 0}, of_a = {24, 1, 0, 0},
             of_b = {32, 0, 1, 0};
  SECTION("a batch of products") {
    const auto c = contraction_of({spec, std::vector<Dims>{a, b, row, out, out, of_a, of_b}});
    REQUIRE(c);
    CHECK(c->product.m == 24);
    CHECK(c->product.n == 32);
    CHECK(c->product.k == 48);
    CHECK(c->product.batch == Dims{4});
    CHECK(c->product.b.row == 32);
    CHECK(c->product.b.col == 1);
    CHECK(c->first_column == 4);  // outputs that vary along rows alone
    CHECK(c->first_row == 8);
  }
  SECTION("a batch against one matrix has its rows") {
    const auto c = contraction_of(
        {spec,
         std::vector<Dims>{{24 * 48, 48, 0, 1}, {0, 0, 1, 32}, row, out, out, of_a, {0, 0, 1, 0}}});
    REQUIRE(c);
    CHECK(c->product.m == 96);
    CHECK(c->product.batch.empty());
    CHECK(c->results.rank == 2);  // rows and columns: the added row repeats
  }
  SECTION("rows without one stride are no matrix's") {
    CHECK_FALSE(contraction_of(
        {spec,
         std::vector<Dims>{{1000 * 48, 48, 0, 1}, {0, 0, 1, 32}, row, out, out, of_a, of_b}}));
  }
  SECTION("a factor that does not vary along the sum is none") {
    CHECK_FALSE(contraction_of(
        {spec,
         std::vector<Dims>{{24 * 48, 48, 0, 0}, {48 * 32, 0, 1, 32}, row, out, out, of_a, of_b}}));
  }
}

TEST_CASE("small is a matter of type, blocks and depth", "[jit][matmul_schedules]") {
  CHECK(is_small(small_product(64, 128, 128), f32, true));
  CHECK(!is_small(small_product(64, 128, 128), f32, false));  // strict f32 has no tensor cores
  CHECK(!is_small(small_product(64, 128, 128), f64, false));
  CHECK(is_small(small_product(64, 128, 128), bf16, false));
  CHECK(is_small(small_product(64, 128, 128), f16, false));
  CHECK(is_small(small_product(1, 1, 1), f32, true));
  // 256 blocks of 16 x 16, over all matrices of a batch.
  CHECK(is_small(small_product(256, 256, 256), f32, true));
  CHECK(!is_small(small_product(257, 256, 16), f32, true));
  CHECK(is_small(small_product(16, 16, 64, {256}), f32, true));
  CHECK(!is_small(small_product(16, 16, 64, {257}), f32, true));
  CHECK(is_small(small_product(16, 16, 64, {2, 128}), f32, true));
  CHECK(!is_small(small_product(16, 16, 64, {2, 129}), f32, true));
  CHECK(!is_small(small_product(1, std::int64_t{1} << 62, 1), f32, true));
  // Fewer when they are deep, fewer yet in 16 bits.
  CHECK(is_small(small_product(128, 128, 1024), f32, true));
  CHECK(!is_small(small_product(128, 128, 1025), f32, true));
  CHECK(!is_small(small_product(256, 256, 1024), f32, true));
  CHECK(is_small(small_product(256, 256, 512), f32, true));
  CHECK(!is_small(small_product(256, 256, 512), bf16, false));
  CHECK(is_small(small_product(256, 256, 256), bf16, false));
}

TEST_CASE("a small product loads its factors as their layouts allow", "[jit][matmul_schedules]") {
  using enum OperandLayout;
  const auto layouts = [](const MatrixProduct& p, DType dtype, FactorAlignment alignment = {}) {
    const SmallSchedule schedule = small_schedule(p, dtype, alignment);
    CHECK(schedule.dtype == dtype);
    return std::pair(schedule.a, schedule.b);
  };
  CHECK(layouts(row_major(64, 64, 64), f32) == std::pair(k_contiguous, mn_contiguous));
  CHECK(layouts(both_along_k(64, 64, 64), bf16) == std::pair(k_contiguous, k_contiguous));
  // 16 bytes along the sum, or two neighbours across it, that begin at multiples of their size.
  CHECK(layouts(row_major(64, 64, 64), f32, {8, 8}) == std::pair(strided, mn_contiguous));
  CHECK(layouts(row_major(64, 64, 64), f32, {16, 4}) == std::pair(k_contiguous, strided));
  CHECK(layouts(row_major(64, 64, 64), bf16, {16, 4}) == std::pair(k_contiguous, mn_contiguous));
  CHECK(layouts(row_major(64, 64, 64), bf16, {16, 2}) == std::pair(k_contiguous, strided));
  CHECK(layouts(row_major(64, 63, 66), f32) == std::pair(strided, strided));
  MatrixProduct gaps = row_major(64, 64, 64);
  gaps.a.row = 66;
  CHECK(layouts(gaps, f32) == std::pair(strided, mn_contiguous));
  // Each matrix of a batch begins there.
  MatrixProduct batch = row_major(64, 64, 64);
  add_batch(batch, 3, 4098, 4098, 4096);
  CHECK(layouts(batch, f32) == std::pair(strided, mn_contiguous));
  add_batch(batch, 5, 0, 3, 4096);
  CHECK(layouts(batch, f32) == std::pair(strided, strided));
  // Offsets are 32 bits wide.
  MatrixProduct far = row_major(64, 64, 64);
  far.a.row = std::int64_t{1} << 25;
  CHECK(layouts(far, f32) == std::pair(strided, mn_contiguous));
  far.a.row = -64;
  CHECK(layouts(far, f32) == std::pair(strided, mn_contiguous));
  // Half as much at once of a shallow product.
  CHECK(small_schedule(row_major(64, 64, 128), f32, {}).ahead == 1);
  CHECK(small_schedule(row_major(64, 64, 132), f32, {}).ahead == 2);
  CHECK(small_schedule(row_major(64, 64, 256), bf16, {}).ahead == 1);
  CHECK(small_grid(small_product(40, 100, 8, {2, 3})).columns == 7);
  CHECK(small_grid(small_product(40, 100, 8, {2, 3})).rows == 3);
  CHECK(small_grid(small_product(40, 100, 8, {2, 3})).blocks() == 7 * 3 * 6);
}

TEST_CASE("schedules of small products have keys of their own", "[jit][matmul_schedules]") {
  using enum OperandLayout;
  std::set<std::uint64_t> keys;
  for (const DType dtype : {f32, f16, bf16}) {
    for (const OperandLayout a : {k_contiguous, mn_contiguous, strided}) {
      for (const OperandLayout b : {k_contiguous, mn_contiguous, strided}) {
        for (const int ahead : {1, 2}) keys.insert(SmallSchedule{dtype, a, b, ahead}.key());
      }
    }
  }
  CHECK(keys.size() == 3 * 3 * 3 * 2);
}

TEST_CASE("inputs of a computed factor have layouts of their own", "[jit][matmul_schedules]") {
  const Dims batch = {};
  const auto layouts = [&](std::vector<FactorLines> inputs, std::vector<DType> types,
                           std::vector<int> alignments) {
    return layouts_of(inputs, types, alignments, bf16);
  };
  const FactorLines along{48, 64, 64, 1, &batch}, across{48, 64, 1, 48, &batch},
      of_lines{48, 64, 1, 0, &batch}, of_depth{48, 64, 0, 1, &batch}, one{48, 64, 0, 0, &batch};
  using Layouts = std::vector<OperandLayout>;
  using enum OperandLayout;
  CHECK(layouts({along}, {f32}, {16}) == Layouts{k_contiguous});
  CHECK(layouts({along}, {f32}, {8}) == Layouts{strided});
  CHECK(layouts({along, along}, {f32, boolean}, {16, 8}) == Layouts{k_contiguous, k_contiguous});
  CHECK(layouts({along, across}, {f32, f32}, {16, 16}) == Layouts{k_contiguous, strided});
  CHECK(layouts({across, along}, {f32, f32}, {16, 16}) == Layouts{mn_contiguous, k_contiguous});
  CHECK(layouts({across, across}, {bf16, boolean}, {4, 16}) == Layouts{mn_contiguous, strided});
  CHECK(layouts({along, of_lines, one}, {bf16, f32, f32}, {16, 4, 4}) ==
        Layouts{k_contiguous, one_per_line, one_per_line});
  CHECK(layouts({across, of_depth}, {bf16, bf16}, {16, 16}) ==
        Layouts{mn_contiguous, k_contiguous});
  // A lane has eight elements of a line.
  const FactorLines short_lines{48, 60, 64, 1, &batch};
  CHECK(layouts({short_lines}, {f32}, {16}) == Layouts{strided});
}

TEST_CASE("a contraction loads before its wait what is final", "[jit][matmul_schedules]") {
  const BodySpec spec = residual_of(f32, f32, 64, 64, 64);
  const auto c = contraction_of({spec, strides_of_residual(64, 64)});
  REQUIRE(c);
  // `final`: inputs a, b, bias, residual, as bits.
  const auto part_of = [&](unsigned final, FactorAlignment alignment = {}) {
    return contraction_part(
        spec, *c, [&](int input) { return input == 0 ? alignment.a : alignment.b; },
        [final](int input) { return (final >> input & 1) != 0; });
  };
  const auto prefetches = [&](unsigned final, FactorAlignment alignment = {}) {
    const ContractionPart part = part_of(final, alignment);
    return std::vector<bool>{part.prefetch_a, part.prefetch_b, part.prefetch_others};
  };
  CHECK(prefetches(0) == std::vector<bool>{false, false, false});
  CHECK(prefetches(0b0010) == std::vector<bool>{false, true, false});
  CHECK(prefetches(0b0110) == std::vector<bool>{false, true, false});
  CHECK(prefetches(0b1110) == std::vector<bool>{false, true, true});
  CHECK(prefetches(0b1111) == std::vector<bool>{true, true, true});
  // Element by element a factor is read through a cache that may be stale.
  CHECK(prefetches(0b1111, {16, 4}) == std::vector<bool>{true, false, true});

  const auto order = [&](unsigned final, const char* first, const char* second) {
    const std::vector<ContractionPart> parts{part_of(final)};
    const std::string text = contraction_source(parts);
    const std::size_t run = text.find(" tile{");
    REQUIRE(run != std::string::npos);
    const std::size_t one = text.find(first, run), other = text.find(second, run);
    REQUIRE(one != std::string::npos);
    REQUIRE(other != std::string::npos);
    return one < other;
  };
  CHECK(order(0b0000, "wait_for_previous_kernel()", "tile.load(p)"));
  CHECK(order(0b0010, "tile.load_b(p)", "wait_for_previous_kernel()"));
  CHECK(order(0b0010, "wait_for_previous_kernel()", "tile.load_a(p)"));
  // With both factors the whole product comes before the wait, and stores after it.
  CHECK(order(0b1111, "tile.sum(", "wait_for_previous_kernel()"));
  CHECK(order(0b1111, "wait_for_previous_kernel()", "out0["));
}

TEST_CASE("contractions are generated where that is faster", "[jit][matmul_schedules]") {
  const auto generated = [](const BodySpec& spec, const std::vector<Dims>& strides,
                            const MatmulTarget& target, bool aligned = true) {
    return is_generated({spec, strides}, aligned, target);
  };
  const auto residual = [&](DType dtype, std::int64_t size, const MatmulTarget& target,
                            bool aligned = true) {
    return generated(residual_of(dtype, dtype, size, size, size), strides_of_residual(size, size),
                     target, aligned);
  };
  SECTION("small ones on every device, at any address") {
    CHECK(residual(bf16, 64, kAmpere, false));
    CHECK(residual(f32, 64, kHopperTf32, false));
    CHECK_FALSE(residual(f32, 64, kHopper));  // f32 has no tensor cores
    CHECK_FALSE(residual(f64, 64, kHopperTf32));
  }
  SECTION("others in tiles of Hopper's") {
    CHECK(residual(bf16, 1024, kHopper));
    CHECK_FALSE(residual(bf16, 1024, kAmpere));
    CHECK_FALSE(residual(bf16, 1024, kHopper, false));
    // In TF32 along the sum only.
    CHECK_FALSE(residual(f32, 1024, kHopperTf32));
    const BodySpec along_k = plain_product_of(f32, 1024, 1024, 1024);
    CHECK(generated(along_k, strides_along_k(1024, 1024), kHopperTf32));
    CHECK_FALSE(generated(along_k, strides_along_k(1024, 1024), kHopper));
    CHECK_FALSE(residual(bf16, 8192, kHopper));  // longer than is measured to be worth it
  }
  SECTION("with few operations after the product") {
    BodySpec spec = residual_of(bf16, bf16, 1024, 1024, 1024);
    spec.flops += 6 * 1024 * 1024;
    CHECK(generated(spec, strides_of_residual(1024, 1024), kHopper));
    spec.flops += 1024 * 1024;
    CHECK_FALSE(generated(spec, strides_of_residual(1024, 1024), kHopper));
  }
  SECTION("with operands that the copy engine moves") {
    const BodySpec mixed = residual_of(bf16, f32, 1024, 1024, 1024);
    CHECK_FALSE(generated(mixed, strides_of_residual(1024, 1024), kHopper));
    std::vector<Dims> strides = strides_of_residual(1024, 1024);
    strides[3] = {1, 1024, 0};
    CHECK_FALSE(generated(residual_of(bf16, bf16, 1024, 1024, 1024), strides, kHopper));
  }
  SECTION("with sums of a factor where they cost less than a kernel") {
    const auto gradient = [&](std::int64_t batch, std::int64_t width, DType dtype = bf16) {
      return generated(weight_gradient_of(dtype, width, width, batch),
                       strides_of_weight_gradient(width, width), kHopper);
    };
    CHECK(gradient(2048, 1024));
    CHECK_FALSE(gradient(512, 2048));  // few slices
    CHECK_FALSE(gradient(4096, 512));  // the product is split
  }
  SECTION("rows without one stride are no matrix's") {
    BodySpec spec = plain_product_of(bf16, 64, 64, 64);
    spec.dims = {8, 8, 64, 64};
    spec.reduced = 8;
    CHECK(generated(spec, {{512, 64, 0, 1}, {0, 0, 1, 64}, {512, 64, 1, 0}}, kHopper));
    CHECK_FALSE(generated(spec, {{600, 64, 0, 1}, {0, 0, 1, 64}, {512, 64, 1, 0}}, kHopper));
  }
}

TEST_CASE("TF32 products have the operations after them that take less time there",
          "[jit][matmul_schedules]") {
  const auto is_with = [&](std::int64_t m, std::int64_t flops) {
    BodySpec spec = plain_product_of(f32, m, 1024, 1024);
    spec.flops += flops * m * 1024;
    return is_generated({spec, strides_along_k(1024, 1024)}, true, kHopperTf32);
  };
  CHECK(is_with(2048, 14));  // gelu's gradient
  CHECK_FALSE(is_with(2048, 40));
  CHECK_FALSE(is_with(1024, 14));  // which is a shorter kernel
  CHECK(is_with(1024, 9));
}

TEST_CASE("tiles swap TF32 factors that they take in one order only", "[jit][matmul_schedules]") {
  const std::int64_t m = 2048, n = 512, k = 1024;
  const auto found = [&](DType dtype, const std::vector<Dims>& strides,
                         const MatmulTarget& target = kHopperTf32) {
    const auto c = contraction_for({plain_product_of(dtype, m, n, k), strides}, target);
    REQUIRE(c);
    return *c;
  };
  const std::vector<Dims> along_n = {{k, 0, 1}, {0, 1, n}, {n, 1, 0}};
  const Contraction swapped = found(f32, along_n);
  CHECK(swapped.a.first() == 1);
  CHECK(swapped.b.first() == 0);
  CHECK(swapped.product.m == n);
  CHECK(swapped.product.n == m);
  CHECK(swapped.product.a.row == 1);
  CHECK(swapped.product.a.col == n);
  CHECK(swapped.product.b.row == 1);
  CHECK(swapped.product.b.col == k);
  CHECK(is_generated({plain_product_of(f32, m, n, k), along_n}, true, kHopperTf32));
  CHECK(found(f32, strides_along_k(n, k)).a.first() == 0);
  CHECK(found(f32, {{1, 0, m}, {0, k, 1}, {n, 1, 0}}).a.first() == 0);
  CHECK(found(f32, {{1, 0, m}, {0, 1, n}, {n, 1, 0}}).a.first() == 0);  // no order is better
  CHECK(found(bf16, along_n).a.first() == 0);
  const auto small = contraction_for(
      {plain_product_of(f32, 64, 64, 64), std::vector<Dims>{{64, 0, 1}, {0, 1, 64}, {64, 1, 0}}},
      kHopperTf32);
  REQUIRE(small);
  CHECK(small->a.first() == 0);
}

TEST_CASE("a product alone is generated where the library is slower", "[jit][matmul_schedules]") {
  const auto alone = [](DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                        const MatmulTarget& target) {
    return is_better_alone({plain_product_of(dtype, m, n, k), strides_along_k(n, k)}, true, target);
  };
  CHECK(alone(f32, 1024, 1024, 1024, kHopperTf32));
  CHECK_FALSE(alone(f32, 1024, 1024, 1024, kHopper));
  CHECK_FALSE(alone(f32, 1024, 1024, 1024, {108, 80, true}));
  CHECK_FALSE(alone(f32, 32, 4096, 4096, kHopperTf32));
  CHECK_FALSE(alone(f32, 4096, 4096, 4096, kHopperTf32));  // longer than was measured
  CHECK_FALSE(alone(f32, 64, 64, 64, kHopperTf32));        // eager calls run the small kernel
  CHECK_FALSE(alone(bf16, 1024, 1024, 1024, kHopper));
  // Heads of a projection: batches with two strides.
  BodySpec heads = plain_product_of(bf16, 512, 512, 64);
  heads.dims = {8, 16, 512, 512, 64};
  heads.reduced = 16;
  const std::int64_t width = 16 * 64;
  const std::vector<Dims> strides = {{512 * width, 64, width, 0, 1},
                                     {512 * width, 64, 0, width, 1},
                                     {16 * 512 * 512, 512 * 512, 512, 1, 0}};
  CHECK(is_better_alone({heads, strides}, true, kHopper));
}

TEST_CASE("two contractions share a launch where that is faster", "[jit][matmul_schedules]") {
  const auto together = [](const BodySpec& one, const std::vector<Dims>& strides,
                           const BodySpec& other, const std::vector<Dims>& of_other,
                           const MatmulTarget& target = kHopper) {
    return are_better_together({one, strides}, {other, of_other}, target);
  };
  const auto residual = [](std::int64_t size, DType dtype = bf16) {
    return residual_of(dtype, dtype, size, size, size);
  };
  const auto strides = [](std::int64_t size) { return strides_of_residual(size, size); };
  // 8 x 8 blocks of 132 x 4.
  CHECK(share_of_device({residual(128), strides(128)}, kHopper) == 64.0 / 528);
  CHECK(share_of_device({residual(1024), strides(1024)}, kHopper) == 1);
  CHECK(together(residual(128), strides(128), residual(128), strides(128)));
  CHECK_FALSE(together(residual(128), strides(128), residual(128), strides(128), {16, 90, false}));
  CHECK_FALSE(together(residual(128), strides(128), residual(1024), strides(1024)));
  CHECK_FALSE(together(residual(1024), strides(1024), residual(1024, f16), strides(1024)));
  // Gradients of a layer's input and weight.
  const BodySpec input = plain_product_of(bf16, 2048, 1024, 1024);
  const std::vector<Dims> of_input = {{1024, 0, 1}, {0, 1, 1024}, {1024, 1, 0}};
  CHECK(together(input, of_input, weight_gradient_of(bf16, 1024, 1024, 2048),
                 strides_of_weight_gradient(1024, 1024)));
  // Large ones are the library's.
  const auto gradients_of = [&](std::int64_t rows, std::int64_t in, std::int64_t out) {
    return together(plain_product_of(bf16, rows, in, out), {{out, 0, 1}, {0, 1, in}, {in, 1, 0}},
                    weight_gradient_of(bf16, out, in, rows), strides_of_weight_gradient(out, in));
  };
  CHECK(gradients_of(8192, 1024, 1024));
  CHECK_FALSE(gradients_of(8192, 1024, 3072));
}
