// Cells of matrix products: ranks, transposes and batches by three loops in double, and the bound
// on the error.
#include <algorithm>
#include <cmath>
#include <limits>

#include "brrr/ops/functions.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;

// Half a unit in the last place of one rounding.
double unit_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

struct Product {
  Dims shape;
  Values values;
  Values bounds;  // per element, by Higham's gamma_K |A||B| and the rounding of the result
};

// PyTorch's matmul: 1-d operands stand for a row or a column that is dropped again, leading
// dimensions broadcast.
Product product_of(const Sample& a, const Sample& b, DType dtype) {
  Dims sa(a.tensor.shape()), sb(b.tensor.shape());
  const bool row = sa.size() == 1, column = sb.size() == 1;
  if (row) sa.insert(0, 1);
  if (column) sb.push_back(1);
  const std::int64_t m = sa[sa.size() - 2], k = sa.back(), n = sb.back();
  Dims lead_a(std::span(sa.data(), static_cast<std::size_t>(sa.size() - 2)));
  Dims lead_b(std::span(sb.data(), static_cast<std::size_t>(sb.size() - 2)));
  const int rank = std::max(lead_a.size(), lead_b.size());
  while (lead_a.size() < rank) lead_a.insert(0, 1);
  while (lead_b.size() < rank) lead_b.insert(0, 1);
  Dims lead;
  for (int d = 0; d < rank; ++d) lead.push_back(lead_a[d] == 1 ? lead_b[d] : lead_a[d]);

  Product product;
  const double accumulate = dtype == f64 ? 0x1p-53 : 0x1p-24;
  const double smallest = dtype == f16 ? 0x1p-25 : 0x1p-126;  // half of the last denormal
  const double gamma =
      static_cast<double>(k + 1) * accumulate / (1 - static_cast<double>(k + 1) * accumulate);
  for (std::int64_t batch = 0; batch < numel_of(lead); ++batch) {
    Index ia = index_of(batch, lead), ib = ia;
    for (int d = 0; d < rank; ++d) {
      if (lead_a[d] == 1) ia[static_cast<std::size_t>(d)] = 0;
      if (lead_b[d] == 1) ib[static_cast<std::size_t>(d)] = 0;
    }
    const double* pa = a.values.data() + number_of(ia, lead_a) * m * k;
    const double* pb = b.values.data() + number_of(ib, lead_b) * k * n;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double total = 0, size = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double term = pa[i * k + l] * pb[l * n + j];
          total += term;
          size += std::fabs(term);
        }
        product.values.push_back(total);
        product.bounds.push_back(gamma * size + unit_of(dtype) * (std::fabs(total) + gamma * size) +
                                 smallest);
      }
    }
  }
  product.shape = lead;
  if (!row) product.shape.push_back(m);
  if (!column) product.shape.push_back(n);
  return product;
}

std::string bound_problem(const Tensor& got, const Product& expected, DType dtype) {
  if (got.dtype() != dtype || Dims(got.shape()) != expected.shape) {
    return "gives " + got.describe() + ", expected " + std::string(name_of(dtype)) +
           to_string(expected.shape);
  }
  const Values values = read(got);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i] - expected.values[i]) <= expected.bounds[i])) {
      return "element " + std::to_string(i) + " is " + std::to_string(values[i]) + ", expected " +
             std::to_string(expected.values[i]) + " within " +
             std::to_string(expected.bounds[i] * 1e6) + "e-6";
    }
  }
  return "";
}

void check_product(Report& report, const Dims& sa, const Dims& sb, DType dtype, Layout la,
                   Layout lb, Device device) {
  const Sample a = sample_of("a", sa, dtype, la, device), b = sample_of("b", sb, dtype, lb, device);
  const std::string cell = "matmul(" + a.tensor.describe() + " " + name_of(la) + ", " +
                           b.tensor.describe() + " " + name_of(lb) + ")";
  std::string problem;
  try {
    const std::vector<Tensor> inputs = {a.tensor, b.tensor};
    const Tensor got = run_with_meta([](In in) { return matmul(in[0], in[1]); }, inputs, problem);
    if (problem.empty()) problem = bound_problem(got, product_of(a, b, dtype), dtype);
  } catch (const std::exception& error) {
    problem = std::string("threw ") + error.what();
  }
  report.count(cell, problem);
}

// A stack of matrices whose last two dimensions are transposed in memory, as transpose(x, -2, -1)
// leaves them.
Sample transposed_pair(const std::string& key, const Dims& shape, DType dtype, Device device) {
  Dims stored = shape;
  const int rank = shape.size();
  std::swap(stored[rank - 1], stored[rank - 2]);
  Sample sample = sample_of(key, stored, dtype, Layout::contiguous, device);
  Dims strides(sample.tensor.strides());
  std::swap(strides[rank - 1], strides[rank - 2]);
  sample.tensor = make_view(sample.tensor, shape, strides);
  sample.values = read(sample.tensor);
  return sample;
}

// A NaN or an infinity meets zeros: no kernel may skip them.
void check_matmul_specials(Report& report, DType dtype, Device device) {
  const std::vector<std::pair<Dims, Dims>> shapes = {
      {{2, 3}, {3, 1}}, {{1, 3}, {3, 4}}, {{3, 3}, {3, 3}}, {{33, 17}, {17, 9}}, {{3}, {3}}};
  for (const auto& [sa, sb] : shapes) {
    for (double special : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      for (bool left : {true, false}) {
        Values va(static_cast<std::size_t>(numel_of(sa)), left ? 1 : 0);
        Values vb(static_cast<std::size_t>(numel_of(sb)), left ? 0 : 1);
        (left ? va : vb)[0] = special;
        const Sample a = make_sample(va, sa, dtype, Layout::contiguous, device);
        const Sample b = make_sample(vb, sb, dtype, Layout::contiguous, device);
        const Product product = product_of(a, b, dtype);
        expect(
            report, "matmul of a special value", [](In in) { return matmul(in[0], in[1]); }, {a, b},
            dtype, product.shape, product.values);
      }
    }
  }
}

void check_products(Report& report, DType dtype, Device device) {
  const std::vector<std::pair<Dims, Dims>> shapes = {{{2, 3}, {3, 4}},
                                                     {{1, 1}, {1, 1}},
                                                     {{1, 7}, {7, 5}},
                                                     {{5, 7}, {7, 1}},
                                                     {{7}, {7}},
                                                     {{7}, {7, 5}},
                                                     {{5, 7}, {7}},
                                                     {{0, 3}, {3, 4}},
                                                     {{3, 0}, {0, 4}},
                                                     {{3, 4}, {4, 0}},
                                                     {{17, 33}, {33, 9}},
                                                     {{64, 65}, {65, 63}},
                                                     {{128, 129}, {129, 127}},
                                                     {{2, 3, 4}, {2, 4, 5}},
                                                     {{2, 3, 4}, {4, 5}},
                                                     {{3, 4}, {2, 4, 5}},
                                                     {{2, 1, 3, 4}, {5, 4, 6}},
                                                     {{2, 3, 4}, {4}},
                                                     {{4}, {2, 4, 3}},
                                                     {{1, 3, 4}, {7, 4, 2}},
                                                     {{2, 3, 5, 4}, {2, 1, 4, 3}},
                                                     {{0, 3, 4}, {4, 5}},
                                                     {{2, 3, 0}, {2, 0, 5}},
                                                     {{1, 257}, {257, 1}}};
  for (const auto& [sa, sb] : shapes) {
    for (Layout la : kLayouts) {
      for (Layout lb : kLayouts) {
        if (applies(la, sa) && applies(lb, sb))
          check_product(report, sa, sb, dtype, la, lb, device);
      }
    }
    if (sa.size() < 2 || sb.size() < 2) continue;
    const Sample a = transposed_pair("a", sa, dtype, device),
                 b = transposed_pair("b", sb, dtype, device);
    std::string problem;
    try {
      problem = bound_problem(matmul(a.tensor, b.tensor), product_of(a, b, dtype), dtype);
    } catch (const std::exception& error) {
      problem = std::string("threw ") + error.what();
    }
    report.count("matmul of transposes " + a.tensor.describe() + " " + b.tensor.describe(),
                 problem);
  }
}

void check_linear(Report& report, DType dtype, Device device) {
  for (const Dims& shape : {Dims{5}, Dims{3, 5}, Dims{2, 3, 5}, Dims{0, 5}}) {
    for (bool with_bias : {false, true}) {
      const Sample x = sample_of("x", shape, dtype, Layout::strided, device);
      const Sample weight = sample_of("weight", {4, 5}, dtype, Layout::contiguous, device);
      const Sample bias = sample_of("bias", {4}, dtype, Layout::contiguous, device);
      Dims result = shape;
      result[shape.size() - 1] = 4;
      const double slack = is_half(dtype) ? 30 * unit_of(dtype) : 0;
      expect_at(
          report, with_bias ? "linear with bias" : "linear",
          [&](In in) { return linear(in[0], in[1], with_bias ? in[2] : Tensor()); },
          {x, weight, bias}, dtype, result,
          [&](Index i) {
            const std::int64_t out = i.back();
            double total = with_bias ? bias.values[static_cast<std::size_t>(out)] : 0;
            for (std::int64_t k = 0; k < 5; ++k) {
              i.back() = k;
              total += x.values[static_cast<std::size_t>(number_of(i, shape))] *
                       weight.values[static_cast<std::size_t>(out * 5 + k)];
            }
            return total;
          },
          {slack});
    }
  }
}

void check_affine(Report& report, DType dtype, Device device) {
  // Of several matrices, and of layouts that the library's epilogue does not take.
  for (const auto& shapes :
       {std::pair{Dims{6, 5}, Dims{5, 4}}, std::pair{Dims{2, 6, 5}, Dims{2, 5, 4}},
        std::pair{Dims{2, 6, 5}, Dims{5, 4}}, std::pair{Dims{3, 0}, Dims{0, 4}},
        std::pair{Dims{64, 32}, Dims{32, 48}}}) {
    const Dims &sa = shapes.first, &sb = shapes.second;
    for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::strided}) {
      const Sample x = sample_of("x", sa, dtype, layout, device);
      const Sample factor = sample_of("factor", sb, dtype, layout, device);
      const Sample row =
          sample_of("row", {sb.back()}, dtype,
                    layout == Layout::strided ? Layout::strided : Layout::contiguous, device);
      Dims result = sa;
      result[sa.size() - 1] = sb.back();
      const std::int64_t depth = sa.back(), columns = sb.back();
      const double slack =
          (is_half(dtype) ? 30 : 4) * static_cast<double>(depth + 1) * unit_of(dtype);
      expect_at(
          report, "affine", [](In in) { return affine(in[0], in[1], in[2]); }, {x, factor, row},
          dtype, result,
          [&](Index i) {
            const std::int64_t out = i.back();
            double total = row.values[static_cast<std::size_t>(out)];
            const std::int64_t batch = sb.size() == 3 ? i[0] : 0;
            for (std::int64_t k = 0; k < depth; ++k) {
              i.back() = k;
              total += x.values[static_cast<std::size_t>(number_of(i, sa))] *
                       factor.values[static_cast<std::size_t>((batch * depth + k) * columns + out)];
            }
            return total;
          },
          {slack});
    }
  }
}

}  // namespace

void check_matmul_cells(Report& report, Device device) {
  for (DType dtype : kFloatDTypes) {
    check_matmul_specials(report, dtype, device);
    check_products(report, dtype, device);
    check_linear(report, dtype, device);
    check_affine(report, dtype, device);
  }
}

void check_matmul_bound(Report& report, Device device, int shapes) {
  const std::vector<std::pair<Dims, Dims>> large = {
      {{601, 64}, {64, 50}}, {{50, 64}, {64, 601}},        {{300, 40}, {40, 300}},
      {{3000, 129}, {129}},  {{3, 300, 40}, {3, 40, 290}}, {{70, 1500}, {1500, 30}}};
  for (DType dtype : kFloatDTypes) {
    for (const auto& [sa, sb] : large) {  // cut into panels
      for (Layout la : {Layout::contiguous, Layout::transposed}) {
        for (Layout lb : {Layout::contiguous, Layout::transposed}) {
          if (applies(lb, sb)) check_product(report, sa, sb, dtype, la, lb, device);
        }
      }
    }
    Random random(11);
    for (int i = 0; i < shapes; ++i) {
      const std::int64_t around[] = {1,  2,  3,  7,   8,   16,  31,  32,
                                     33, 64, 65, 100, 127, 128, 129, 255};
      Dims mnk;
      do {
        mnk = {};
        for (int d = 0; d < 3; ++d) {
          mnk.push_back(random.below(2) ? around[random.below(16)] : 1 + random.below(140));
        }
      } while (mnk[0] * mnk[1] * mnk[2] > 250000);
      const bool transposed_a = random.below(2), transposed_b = random.below(2);
      check_product(report, {mnk[0], mnk[2]}, {mnk[2], mnk[1]}, dtype,
                    transposed_a ? Layout::transposed : Layout::contiguous,
                    transposed_b ? Layout::transposed : Layout::contiguous, device);
    }
  }
}

}  // namespace brrr::test
