// Guarantees of CPU kernels: an element's bits depend neither on its position nor on the number of
// threads; reductions and products are within their error bounds; every layout gives the result of
// element-wise reads.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/thread_pool.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

namespace {

using namespace brrr;
using Random = std::mt19937_64;
using Index = std::int64_t;

Index pick(Random& random, Index low, Index high) {
  return std::uniform_int_distribution<Index>(low, high)(random);
}

Tensor random_values(Random& random, const Dims& shape, DType dtype, double low = -2,
                     double high = 2) {
  Tensor x = empty(shape, {.dtype = f64});
  double* data = x.data<double>();
  std::uniform_real_distribution<double> values(low, high);
  for (Index i = 0; i < x.numel(); ++i) data[i] = values(random);
  return cast(is_floating(dtype) ? x : floor(x * 3), dtype);
}

// The same values in other memory: dimensions in another order, gaps between elements, an offset.
Tensor scattered(Random& random, const Tensor& x) {
  Dims order, shape;
  for (int d = 0; d < x.rank(); ++d) order.insert(static_cast<int>(pick(random, 0, d)), d);
  Dims steps;
  for (Index d : order) {
    steps.push_back(pick(random, 1, 2));
    shape.push_back(x.size(static_cast<int>(d)) * steps.back() + 1);
  }
  Tensor padded = zeros(shape, {.dtype = x.dtype()});
  Dims back = Dims::filled(x.rank(), 0);
  for (int d = 0; d < x.rank(); ++d) {
    const Index size = x.size(static_cast<int>(order[d]));
    padded = slice(padded, d, 1, 1 + size * steps[d], steps[d]);
    back[static_cast<int>(order[d])] = d;
  }
  Tensor result = x.rank() ? permute(padded, back) : padded;
  copy_(result, x);
  return result;
}

Tensor run_pointwise(Op op, DType dtype, const std::vector<Tensor>& operands) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& operand : operands) inputs.push_back(&operand);
  Call call(op, inputs.data(), static_cast<std::uint32_t>(inputs.size()));
  call.dtype = dtype;
  return dispatch(call);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.dtype() == y.dtype() && x.numel() == y.numel() &&
         std::memcmp(x.data(), y.data(), x.bytes()) == 0;
}

// A NaN's sign and payload follow the order in which the compiler adds; that it is a NaN does not.
bool same_but_for_nan_bits(const Tensor& a, const Tensor& b) {
  return same_bits(a, b) ||
         (same_bits(isnan(a), isnan(b)) && same_bits(where(isnan(a), 0, a), where(isnan(b), 0, b)));
}

class Threads {
 public:
  explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }

 private:
  int before_;
};

double error_bound(Index n, double unit) {
  return static_cast<double>(n) * unit / (1 - static_cast<double>(n) * unit);
}

Tensor indices(Random& random, const Dims& shape, Index size, DType dtype) {
  Tensor x = empty(shape, {.dtype = i64});
  for (Index i = 0; i < x.numel(); ++i) x.data<Index>()[i] = pick(random, 0, size - 1);
  return cast(x, dtype);
}

}  // namespace

TEST_CASE("an element's bits do not depend on its position or layout", "[cpu_kernels]") {
  Random random(1);
  for (int op = 0; op < kBuiltinOps; ++op) {
    const OpInfo& info = op_info(static_cast<Op>(op));
    if (info.kind != OpKind::pointwise) continue;
    for (DType dtype : {f32, f64, f16, bf16}) {
      if (!contains(info.types, dtype)) continue;
      const Index n = 37;
      std::vector<Tensor> operands;
      for (int i = 0; i < info.arity; ++i) {
        const bool condition = info.rule == DTypeRule::select && i == 0;
        operands.push_back(
            random_values(random, {n}, condition ? boolean : dtype, info.low, info.high));
      }
      if (info.rule != DTypeRule::select) {
        // Specials take other paths inside a vector function, and must not disturb their
        // neighbours.
        Tensor special = slice(operands[0], 0, 5, 9);
        const double inf = std::numeric_limits<double>::infinity();
        copy_(special, cast(tensor(std::vector<double>{inf, -inf, std::nan(""), 0.}, {4}), dtype));
      }
      INFO(info.name << " in " << name_of(dtype));
      const Tensor whole = run_pointwise(static_cast<Op>(op), dtype, operands);

      std::vector<Tensor> parts;
      for (Index start = 0, length = 1; start < n; start += length, length = length % 11 + 1) {
        std::vector<Tensor> pieces;
        const Index end = std::min(n, start + length);
        for (const Tensor& operand : operands) pieces.push_back(slice(operand, 0, start, end));
        parts.push_back(run_pointwise(static_cast<Op>(op), dtype, pieces));
      }
      CHECK(same_but_for_nan_bits(whole, cat(parts)));

      std::vector<Tensor> strided, repeated;
      for (const Tensor& operand : operands) {
        strided.push_back(scattered(random, operand));
        repeated.push_back(expand(unsqueeze(operand, 1), {n, 50}));
      }
      CHECK(same_but_for_nan_bits(whole, run_pointwise(static_cast<Op>(op), dtype, strided)));
      const Tensor many = run_pointwise(static_cast<Op>(op), dtype, repeated);
      CHECK(same_but_for_nan_bits(many, expand(unsqueeze(whole, 1), {n, 50})));
    }
  }
}

TEST_CASE("threads change no bits", "[cpu_kernels]") {
  Random random(2);
  const Index n = 300001;
  const Tensor x = random_values(random, {n}, f32), y = random_values(random, {n}, f32);
  const Tensor m = random_values(random, {601, 499}, f32),
               w = random_values(random, {499, 310}, f32);
  const Tensor half = cast(m, bf16), index = indices(random, {601, 499}, 17, i64);
  const std::vector<std::function<Tensor()>> programs = {
      [&] { return x + y; },
      [&] { return exp(x); },
      [&] { return half * 0.3 + half; },
      [&] { return m + slice(m, 0, 0, 1) * 2.0; },
      [&] { return transpose(m, 0, 1) - 1.0; },
      [&] { return sum(x); },
      [&] { return mean(m, {0}); },
      [&] { return norm(m, {1}); },
      [&] { return sum(transpose(m, 0, 1), {0}); },
      [&] { return max(half); },
      [&] { return argmax(x); },
      [&] { return argmin(m, 0); },
      [&] { return cumsum(m, 0); },
      [&] { return matmul(m, w); },
      [&] { return matmul(transpose(w, 0, 1), transpose(m, 0, 1)); },
      [&] { return matmul(half, cast(w, bf16)); },
      [&] { return matmul(slice(m, 0, 3, 4), w); },
      [&] { return matmul(m, slice(w, 1, 3, 4)); },
      [&] {
        return scatter_add(zeros({17, 499}), 0, index, m);
      },
      [&] {
        return scatter_add(zeros({601, 17}), 1, index, m);
      },
      [&] { return contiguous(transpose(m, 0, 1)); },
      [&] {
        manual_seed(5);
        return brrr::rand({n});
      },
      [&] {
        manual_seed(5);
        return brrr::randn({n}, {.dtype = bf16});
      },
  };
  for (std::size_t i = 0; i < programs.size(); ++i) {
    INFO("program " << i);
    Threads one(1);
    const Tensor expected = programs[i]();
    for (int threads : {2, 4}) {
      set_num_threads(threads);
      CHECK(same_bits(expected, programs[i]()));
    }
  }
}

TEST_CASE("a draw does not depend on how much is drawn", "[cpu_kernels]") {
  for (DType dtype : {f32, f64, f16, bf16}) {
    using Make = Tensor (*)(const Dims&, Options);
    for (const Make make : {Make{brrr::rand}, Make{brrr::randn}}) {
      manual_seed(11);
      const Tensor whole = make({5003}, {.dtype = dtype});
      for (Index n : {1, 2, 3, 5, 1023, 1025, 4097}) {
        manual_seed(11);
        CHECK(same_bits(make({n}, {.dtype = dtype}), slice(whole, 0, 0, n)));
      }
      if (make == Make{brrr::rand}) CHECK(item(max(whole)) < 1);
    }
  }
}

TEST_CASE("every layout gives the same results as a contiguous one", "[cpu_kernels]") {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    const int rank = static_cast<int>(pick(random, 0, 5));
    const Index most = round % 20 == 0 ? 40 : 6;
    Dims shape, a_shape, b_shape;
    for (int d = 0; d < rank; ++d) {
      shape.push_back(pick(random, round % 50 == 0 ? 0 : 1, rank > 3 ? 9 : most * 4));
      a_shape.push_back(pick(random, 0, 3) ? shape[d] : 1);
      b_shape.push_back(a_shape[d] != shape[d] || pick(random, 0, 3) ? shape[d] : 1);
    }
    const DType dtype = std::vector<DType>{
        f32, f64, f16, bf16, i32, i64, boolean}[static_cast<std::size_t>(round % 7)];
    const Tensor a = random_values(random, a_shape, dtype),
                 b = random_values(random, b_shape, dtype);
    const Tensor a_full = contiguous(expand(a, shape)), b_full = contiguous(expand(b, shape));
    const Tensor a_odd = scattered(random, a), b_odd = scattered(random, b);
    INFO("round " << round << ", " << a.describe() << " and " << b.describe());
    CHECK(same_bits(add(a_full, b_full), add(a_odd, b_odd)));
    CHECK(same_bits(lt(a_full, b_full), lt(a_odd, b_odd)));
    CHECK(same_bits(where(lt(a_full, b_full), b_full, a_full),
                    where(lt(a_odd, b_odd), b_odd, a_odd)));
    CHECK(same_bits(add(a_full, 1), add(contiguous(expand(a_odd, shape)), 1)));
    CHECK(same_bits(a, contiguous(a_odd)));
    for (DType other : {f32, f16, i64, boolean})
      CHECK(same_bits(cast(a, other), cast(a_odd, other)));
    Tensor target = scattered(random, a_full);
    add_(target, b_odd);
    CHECK(same_bits(target, add(a_full, b_full)));
    copy_(target, b_odd);
    CHECK(same_bits(target, b_full));
    if (rank > 0) {
      const int dim = static_cast<int>(pick(random, 0, rank - 1));
      const Tensor joined = cat({a_full, scattered(random, b_full)}, dim);
      CHECK(same_bits(slice(joined, dim, 0, shape[dim]), a_full));
      CHECK(same_bits(slice(joined, dim, shape[dim], 2 * shape[dim]), b_full));
    }
  }
}

TEST_CASE("big copies and transposes move every element", "[cpu_kernels]") {
  Random random(4);
  for (DType dtype : {f32, f64, bf16, boolean}) {
    for (const Dims& shape :
         {Dims{517, 1031}, Dims{3, 130, 257}, Dims{70, 5, 300}, Dims{100000, 3}, Dims{3, 100000}}) {
      const Tensor x = random_values(random, shape, dtype);
      Dims order;
      for (int d = 0; d < shape.size(); ++d) order.push_back(shape.size() - 1 - d);
      const Tensor permuted = permute(x, order);
      CHECK(same_bits(x, permute(contiguous(permuted), order)));
      if (dtype == f32) CHECK(same_bits(x + x, permute(permuted + contiguous(permuted), order)));
    }
  }
}

TEST_CASE("reductions agree with a sum in order in f64", "[cpu_kernels]") {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const int rank = static_cast<int>(pick(random, 0, 4));
    Dims shape, dims;
    for (int d = 0; d < rank; ++d) {
      shape.push_back(pick(random, 1, rank > 2 ? 20 : 200));
      if (pick(random, 0, 1)) dims.push_back(d);
    }
    const DType dtype =
        std::vector<DType>{f32, f64, f16, bf16, i32}[static_cast<std::size_t>(round % 5)];
    const Tensor x = scattered(random, random_values(random, shape, dtype));
    const bool keepdim = pick(random, 0, 1);
    const Tensor total = cast(sum(x, dims, keepdim), f64), most = cast(max(x, dims, keepdim), f64);
    const Tensor wide = contiguous(cast(x, f64));

    std::vector<double> sums(static_cast<std::size_t>(total.numel()), 0.), sizes(sums.size(), 0.);
    std::vector<double> tops(sums.size(), -std::numeric_limits<double>::infinity());
    for (Index i = 0; i < wide.numel(); ++i) {
      Index rest = i, place = 0, scale = 1;
      for (int d = rank - 1; d >= 0; --d) {
        const Index at = rest % shape[d];
        rest /= shape[d];
        if (dims.empty() || std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
        place += at * scale;
        scale *= shape[d];
      }
      const auto p = static_cast<std::size_t>(place);
      const double value = wide.data<double>()[i];
      sums[p] += value, sizes[p] += std::abs(value), tops[p] = std::max(tops[p], value);
    }
    const double unit = dtype == f16    ? 0x1p-11
                        : dtype == bf16 ? 0x1p-8
                        : dtype == f32  ? 0x1p-24
                                        : 0x1p-50;
    INFO("round " << round << ", " << x.describe() << " over " << to_string(dims));
    for (std::size_t p = 0; p < sums.size(); ++p) {
      const double got = contiguous(total).data<double>()[p];
      CHECK(std::abs(got - sums[p]) <= unit * std::abs(sums[p]) + 1e-12 * sizes[p]);
      CHECK(contiguous(most).data<double>()[p] == tops[p]);
    }
  }
}

TEST_CASE("a long sum in f32 is accurate", "[cpu_kernels]") {
  const Index n = Index{1} << 24;
  const Tensor x = full({n}, 0.1);
  const double exact = static_cast<double>(0.1f) * static_cast<double>(n);
  CHECK(std::abs(item(sum(x)) / exact - 1) < 1e-6);
  CHECK(std::abs(item(mean(x)) / static_cast<double>(0.1f) - 1) < 1e-6);
  CHECK(std::abs(item(sum(sum(view(x, {4096, 4096}), {0}))) / exact - 1) < 1e-6);
  CHECK(std::abs(item(norm(x)) / std::sqrt(exact * static_cast<double>(0.1f)) - 1) < 1e-6);
}

TEST_CASE("running sums of f32 and f16 lose no small terms", "[cpu_kernels]") {
  constexpr Index kTerms = 1000;
  struct Case {
    DType dtype;
    double large;  // from here on the type has no odd numbers
  };
  for (const Case& c : {Case{f32, 0x1p24}, Case{f16, 0x1p11}}) {
    Tensor x = ones({kTerms + 1, 5}, {.dtype = c.dtype});
    Tensor first = select(x, 0, 0);
    fill_(first, c.large);
    for (const Tensor& sums :
         {cumsum(x, 0), transpose(cumsum(contiguous(transpose(x, 0, 1)), 1), 0, 1)}) {
      const Tensor last = select(sums, 0, kTerms);
      CHECK(to_vector<double>(cast(last, f64)) == std::vector<double>(5, c.large + kTerms));
    }
  }
}

TEST_CASE("NaN wins a maximum, and the first of equals is chosen", "[cpu_kernels]") {
  for (Index n : {7, 100, 5000, 100001}) {
    Tensor x = zeros({n});
    CHECK(item(argmax(x)) == 0);
    CHECK(item(argmin(x)) == 0);
    float* data = x.data<float>();
    data[n / 2] = 1, data[n - 1] = 1;
    CHECK(item(argmax(x)) == n / 2);
    CHECK(item(argmax(view(x, {1, n, 1}), 1)) == n / 2);
    CHECK(item(slice(argmax(contiguous(expand(unsqueeze(x, 1), {n, 3})), 0), 0, 2, 3)) == n / 2);
    data[n - 1] = std::nanf("");
    data[n / 3] = std::numeric_limits<float>::infinity();
    CHECK(std::isnan(item(max(x))));
    CHECK(std::isnan(item(min(x))));
    CHECK(item(argmax(x)) == n - 1);
    CHECK(item(argmin(x)) == n - 1);
    data[n / 4] = std::nanf("");
    CHECK(item(argmax(x)) == n / 4);
  }
  CHECK(item(sum(zeros({0}))) == 0);
  CHECK(item(prod(zeros({0}))) == 1);
  CHECK(std::isnan(item(mean(zeros({0})))));
}

TEST_CASE("matrix products stay within their error bound", "[cpu_kernels]") {
  Random random(6);
  for (int round = 0; round < 500; ++round) {
    const Index high = round % 25 == 0 ? 300 : 40;
    const Index m = pick(random, 1, pick(random, 0, 2) ? high : 1),
                n = pick(random, 1, pick(random, 0, 2) ? high : 1);
    const Index k = pick(random, round % 9 ? 1 : 0, high);
    const DType dtype =
        std::vector<DType>{f32, f64, f16, bf16, i32, i64}[static_cast<std::size_t>(round % 6)];
    Dims a_shape{m, k}, b_shape{k, n};
    if (round % 3 == 1) a_shape = Dims{pick(random, 1, 4), m, k};
    if (round % 4 == 1) b_shape = Dims{round % 3 == 1 && pick(random, 0, 1) ? a_shape[0] : 1, k, n};
    const auto layout = [&](const Tensor& x) {
      switch (pick(random, 0, 3)) {
        case 0: return x;
        case 1: return transpose(contiguous(transpose(x, -2, -1)), -2, -1);
        case 2: return slice(cat({x, x}, -1), -1, 0, x.size(-1));
        default: return scattered(random, x);
      }
    };
    const Tensor a = layout(random_values(random, a_shape, dtype)),
                 b = layout(random_values(random, b_shape, dtype));
    INFO("round " << round << ", " << a.describe() << " by " << b.describe());
    const Tensor c = matmul(a, b);
    Dims batch{1};
    if (a.rank() == 3) batch[0] = a.size(0);
    const Tensor c64 = cast(reshape(c, {batch[0], m, n}), f64);
    const Tensor a64 = contiguous(expand(cast(a, f64), {batch[0], m, k}));
    const Tensor b64 = contiguous(expand(cast(b, f64), {batch[0], k, n}));
    const double out = dtype == f16    ? 0x1p-11
                       : dtype == bf16 ? 0x1p-8
                       : dtype == f32  ? 0x1p-24
                       : dtype == f64  ? 0x1p-53
                                       : 0;
    const double unit = is_half(dtype) ? 0x1p-24 : out;
    bool within = true;
    for (Index g = 0; g < batch[0]; ++g) {
      for (Index i = 0; i < m; ++i) {
        for (Index j = 0; j < n; ++j) {
          double exact = 0, size = 0;
          for (Index l = 0; l < k; ++l) {
            const double product =
                a64.data<double>()[(g * m + i) * k + l] * b64.data<double>()[(g * k + l) * n + j];
            exact += product, size += std::abs(product);
          }
          const double got = c64.data<double>()[(g * m + i) * n + j];
          const double least = dtype == f16 ? 0x1p-25 : 0;
          within &= std::abs(got - exact) <=
                    2 * error_bound(k, unit) * size + out * std::abs(exact) + least;
        }
      }
    }
    CHECK(within);
  }
}

namespace {

void check_rows(Random& random, const Tensor& x, int dim) {
  const Tensor line = indices(random, {7}, x.size(dim), i32);
  const Tensor rows = index_select(x, dim, line);
  for (Index r = 0; r < 7; ++r) {
    CHECK(same_bits(select(rows, dim, r),
                    select(x, dim, static_cast<Index>(item(select(line, 0, r))))));
  }
}

}  // namespace

TEST_CASE("indexing reads and adds where the index says", "[cpu_kernels]") {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(pick(random, 1, 4)),
              dim = static_cast<int>(pick(random, 0, rank - 1));
    Dims shape, index_shape;
    for (int d = 0; d < rank; ++d) {
      shape.push_back(pick(random, 1, 9));
      index_shape.push_back(d == dim    ? pick(random, 1, 12)
                            : round % 2 ? shape[d]
                                        : pick(random, 1, shape[d]));
    }
    const DType dtype =
        std::vector<DType>{f32, f64, bf16, i32, i64, boolean}[static_cast<std::size_t>(round % 6)];
    const Tensor x = scattered(random, random_values(random, shape, dtype));
    Tensor index = indices(random, index_shape, shape[dim], round % 3 ? i64 : i32);
    if (round % 5 == 0) {  // as embedding's gradient has it: one index a row
      Dims one = index_shape;
      for (int d = 0; d < rank; ++d) one[d] = d == dim ? one[d] : 1;
      index = expand(indices(random, one, shape[dim], i64), index_shape);
    }
    const Tensor picked = gather(x, dim, index);
    const Tensor source = scattered(random, random_values(random, index_shape, dtype));
    const Tensor added = scatter_add(x, dim, index, source);

    const Tensor x64 = contiguous(cast(x, f64)), i = contiguous(cast(index, i64)),
                 s64 = contiguous(cast(source, f64));
    const Tensor picked64 = cast(picked, f64);
    std::vector<double> sums(x64.data<double>(), x64.data<double>() + x64.numel());
    for (Index p = 0; p < i.numel(); ++p) {
      Index rest = p, place = 0, scale = 1;
      for (int d = rank - 1; d >= 0; --d) {
        const Index at = d == dim ? i.data<Index>()[p] : rest % index_shape[d];
        rest /= index_shape[d];
        place += at * scale;
        scale *= shape[d];
      }
      INFO("round " << round);
      CHECK(picked64.data<double>()[p] == x64.data<double>()[place]);
      sums[static_cast<std::size_t>(place)] += s64.data<double>()[p];
    }
    const Tensor added64 = cast(added, f64);
    for (std::size_t p = 0; p < sums.size(); ++p) {
      const double got = added64.data<double>()[p];
      if (dtype == boolean) {
        CHECK(got == (sums[p] != 0));
      } else {
        CHECK(std::abs(got - sums[p]) <= (dtype == bf16  ? 0x1p-8
                                          : dtype == f32 ? 1e-6
                                                         : 1e-13) *
                                             (std::abs(sums[p]) + 4));
      }
    }
    check_rows(random, x, dim);
  }
}

TEST_CASE("an index out of range is refused before anything is written", "[cpu_kernels]") {
  const Tensor x = zeros({5, 2});
  const Tensor bad = tensor(std::vector<Index>{0, 1, 2, 7}, {2, 2}),
               low = tensor(std::vector<Index>{3, -1}, {2});
  CHECK(test::error_of([&] { gather(x, 0, bad); }) ==
        "[gather] expected indices in [0, 5), got 7 at position 3");
  CHECK(test::error_of([&] { index_select(x, 0, low); }) ==
        "[index_select] expected indices in [0, 5), got -1 at position 1");
  CHECK(test::error_of([&] {
          scatter_add(x, 0, bad, ones({2, 2}));
        }) == "[scatter_add] expected indices in [0, 5), got 7 at position 3");
  const Tensor wide = expand(tensor(std::vector<Index>{1, 5}, {2, 1}), {2, 2});
  CHECK(test::error_of([&] { gather(x, 0, wide); }) ==
        "[gather] expected indices in [0, 5), got 5 at position 2");
  CHECK(item(sum(x)) == 0);
}

TEST_CASE("conversions are defined for every value", "[cpu_kernels]") {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values{
      0.,           -0.,    1.9,     -1.9,  2147483646.5, 2147483648., -2147483648.,
      -2147483649., 9.3e18, -9.3e18, 1e300, inf,          -inf,        std::nan("")};
  const Tensor x = tensor(values, {static_cast<Index>(values.size())});
  CHECK(to_vector<std::int32_t>(cast(x, i32)) ==
        std::vector<std::int32_t>{0, 0, 1, -1, 2147483646, 2147483647, -2147483647 - 1,
                                  -2147483647 - 1, 2147483647, -2147483647 - 1, 2147483647,
                                  2147483647, -2147483647 - 1, 0});
  const Index top = std::numeric_limits<Index>::max(), bottom = std::numeric_limits<Index>::min();
  CHECK(to_vector<Index>(cast(x, i64)) == std::vector<Index>{0, 0, 1, -1, 2147483646, 2147483648,
                                                             -2147483648, -2147483649, top, bottom,
                                                             top, top, bottom, 0});
  const Tensor truth = cast(x, boolean);
  for (Index i = 0; i < x.numel(); ++i) CHECK(truth.data<bool>()[i] == (i > 1));

  // Every 16-bit pattern, there and back, against the scalar conversions.
  Tensor halves = empty({65536}, {.dtype = f16}), brains = empty({65536}, {.dtype = bf16});
  for (int i = 0; i < 65536; ++i) {
    halves.data<Float16>()[i].bits = brains.data<BFloat16>()[i].bits =
        static_cast<std::uint16_t>(i);
  }
  const Tensor from_halves = cast(halves, f32), from_brains = cast(brains, f32);
  bool agree = true;
  for (int i = 0; i < 65536; ++i) {
    const float h = static_cast<float>(halves.data<Float16>()[i]),
                b = static_cast<float>(brains.data<BFloat16>()[i]);
    const float h2 = from_halves.data<float>()[i], b2 = from_brains.data<float>()[i];
    agree &= std::bit_cast<std::uint32_t>(h) == std::bit_cast<std::uint32_t>(h2);
    agree &= std::bit_cast<std::uint32_t>(b) == std::bit_cast<std::uint32_t>(b2);
  }
  CHECK(agree);
  Random random(8);
  Tensor floats = empty({1 << 18});
  for (Index i = 0; i < floats.numel(); ++i) {
    const std::uint32_t exponent = i % 2 ? static_cast<std::uint32_t>(random() % 50 + 90) << 23
                                         : static_cast<std::uint32_t>(random());
    floats.data<float>()[i] =
        std::bit_cast<float>(exponent ^ static_cast<std::uint32_t>(random() & 0x807fffffu));
  }
  const Tensor to_halves = cast(floats, f16), to_brains = cast(floats, bf16);
  for (Index i = 0; i < floats.numel(); ++i) {
    const float value = floats.data<float>()[i];
    agree &= to_halves.data<Float16>()[i].bits == Float16(value).bits;
    agree &= to_brains.data<BFloat16>()[i].bits == BFloat16(value).bits;
  }
  CHECK(agree);
}

TEST_CASE("integers wrap", "[cpu_kernels]") {
  const Index top = std::numeric_limits<Index>::max(), bottom = std::numeric_limits<Index>::min();
  const Tensor x = tensor(std::vector<Index>{top, bottom}, {2});
  CHECK(to_vector<Index>(x + 1) == std::vector<Index>{bottom, bottom + 1});
  CHECK(to_vector<Index>(neg(x)) == std::vector<Index>{-top, bottom});
  CHECK(to_vector<Index>(x * x) == std::vector<Index>{1, 0});
  CHECK(item<Index>(sum(expand(slice(x, 0, 0, 1), {2}))) == -2);
}
