// Cells of index ops and of scans, by index arithmetic.
#include <algorithm>
#include <cmath>

#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;

double at(const Sample& x, const Index& index) {
  return x.values[static_cast<std::size_t>(number_of(index, x.tensor.shape()))];
}

void gathers_and_scatters(Report& report, DType dtype, const Dims& shape, int d, Layout la,
                          Layout lb, Device device) {
  const auto dim = static_cast<std::size_t>(d);
  const int asked = d % 2 ? d - shape.size() : d;
  const Sample x = sample_of("x", shape, dtype, la, device);
  const Match exact{0, true, true};

  Dims larger = shape, smaller = shape;
  larger[d] += 4;
  for (std::int64_t& size : smaller) size = std::max<std::int64_t>(size - 1, 1);
  for (const Dims& picked : {shape, larger, smaller}) {
    const Sample index = indices_of("gather", picked, shape[d], lb, device);
    expect_at(
        report, "gather", [&](In in) { return gather(in[0], asked, in[1]); }, {x, index}, dtype,
        picked,
        [&](const Index& i) {
          Index from = i;
          from[dim] = static_cast<std::int64_t>(at(index, i));
          return at(x, from);
        },
        exact);
    // scatter_add is its reverse.
    const Sample source =
        sample_of("source", picked, dtype, lb == Layout::expanded ? Layout::strided : lb, device);
    Values sums = x.values, size(x.values.size());
    for (std::size_t i = 0; i < size.size(); ++i) size[i] = std::fabs(x.values[i]);
    double most = 0;
    for (std::int64_t i = 0; i < numel_of(picked); ++i) {
      Index into = index_of(i, picked);
      into[dim] = static_cast<std::int64_t>(index.values[static_cast<std::size_t>(i)]);
      const auto place = static_cast<std::size_t>(number_of(into, shape));
      sums[place] += source.values[static_cast<std::size_t>(i)];
      size[place] += std::fabs(source.values[static_cast<std::size_t>(i)]);
      most = std::max(most, size[place]);
    }
    // Halves may round at every addition.
    const double slack = dtype == f16         ? most * 4e-3
                         : dtype == bf16      ? most * 3e-2
                         : is_floating(dtype) ? most * 1e-6
                                              : 0;
    if (dtype == boolean) continue;
    expect(report, "scatter_add", [&](In in) { return scatter_add(in[0], asked, in[1], in[2]); },
           {x, index, source}, dtype, shape, sums, {slack});
  }
}

void flips_and_selections(Report& report, DType dtype, const Dims& shape, int d, Layout la,
                          Layout lb, Device device) {
  const auto dim = static_cast<std::size_t>(d);
  const int asked = d % 2 ? d - shape.size() : d;
  const Sample x = sample_of("x", shape, dtype, la, device);
  const Match exact{0, true, true};
  expect_at(
      report, "flip", [&](In in) { return flip(in[0], asked); }, {x}, dtype, shape,
      [&](Index i) {
        i[dim] = shape[d] - 1 - i[dim];
        return at(x, i);
      },
      exact);
  for (const auto& [start, step] : {std::pair{0, 1}, std::pair{2, 1}, std::pair{1, 3}}) {
    Dims placed = shape;
    placed[d] = start + (shape[d] - 1) * step + 2;
    expect_at(
        report, "unslice",
        [&, start = start, step = step](In in) {
          return unslice(in[0], asked, start, placed[d], step);
        },
        {x}, dtype, placed,
        [&, start = start, step = step](Index i) {
          const std::int64_t from = i[dim] - start;
          if (from < 0 || from % step != 0 || from / step >= shape[d]) return 0.0;
          i[dim] = from / step;
          return at(x, i);
        },
        exact);
  }
  for (std::int64_t count : {0, 1, 5}) {
    const Sample index = indices_of("select", {count}, shape[d], lb, device);
    Dims picked = shape;
    picked[d] = count;
    expect_at(
        report, "index_select", [&](In in) { return index_select(in[0], asked, in[1]); },
        {x, index}, dtype, picked,
        [&](Index i) {
          i[dim] = static_cast<std::int64_t>(index.values[static_cast<std::size_t>(i[dim])]);
          return at(x, i);
        },
        exact);
  }
}

void gathers(Report& report, DType dtype, const Dims& shape, int d, Layout la, Layout lb,
             Device device) {
  gathers_and_scatters(report, dtype, shape, d, la, lb, device);
  flips_and_selections(report, dtype, shape, d, la, lb, device);
}

void scans(Report& report, DType dtype, const Dims& shape, Layout layout, Device device) {
  const Sample x = sample_of("scan", shape, dtype, layout, device);
  const DType summed = is_floating(dtype) ? dtype : i64;
  for (int d = 0; d < shape.size(); ++d) {
    const auto dim = static_cast<std::size_t>(d);
    const double slack = is_floating(dtype) ? static_cast<double>(shape[d]) * 4e-7 : 0;
    expect_at(
        report, "cumsum", [&](In in) { return cumsum(in[0], d % 2 ? d - shape.size() : d); }, {x},
        summed, shape,
        [&](const Index& i) {
          double total = 0;
          Index from = i;
          for (from[dim] = 0; from[dim] <= i[dim]; ++from[dim]) total += at(x, from);
          return total;
        },
        {slack});
  }
  if (shape.size() < 2) return;
  const auto row = static_cast<std::size_t>(shape.size() - 2), column = row + 1;
  for (int diagonal : {0, 1, -1, 2, -3, 40, -40}) {
    expect_at(
        report, "tril", [&](In in) { return tril(in[0], diagonal); }, {x}, dtype, shape,
        [&](const Index& i) { return i[column] - i[row] <= diagonal ? at(x, i) : 0.0; },
        {0, true, true});
    expect_at(
        report, "triu", [&](In in) { return triu(in[0], diagonal); }, {x}, dtype, shape,
        [&](const Index& i) { return i[column] - i[row] >= diagonal ? at(x, i) : 0.0; },
        {0, true, true});
  }
}

}  // namespace

void check_index_cells(Report& report, Device device) {
  const std::vector<std::pair<Layout, Layout>> layouts = {{Layout::contiguous, Layout::contiguous},
                                                          {Layout::transposed, Layout::strided},
                                                          {Layout::expanded, Layout::transposed},
                                                          {Layout::strided, Layout::expanded}};
  for (DType dtype : kAllDTypes) {
    for (const Dims& shape : {Dims{7}, Dims{33}, Dims{5, 7}, Dims{3, 4, 5}, Dims{17, 33}}) {
      for (int d = 0; d < shape.size(); ++d) {
        for (const auto& [la, lb] : layouts) gathers(report, dtype, shape, d, la, lb, device);
      }
    }
    for (const Dims& shape : {Dims{}, Dims{9}, Dims{2, 3}, Dims{0}, Dims{2, 0, 3}}) {
      for (const auto& [la, lb] : layouts) {
        const Sample weight = sample_of("weight", {11, 6}, dtype, la, device);
        const Sample index = indices_of("embedding", shape, 11, lb, device);
        Dims longer = shape;
        longer.push_back(6);
        expect_at(
            report, "embedding", [](In in) { return embedding(in[0], in[1]); }, {weight, index},
            dtype, longer,
            [&](Index i) {
              const std::int64_t column = i.back();
              i.pop_back();
              return at(weight, {static_cast<std::int64_t>(at(index, i)), column});
            },
            {0, true, true});
      }
    }
    for (const Dims& shape : {Dims{9}, Dims{4, 5}, Dims{2, 3, 4}, Dims{0, 3}}) {
      for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::strided}) {
        const Sample x = sample_of("nonzero", shape, dtype, layout, device);
        Values expected;
        for (std::size_t i = 0; i < x.values.size(); ++i) {
          if (x.values[i] == 0) continue;
          for (std::int64_t place : index_of(static_cast<std::int64_t>(i), shape))
            expected.push_back(static_cast<double>(place));
        }
        const Dims found{static_cast<std::int64_t>(expected.size()) / shape.size(), shape.size()};
        std::string problem;
        try {
          problem = difference(nonzero(x.tensor), i64, found, expected);
        } catch (const std::exception& error) {
          problem = error.what();
        }
        report.count("nonzero " + x.tensor.describe(), problem);
      }
    }
  }
}

void check_checked_cells(Report& report, Device device) {
  const Match exact{0, true, true};
  for (const DType dtype : kAllDTypes) {
    for (const Dims& shape : {Dims{}, Dims{1}, Dims{0}, Dims{7}, Dims{1000}, Dims{5, 7},
                              Dims{2, 0, 3}, Dims{3, 4, 5}}) {
      for (const Layout layout : kLayouts) {
        if (!applies(layout, shape)) continue;
        const Sample x = sample_of("checked", shape, dtype, layout, device);
        double low = 0, high = 1;
        for (const double value : x.values)
          low = std::min(low, value), high = std::max(high, value);
        // The bounds themselves are inside.
        const auto bound = [&](double value) {
          return is_floating(dtype) ? Scalar(value) : Scalar(static_cast<std::int64_t>(value));
        };
        expect(
            report, "checked", [&](In in) { return checked(in[0], bound(low), bound(high)); }, {x},
            dtype, shape, x.values, exact);
        if (x.values.empty() || dtype == boolean) continue;
        // One value is not: the last of the greatest is the first that is told of.
        const double most = *std::max_element(x.values.begin(), x.values.end());
        if (most <= low) continue;
        std::string problem = "expected an error";
        try {
          const double below = is_floating(dtype) ? std::nextafter(most, low) : most - 1;
          to(checked(x.tensor, bound(low), bound(below)), cpu);
        } catch (const Error& error) {
          const auto place = std::find(x.values.begin(), x.values.end(), most) - x.values.begin();
          const std::string where = " at position " + std::to_string(place);
          problem = std::string(error.what()).ends_with(where) ? "" : error.what() + where;
        }
        report.count("checked " + x.tensor.describe() + " out of range", problem);
      }
    }
  }
}

void check_scan_cells(Report& report, Device device) {
  for (DType dtype : kAllDTypes) {
    for (const Dims& shape :
         {Dims{1}, Dims{0}, Dims{31}, Dims{257}, Dims{1025}, Dims{3, 5}, Dims{5, 3}, Dims{33, 17},
          Dims{2, 0, 3}, Dims{2, 3, 4}, Dims{2, 2, 5, 5}}) {
      for (Layout layout : kLayouts) {
        if (applies(layout, shape)) scans(report, dtype, shape, layout, device);
      }
    }
  }
}

}  // namespace brrr::test
