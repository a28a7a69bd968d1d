// Misuse that only values show: of an element, an index or a number.
#include <cmath>
#include <cstdint>
#include <limits>

#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/bad_input.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("indices out of range", "[bad-input]") {
  Things t;
  refuses(t, "gather past", [&] { gather(t.a, 0, t.past); }, {"[gather]", "expected", "7"});
  refuses(t, "gather below", [&] { gather(t.a, 0, t.below); }, {"[gather]", "expected", "-9"});
  refuses(t, "scatter_add past", [&] { scatter_add(t.a, 0, t.past, t.a); },
          {"[scatter_add]", "expected", "7"});
  refuses(t, "scatter_add below", [&] { scatter_add(t.a, 0, t.below, t.a); },
          {"[scatter_add]", "expected", "-9"});
  refuses(t, "index_select past", [&] { index_select(t.a, 0, t.whole); },
          {"[index_select]", "expected", "2"});
  refuses(t, "embedding past", [&] { embedding(t.a, t.past); }, {"[embedding]", "expected", "7"});
  refuses(t, "embedding below", [&] { embedding(t.a, t.below); },
          {"[embedding]", "expected", "-9"});
  refuses(t, "one_hot past", [&] { one_hot(t.past, 7); },
          {"[one_hot] expected values in [0, 6], got 7 at position 1"});
  refuses(t, "one_hot below", [&] { one_hot(t.below, 7); }, {"[one_hot]", "expected", "-9"});
  refuses(t, "select past", [&] { select(t.a, 0, 2); }, {"[select]", "expected", "2"});
  refuses(t, "select below", [&] { select(t.a, 0, -3); }, {"[select]", "expected", "-3"});
  refuses(t, "select of none", [&] { select(t.nothing, 0, 0); }, {"[select]", "expected", "0"});
}

TEST_CASE("values out of range", "[bad-input]") {
  Things t;
  refuses(t, "bernoulli above", [&] { bernoulli(t.a); },
          {"[bernoulli] expected values in [0, 1], got 2 at position 2"});
  refuses(t, "bernoulli below", [&] { bernoulli(t.half - 0.5); }, {"[bernoulli]", "got -0.5"});
  refuses(t, "bernoulli of NaN", [&] { bernoulli(full({2}, NAN)); }, {"[bernoulli]", "nan"});
  refuses(t, "bernoulli just above", [&] { bernoulli(full({2}, 1.0000001)); },
          {"got 1.0000001 at"});
  refuses(t, "bounds out of order", [&] { checked(t.nothing, 2, 0); },
          {"[checked] expected bounds in order, got 2 and 0"});
  refuses(t, "bounds of no number", [&] { checked(t.a, NAN, 2); },
          {"[checked] expected bounds in order"});
  refuses(t, "checked", [&] { checked(t.whole, 0, 2); },
          {"[checked]", "[0, 2]", "3 at position 3"});
}

TEST_CASE("an error on a CPU stream names the composite", "[bad-input]") {
  const Stream stream(cpu);
  const StreamGuard guard(stream);
  Things t;
  const auto waited = [&](const std::function<void()>& work) {
    return [&, work] {
      work();
      stream.synchronize();
    };
  };
  const auto message = [&](const std::function<void()>& work) {
    try {
      waited(work)();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  CHECK(message([&] { one_hot(t.past, 7); }).starts_with("[one_hot]"));
  CHECK(message([&] { embedding(t.a, t.past); }).starts_with("[embedding]"));
}

TEST_CASE("ranges that lead nowhere or are too long", "[bad-input]") {
  Things t;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto range = [&](Scalar from, Scalar to, Scalar by) {
    refuses(t, "arange", [&] { arange(from, to, by); }, {"[arange]", "step that leads from start"});
  };
  range(0.5, 0.0, 1.0);
  range(2.0, 1.0, INFINITY);
  range(1.0, 2.0, INFINITY);
  range(0, NAN, 1);
  range(-kMost, kMost, 1);
  refuses(t, "a step that i64 does not hold", [&] { arange(0, 3, 0.5, {.dtype = i64}); },
          {"[arange]", "i64", "0.5"});
  refuses(t, "linspace", [&] { linspace(0, 1, kMost); }, {"[linspace]", "2^53"});
  refuses(t, "linspace of bools", [&] { linspace(0, 1, 2, {.dtype = boolean}); },
          {"[linspace]", "bool"});
  refuses(t, "linspace past the type", [&] { linspace(0, 3e9, 2, {.dtype = i32}); },
          {"[linspace] expected a number that i32 holds, got 3000000000"});
  refuses(t, "linspace to no number", [&] { linspace(0, NAN, 2, {.dtype = i64}); },
          {"[linspace] expected a number that i64 holds, got nan"});
  struct Draw {
    std::int64_t low, high;
    DType dtype;
  };
  for (const Draw& draw : {Draw{0, 10, boolean}, Draw{0, 1000000, f16}, Draw{0, kMost >> 20, i32},
                           Draw{-1, 1, boolean}, Draw{0, 100000, bf16}, Draw{0, (1 << 24) + 2, f32},
                           Draw{-kMost - 1, -kMost, f64}}) {
    refuses(t, "randint", [&] { randint(draw.low, draw.high, {4}, {.dtype = draw.dtype}); },
            {"[randint]", "holds"});
  }
  CHECK(read(randint(0, 2, {100}, {.dtype = boolean})).size() == 100);
  refuses(t, "rand_like", [&] { rand_like(meta({2}, {.dtype = i64})); },
          {"[rand_like]", "floating"});
}

TEST_CASE("sizes at the ends of what a dimension can be", "[bad-input]") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Tensor vast = expand(zeros({1}, {.dtype = boolean}), {kMost});
  CHECK(chunk(vast, 3).size() == 3);
  const std::vector<Tensor> halves = split(vast, std::int64_t{1} << 62);
  REQUIRE(halves.size() == 2);
  CHECK(halves[1].numel() == kMost - (std::int64_t{1} << 62));
  CHECK(to_string(empty({std::int64_t{1} << 40, 0})) == "f32[1099511627776, 0]\n[]");
  Things t;
  CHECK(item(flip(t.scalar, 0)) == 2);
  CHECK(item(flip(t.scalar, -1)) == 2);
  refuses(t, "unslice of 0-d", [&] { unslice(t.scalar, 0, 3, 4); }, {"[unslice]", "0-d"});
  refuses(t, "split", [&] { split(t.b, {1, -1, 4}); }, {"[split]", "[1, -1, 4]"});
}

TEST_CASE("numbers out of range of an integer type", "[bad-input]") {
  Things t;
  constexpr std::int64_t kWide = std::int64_t{1} << 31;
  Tensor narrow = cast(t.whole, i32);
  for (const Scalar bad :
       {Scalar(kWide), Scalar(-kWide - 1), Scalar(2.5), Scalar(1e300), Scalar(NAN)}) {
    const Parts parts = {"expected a number that i32 holds, got "};
    refuses(t, "full", [&] { full({2}, bad, {.dtype = i32}); }, {"[full]", parts[0]});
    refuses(t, "full_like", [&] { full_like(narrow, bad); }, {"[full_like]", parts[0]});
    refuses(t, "fill_", [&] { fill_(narrow, bad); }, {"[fill_]", parts[0]});
    refuses(t, "arange", [&] { arange(bad, 7, {.dtype = i32}); }, {"[arange]"});
  }
  refuses(t, "a flag of 2", [&] { fill_(t.flags, 2); }, {"[fill_]", "bool", "2"});
  refuses(t, "2^63", [&] { fill_(t.whole, 0x1p63); }, {"[fill_]", "i64", "9.2"});
  refuses(t, "2^64 - 1", [&] { t.whole + ~std::uint64_t{0}; },
          {"[number]", "2^63", "18446744073709551615"});
  refuses(t, "add", [&] { narrow + kWide; },
          {"[add] expected a number that i32 holds, got 2147483648"});
  refuses(t, "lt", [&] { lt(narrow, kWide); }, {"[lt]", "i32", "2147483648"});
  refuses(t, "add_", [&] { add_(narrow, kWide); }, {"[add_]", "i32", "2147483648"});
  refuses(t, "clamp", [&] { clamp(narrow, -kWide - 1, 7); }, {"[clamp]", "i32", "-2147483649"});
  refuses(t, "masked_fill", [&] { masked_fill(narrow, gt(narrow, 0), kWide); },
          {"[masked_fill]", "i32", "2147483648"});
  refuses(t, "arange past the type", [&] { arange(kWide - 2, kWide + 2, {.dtype = i32}); },
          {"[arange]", "i32", "2147483649"});
  CHECK(read(full({1}, -kWide, {.dtype = i32})) == Values{-2147483648.0});
  CHECK(read(full({1}, 3.0, {.dtype = i32})) == Values{3});
  CHECK(item<std::int64_t>(full({}, 0x1p62, {.dtype = i64})) == kWide << 31);
  CHECK(read(arange(kWide - 2, kWide, {.dtype = i32})) == Values{2147483646.0, 2147483647.0});
}

TEST_CASE("numbers out of range of a floating type", "[bad-input]") {
  Things t;
  const Tensor mask = t.a > 1;
  const auto refused = [&](DType dtype, double number, const char* text) {
    const std::string says =
        "expected a number that " + std::string(name_of(dtype)) + " holds, got " + text;
    const Parts parts = {says.c_str()};
    Tensor x = cast(t.a, dtype);
    refuses(t, "full", [&] { full({2}, number, {.dtype = dtype}); }, {"[full]", parts[0]});
    refuses(t, "full_like", [&] { full_like(x, number); }, {"[full_like]", parts[0]});
    refuses(t, "fill_", [&] { fill_(x, number); }, {"[fill_]", parts[0]});
    refuses(t, "masked_fill", [&] { masked_fill(x, mask, number); }, {"[masked_fill]", parts[0]});
    refuses(t, "masked_fill_", [&] { masked_fill_(x, mask, number); },
            {"[masked_fill_]", parts[0]});
    CHECK(read(x) == read(cast(t.a, dtype)));
  };
  refused(f32, 1e300, "1e+300");
  refused(f32, -3.5e38, "-3.5e+38");
  refused(f16, 70000, "70000");
  refused(f16, -65520, "-65520");
  refused(bf16, 3.4e38, "3.4e+38");
  refuses(t, "an integer too", [&] { full({2}, 70000, {.dtype = f16}); }, {"[full]", "70000"});
  refuses(t, "masked_fill of an integer type", [&] { masked_fill(cast(t.a, i32), mask, 0.5); },
          {"[masked_fill]", "i32[2, 3]", "0.5"});
  // Numbers that round to the largest one, infinities, NaN and every double are in range.
  CHECK(read(full({1}, 65519, {.dtype = f16})) == Values{65504});
  CHECK(read(full({1}, 3.4028235e38)) == Values{std::numeric_limits<float>::max()});
  CHECK(read(full({1}, -INFINITY, {.dtype = bf16})) == Values{-INFINITY});
  CHECK(read(masked_fill(t.a, mask, INFINITY)) ==
        Values{0, 1, INFINITY, INFINITY, INFINITY, INFINITY});
  CHECK(std::isnan(read(masked_fill(t.half, mask, NAN))[5]));
  CHECK(read(full({1}, 1e300, {.dtype = f64})) == Values{1e300});
  // An operand is rounded, as in PyTorch: it is no value that is stored.
  CHECK(read(minimum(t.v, 1e300)) == Values{0, 1, 2});
}

TEST_CASE("numbers for which integers have no result", "[bad-input]") {
  Things t;
  Tensor narrow = cast(t.whole, i32);
  refuses(t, "remainder", [&] { remainder(t.whole, 0); },
          {"[remainder] expected a divisor other than 0 for integers, got 0"});
  refuses(t, "remainder_", [&] { remainder_(narrow, 0); }, {"[remainder_]", "other than 0"});
  refuses(t, "remainder of bools", [&] { remainder(t.flags, 0); }, {"[remainder]", "other than 0"});
  refuses(t, "pow", [&] { pow(t.whole, -1); },
          {"[pow] expected an exponent of at least 0 for integers, got -1"});
  refuses(t, "pow_", [&] { pow_(narrow, -2); }, {"[pow_]", "at least 0", "-2"});
  CHECK(read(pow(t.whole, 0)) == Values{1, 1, 1, 1});
  CHECK(read(pow(t.whole + 1, -1.0)) == read(reciprocal(t.whole + 1)));  // a float makes floats
  CHECK(std::isnan(read(remainder(t.whole, 0.0))[1]));
  CHECK(read(remainder(0, t.whole + 1)) == Values{0, 0, 0, 0});
  CHECK(std::isinf(read(t.whole / 0)[1]));  // a quotient of integers is a float
  // Elements cannot be refused: 0 for a remainder by 0, and of a power what is left of the
  // fraction.
  CHECK(read(remainder(t.whole, zeros_like(t.whole))) == Values{0, 0, 0, 0});
  CHECK(read(pow(tensor<std::int64_t>({1, -1, 2, 0}), full_like(t.whole, -1))) ==
        Values{1, -1, 0, 0});
}

TEST_CASE("errors of one_hot name its classes and its result", "[bad-input]") {
  Things t;
  const std::int64_t many = std::int64_t{1} << 62;
  refuses(t, "too many", [&] { one_hot(t.whole, many); },
          {"[one_hot] expected a size that fits into 63 bits, got shape [4, 4611686018427387904]"});
  refuses(t, "of eight dimensions",
          [&] {
            one_hot(zeros({1, 1, 1, 1, 1, 1, 1, 1}, {.dtype = i64}), 2);
          },
          {"[one_hot]"});
  const Tensor shadow = meta({2}, {.dtype = i32});
  CHECK(one_hot(cast(t.whole, i32), 4).describe() == "i64[4, 4]");
  CHECK_FALSE(TensorImpl::of(one_hot(shadow, 3))->storage);
}
