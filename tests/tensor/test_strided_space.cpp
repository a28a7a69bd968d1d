// Strided spaces: their simplest form, what it decides, and the walk through them against counting.
#include <algorithm>
#include <utility>
#include <vector>

#include "brrr/tensor/strided_space.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/catch.h"

using namespace brrr;

TEST_CASE("spaces take their simplest form", "[strided_space]") {
  const auto simplest = [](Dims shape, std::vector<std::pair<Dims, Dims>> operands) {
    StridedSpace space = space_of(shape);
    for (const auto& [dims, strides] : operands) add_operand(space, dims, strides);
    sort_dims(space);
    coalesce(space);
    return space;
  };
  SECTION("contiguous operands have one dimension") {
    const StridedSpace space =
        simplest({2, 3, 4}, {{{2, 3, 4}, {12, 4, 1}}, {{2, 3, 4}, {12, 4, 1}}});
    CHECK(space.rank == 1);
    CHECK(space.size[0] == 24);
    CHECK(space.stride[1][0] == 1);
  }
  SECTION("as have operands that are permuted alike") {
    const StridedSpace space =
        simplest({4, 3, 2}, {{{4, 3, 2}, {1, 4, 12}}, {{4, 3, 2}, {1, 4, 12}}});
    CHECK(space.rank == 1);
    CHECK(space.size[0] == 24);
  }
  SECTION("a row that is broadcast keeps two") {
    const StridedSpace space = simplest({5, 6, 7}, {{{5, 6, 7}, {42, 7, 1}}, {{7}, {1}}});
    CHECK(space.rank == 2);
    CHECK(space.size[0] == 30);
    CHECK(space.size[1] == 7);
    CHECK(space.stride[1][0] == 0);
    CHECK(space.stride[1][1] == 1);
  }
  SECTION("only dimensions of 1 make one element") {
    const StridedSpace space = simplest({1, 1}, {{{1, 1}, {1, 1}}, {{}, {}}});
    CHECK(space.rank == 1);
    CHECK(space.count() == 1);
  }
  SECTION("vectors need sizes, strides and addresses that are multiples") {
    StridedSpace space = simplest({5, 12}, {{{5, 12}, {16, 1}}, {{5, 1}, {1, 1}}});
    const std::uint8_t sizes[] = {4, 4};
    const void* aligned[] = {reinterpret_cast<void*>(64), reinterpret_cast<void*>(4)};
    const void* shifted[] = {reinterpret_cast<void*>(72), reinterpret_cast<void*>(4)};
    CHECK(vector_width(space, aligned, sizes, 8) == 4);
    CHECK(vector_width(space, shifted, sizes, 8) == 2);
    space.stride[0][0] = 17;
    CHECK(vector_width(space, aligned, sizes, 8) == 1);
  }
}

TEST_CASE("a space is narrow while the furthest offset of each operand is", "[strided_space]") {
  const std::int64_t most = INT32_MAX;
  const auto narrow = [](std::initializer_list<std::int64_t> sizes,
                         std::initializer_list<Dims> strides) {
    StridedSpace space;
    for (const std::int64_t size : sizes) space.add_dim(size);
    for (const Dims& row : strides) std::ranges::copy(row, space.stride[space.operands++]);
    return is_narrow(space);
  };
  CHECK(narrow({2}, {{most}}));
  CHECK_FALSE(narrow({2}, {{most + 1}}));
  // The extents of one operand's dimensions add up, also of those that go backwards.
  CHECK(narrow({2, 3}, {{most - 10, 5}}));
  CHECK_FALSE(narrow({2, 3}, {{most - 10, 6}}));
  CHECK_FALSE(narrow({2, 2}, {{1 << 30, 1 << 30}}));
  CHECK_FALSE(narrow({2, 2}, {{1 << 30, -(1 << 30)}}));
  CHECK_FALSE(narrow({2, 2, 2, 2}, {{1 << 29, 1 << 29, 1 << 29, 1 << 29}}));
  // Those of several operands do not.
  CHECK(narrow({2}, {{most}, {most}}));
  CHECK_FALSE(narrow({2}, {{1}, {most + 1}}));
  CHECK(narrow({most}, {{0}}));
  CHECK_FALSE(narrow({most + 1}, {{0}}));
  CHECK_FALSE(narrow({1 << 16, 1 << 16}, {{0, 0}}));
  CHECK(narrow({0, most}, {{0, 0}}));
}

TEST_CASE("a space's runs visit its elements in row-major order", "[strided_space]") {
  const Dims shape{3, 2, 4}, strides{40, -5, 2};
  StridedSpace space = space_of(shape);
  add_operand(space, shape, strides);
  std::vector<std::int64_t> offsets;
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t c = 0; c < 4; ++c) offsets.push_back(40 * a - 5 * b + 2 * c);
    }
  }
  for (std::int64_t first = 0; first < 24; ++first) {
    const Coordinates start(space, first);
    CHECK(start.offset(space, 0) == offsets[static_cast<std::size_t>(first)]);
    for (std::int64_t n = 0; first + n <= 24; ++n) {
      std::int64_t visited = 0;
      bool as_counted = true;
      each_run(space, 0, start, n, [&](std::int64_t done, std::int64_t length, std::int64_t at) {
        as_counted &= done == visited && length > 0;
        for (std::int64_t i = 0; i < length; ++i)
          as_counted &= at + 2 * i == offsets[static_cast<std::size_t>(first + visited++)];
      });
      REQUIRE(as_counted);
      REQUIRE(visited == n);
      Coordinates end = start;
      end.advance(space, n);
      if (first + n < 24)
        REQUIRE(end.offset(space, 0) == offsets[static_cast<std::size_t>(first + n)]);
    }
  }
}

TEST_CASE("chosen dimensions keep their order and all operands", "[strided_space]") {
  StridedSpace space = space_of(Dims{2, 3, 4});
  add_operand(space, Dims{2, 3, 4}, Dims{12, 4, 1});
  add_operand(space, Dims{3, 1}, Dims{5, 7});
  const StridedSpace outer = choose_dims(space, 0b101), inner = choose_dims(space, ~0b101u);
  CHECK(outer.rank == 2);
  CHECK(outer.operands == 2);
  CHECK(outer.size[1] == 4);
  CHECK(outer.stride[0][0] == 12);
  CHECK(outer.stride[1][1] == 0);
  CHECK(inner.rank == 1);
  CHECK(inner.size[0] == 3);
  CHECK(inner.stride[1][0] == 5);
}

TEST_CASE("the dimensions of a reduction are split between two spaces", "[strided_space]") {
  const Tensor x = make_tensor(f32, Dims{2, 3, 4, 5}, cpu);
  for (const bool keeps_dims : {false, true}) {
    const Tensor y = make_tensor(f32, keeps_dims ? Dims{2, 1, 4, 1} : Dims{2, 4}, cpu);
    StridedSpace kept, reduced;
    split_dims(kept, reduced, x, y, 0b1010);
    CHECK(kept.rank == 2);
    CHECK(kept.size[1] == 4);
    CHECK(kept.stride[0][1] == 5);
    CHECK(kept.stride[1][0] == 4);
    CHECK(kept.stride[1][1] == 1);
    CHECK(reduced.count() == 15);
    CHECK(reduced.stride[0][0] == 20);
  }
  // Adjacent dimensions join.
  const auto ranks = [&x](std::uint64_t mask, const Dims& results) {
    StridedSpace kept, reduced;
    split_dims(kept, reduced, x, make_tensor(f32, results, cpu), mask);
    CHECK(kept.count() * reduced.count() == 120);
    return std::pair(kept.rank, reduced.rank);
  };
  CHECK(ranks(0b1001, {3, 4}) == std::pair(1, 2));
  CHECK(ranks(0b1010, {2, 4}) == std::pair(2, 2));
  CHECK(ranks(0b1100, {2, 3}) == std::pair(1, 1));
  CHECK(ranks(0b1100, {2, 3, 1, 1}) == std::pair(1, 1));
  CHECK(ranks(0b1111, {}) == std::pair(1, 1));
}
