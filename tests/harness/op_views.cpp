// Cells of views, joins and copies, by index arithmetic.
#include <algorithm>
#include <numeric>

#include "brrr/ops/functions.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;

// A view: as `expect_at`, and the bytes are shared with the input.
void expect_view(Report& report, const std::string& cell, const TensorCall& call, const Sample& x,
                 const Dims& shape, const std::function<Index(const Index&)>& source) {
  const auto value = [&](const Index& i) {
    return x.values[static_cast<std::size_t>(number_of(source(i), x.tensor.shape()))];
  };
  expect_at(report, cell, call, {x}, x.tensor.dtype(), shape, value, {0, true, true});
  if (x.tensor.numel() == 0) return;
  try {
    expect_true(report, cell + " shares its bytes",
                call(std::span(&x.tensor, 1)).shares_storage_with(x.tensor));
  } catch (const std::exception& error) {
    report.count(cell, error.what());
  }
}

void permutations_of(Report& report, const Sample& x, const Dims& shape) {
  const int rank = shape.size();
  std::vector<int> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  do {
    Dims dims, result;
    for (int d : order) {
      dims.push_back(d % 2 ? d - rank : d);
      result.push_back(shape[d]);
    }
    expect_view(
        report, "permute " + to_string(dims), [&](In in) { return permute(in[0], dims); }, x,
        result,
        [&](const Index& i) {
          Index from(i.size());
          for (std::size_t d = 0; d < i.size(); ++d)
            from[static_cast<std::size_t>(order[d])] = i[d];
          return from;
        });
  } while (rank <= 4 && std::next_permutation(order.begin(), order.end()));
}

void transposes_along(Report& report, const Sample& x, const Dims& shape, int d) {
  const int rank = shape.size();
  const auto at = static_cast<std::size_t>(d);
  const int other = (d + 1) % rank;
  Dims swapped = shape;
  std::swap(swapped[d], swapped[other]);
  expect_view(
      report, "transpose", [&](In in) { return transpose(in[0], d, other - rank); }, x, swapped,
      [&](Index i) {
        std::swap(i[at], i[static_cast<std::size_t>(other)]);
        return i;
      });
}

void selections_along(Report& report, const Sample& x, const Dims& shape, int d) {
  const auto at = static_cast<std::size_t>(d);
  const std::int64_t size = shape[d];
  if (size > 0) {
    for (std::int64_t index : {std::int64_t{0}, size - 1, std::int64_t{-1}, -size}) {
      Dims rest = shape;
      rest.erase(d);
      expect_view(
          report, "select", [&](In in) { return select(in[0], d, index); }, x, rest,
          [&](Index i) {
            i.insert(i.begin() + d, index < 0 ? index + size : index);
            return i;
          });
    }
    Dims part = shape;
    part[d] = size - 1;
    expect_view(
        report, "narrow", [&](In in) { return narrow(in[0], d, 1, size - 1); }, x, part,
        [&](Index i) {
          ++i[at];
          return i;
        });
  }
  Dims longer = shape;
  longer.insert(d, 1);
  expect_view(
      report, "unsqueeze", [&](In in) { return unsqueeze(in[0], d); }, x, longer,
      [&](Index i) {
        i.erase(i.begin() + d);
        return i;
      });
  Dims squeezed = shape;
  if (size == 1) squeezed.erase(d);
  expect_view(
      report, "squeeze", [&](In in) { return squeeze(in[0], d); }, x, squeezed,
      [&](Index i) {
        if (size == 1) i.insert(i.begin() + d, 0);
        return i;
      });
}

void slices_along(Report& report, const Sample& x, const Dims& shape, int d) {
  const auto at = static_cast<std::size_t>(d);
  struct Range {
    std::int64_t start, end, step;
  };
  const std::int64_t size = shape[d];
  for (const Range& r : {Range{0, size, 1},
                         {1, size, 1},
                         {0, size, 2},
                         {1, size, 3},
                         {-2, size, 1},
                         {0, -1, 1},
                         {0, size + 9, 1},
                         {2, 1, 1},
                         {size, size, 1},
                         {-size - 3, size, 1}}) {
    const auto clamp = [&](std::int64_t v) {
      return std::clamp<std::int64_t>(v < 0 ? v + size : v, 0, size);
    };
    const std::int64_t start = clamp(r.start), end = std::max(start, clamp(r.end));
    Dims sliced = shape;
    sliced[d] = (end - start + r.step - 1) / r.step;
    expect_view(
        report,
        "slice " + std::to_string(d) + " " + std::to_string(r.start) + ":" + std::to_string(r.end) +
            ":" + std::to_string(r.step),
        [&](In in) { return slice(in[0], d, r.start, r.end, r.step); }, x, sliced,
        [&](Index i) {
          i[at] = start + i[at] * r.step;
          return i;
        });
  }
}

void expansions_of(Report& report, const Sample& x, const Dims& shape) {
  const int rank = shape.size();
  Dims longer = shape;
  longer.push_back(1);
  expect_view(
      report, "unsqueeze -1", [&](In in) { return unsqueeze(in[0], -1); }, x, longer,
      [&](Index i) {
        i.pop_back();
        return i;
      });
  if (rank < 7) {
    Dims target = shape, kept = Dims::filled(rank, -1);
    target.insert(0, 3);
    kept.insert(0, 3);
    for (int d = 0; d < rank; ++d) {
      if (shape[d] == 1) target[d + 1] = kept[d + 1] = 4;
    }
    for (const Dims& to : {target, kept}) {
      expect_view(
          report, "expand", [&](In in) { return expand(in[0], to); }, x, target,
          [&](Index i) {
            i.erase(i.begin());
            for (int d = 0; d < rank; ++d) {
              if (shape[d] == 1) i[static_cast<std::size_t>(d)] = 0;
            }
            return i;
          });
    }
  }
}

void reshapes_of(Report& report, const Sample& x, const Dims& shape) {
  const int rank = shape.size();
  // reshape keeps row-major order, whether it copies or not.
  const std::int64_t n = numel_of(shape);
  std::vector<std::pair<Dims, Dims>> shapes = {{{n}, {n}}, {{1, n, 1}, {1, n, 1}}};
  if (n > 0) shapes.push_back({{-1}, {n}});
  if (n > 0 && n % 2 == 0) shapes.push_back({{2, -1}, {2, n / 2}});
  if (n > 0 && n % 3 == 0) shapes.push_back({{n / 3, 3}, {n / 3, 3}});
  for (const auto& pair : shapes) {
    const Dims &asked = pair.first, &given = pair.second;
    expect(report, "reshape " + to_string(asked), [&](In in) { return reshape(in[0], asked); }, {x},
           x.tensor.dtype(), given, x.values, {0, true, true});
    if (x.tensor.is_contiguous()) {
      expect_view(
          report, "view " + to_string(asked), [&](In in) { return view(in[0], asked); }, x, given,
          [&](const Index& i) { return index_of(number_of(i, given), shape); });
    }
  }
  expect(report, "flatten", [&](In in) { return flatten(in[0]); }, {x}, x.tensor.dtype(), {n},
         x.values, {0, true, true});
  if (rank >= 3) {
    Dims joined{shape[0], shape[1] * shape[2]};
    for (int d = 3; d < rank; ++d) joined.push_back(shape[d]);
    expect(
        report, "flatten 1 2", [&](In in) { return flatten(in[0], 1, 2); }, {x}, x.tensor.dtype(),
        joined, x.values);
  }
  Dims squeezed;
  for (std::int64_t d : shape) {
    if (d != 1) squeezed.push_back(d);
  }
  expect(
      report, "squeeze all", [&](In in) { return squeeze(in[0]); }, {x}, x.tensor.dtype(), squeezed,
      x.values);
}

void views_of(Report& report, const Sample& x, const Dims& shape) {
  permutations_of(report, x, shape);
  for (int d = 0; d < shape.size(); ++d) {
    transposes_along(report, x, shape, d);
    slices_along(report, x, shape, d);
    selections_along(report, x, shape, d);
  }
  expansions_of(report, x, shape);
  reshapes_of(report, x, shape);
}

}  // namespace

void check_view_cells(Report& report, Device device) {
  const std::vector<Dims> shapes = {{},
                                    {0},
                                    {1},
                                    {7},
                                    {2, 3},
                                    {1, 5},
                                    {3, 1, 4},
                                    {2, 0, 3},
                                    {4, 3, 5},
                                    {2, 3, 2, 3},
                                    {1, 2, 1, 3, 1, 2}};
  for (const Dims& shape : shapes) {
    for (DType dtype : {f32, i64, f16, boolean}) {
      for (Layout layout : kLayouts) {
        if (applies(layout, shape))
          views_of(report, sample_of("views", shape, dtype, layout, device), shape);
      }
    }
  }
}

static void check_conversion(Report& report, DType from, DType to_type, const Dims& shape,
                             Layout layout, Device device) {
  Random random(hash_text("copy" + to_string(shape)));
  const double range = is_floating(from) ? 60 : 5;
  const Sample x = make_sample(draw_many(random, from, numel_of(shape), -range, range), shape, from,
                               layout, device);
  const Match exact{0, is_floating(to_type), true};
  expect(
      report, "cast " + std::string(name_of(to_type)), [&](In in) { return cast(in[0], to_type); },
      {x}, to_type, shape, x.values, exact);
  expect(
      report, "to " + std::string(name_of(to_type)), [&](In in) { return to(in[0], to_type); }, {x},
      to_type, shape, x.values, exact);
  Sample into = make_sample(Values(x.values.size()), shape, to_type,
                            layout == Layout::expanded ? Layout::transposed : layout, device);
  Values after = into.base_values;
  for (std::size_t i = 0; i < into.places.size(); ++i)
    after[static_cast<std::size_t>(into.places[i])] = x.values[i];
  std::string problem;
  try {
    copy_(into.tensor, x.tensor);
    problem =
        difference(into.base, to_type, Dims{static_cast<std::int64_t>(after.size())}, after, exact);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  report.count("copy_ " + x.tensor.describe() + " " + name_of(layout) + " to " +
                   std::string(name_of(to_type)),
               problem);
}

static void check_copies(Report& report, DType dtype, Layout layout, Device device) {
  const Dims shape{4, 3};
  const Sample x = sample_of("clone", shape, dtype, layout, device);
  expect(report, "clone", [](In in) { return clone(in[0]); }, {x}, dtype, shape, x.values,
         {0, true, true});
  expect(report, "contiguous", [](In in) { return contiguous(in[0]); }, {x}, dtype, shape, x.values,
         {0, true, true});
  const Tensor laid_out = contiguous(x.tensor);
  expect_true(report, "contiguous is contiguous", laid_out.is_contiguous());
  expect_true(report, "contiguous keeps what is",
              TensorImpl::of(contiguous(laid_out)) == TensorImpl::of(laid_out));
  expect_true(report, "clone has its own bytes", !clone(x.tensor).shares_storage_with(x.tensor));
  if (layout == Layout::expanded) return;
  Sample filled = sample_of("fill", shape, dtype, layout, device);
  Values after = filled.base_values;
  fill_(filled.tensor, 1);
  for (std::int64_t place : filled.places) after[static_cast<std::size_t>(place)] = 1;
  const Dims size{static_cast<std::int64_t>(after.size())};
  report.count("fill_", difference(filled.base, dtype, size, after, {0, true, true}));
  zero_(filled.tensor);
  for (std::int64_t place : filled.places) after[static_cast<std::size_t>(place)] = 0;
  report.count("zero_", difference(filled.base, dtype, size, after, {0, true, true}));
  const Sample row = sample_of("row", {3}, dtype, Layout::strided, device);
  copy_(filled.tensor, row.tensor);
  for (std::size_t i = 0; i < filled.places.size(); ++i) {
    after[static_cast<std::size_t>(filled.places[i])] = row.values[i % 3];
  }
  report.count("copy_ broadcast", difference(filled.base, dtype, size, after, {0, true, true}));
}

void check_copy_cells(Report& report, Device device) {
  for (DType from : kAllDTypes) {
    for (DType to_type : kAllDTypes) {
      for (const Dims& shape :
           {Dims{}, Dims{0}, Dims{7}, Dims{33}, Dims{17, 33}, Dims{257}, Dims{3, 4, 5}}) {
        for (Layout layout : kLayouts) {
          if (applies(layout, shape))
            check_conversion(report, from, to_type, shape, layout, device);
        }
      }
    }
  }
  for (DType dtype : kAllDTypes) {
    for (Layout layout : kLayouts) check_copies(report, dtype, layout, device);
  }
}

static void check_joins(Report& report, DType dtype, const Dims& shape, int d, Layout la, Layout lb,
                        Device device) {
  Dims longer = shape, none = shape, joined = shape;
  longer[d] += 3;
  none[d] = 0;
  joined[d] = 2 * shape[d] + 3;
  const std::vector<Sample> parts = {sample_of("a", shape, dtype, la, device),
                                     sample_of("b", longer, dtype, lb, device),
                                     sample_of("c", none, dtype, Layout::contiguous, device)};
  const auto at = static_cast<std::size_t>(d);
  expect_at(
      report, "cat",
      [&](In in) {
        return cat({in[0], in[1], in[2]}, d % 2 ? d - shape.size() : d);
      },
      parts, dtype, joined,
      [&](Index i) {
        const bool second = i[at] >= shape[d];
        if (second) i[at] -= shape[d];
        const Sample& from = parts[second];
        return from.values[static_cast<std::size_t>(number_of(i, from.tensor.shape()))];
      },
      {0, true, true});
  // Empty lists join tensors of any rank, wherever they stand.
  expect_at(
      report, "cat with an empty list",
      [&](In in) {
        return cat({in[1], in[0], in[1]}, d);
      },
      {parts[0], sample_of("e", {0}, dtype, Layout::contiguous, device)}, dtype, shape,
      [&](const Index& i) {
        return parts[0].values[static_cast<std::size_t>(number_of(i, shape))];
      },
      {0, true, true});
  Dims stacked = shape;
  stacked.insert(d, 2);
  const std::vector<Sample> two = {parts[0], sample_of("d", shape, dtype, lb, device)};
  expect_at(
      report, "stack",
      [&](In in) {
        return stack({in[0], in[1]}, d);
      },
      two, dtype, stacked,
      [&](Index i) {
        const Sample& from = two[static_cast<std::size_t>(i[at])];
        i.erase(i.begin() + d);
        return from.values[static_cast<std::size_t>(number_of(i, shape))];
      },
      {0, true, true});
}

static void check_parts_of(Report& report, DType dtype, const Dims& shape, int d, Layout layout,
                           Device device) {
  // Parts in order cover the whole.
  Dims longer = shape;
  longer[d] += 3;
  const auto at = static_cast<std::size_t>(d);
  const Sample x = sample_of("b", longer, dtype, layout, device);
  const auto check_parts = [&](const std::string& name, const std::vector<Tensor>& got,
                               const std::vector<std::int64_t>& sizes) {
    expect_true(report, name + " count", got.size() == sizes.size());
    std::int64_t start = 0;
    for (std::size_t k = 0; k < std::min(got.size(), sizes.size()); ++k) {
      Dims part = longer;
      part[d] = sizes[k];
      Values expected;
      for (std::int64_t i = 0; i < numel_of(part); ++i) {
        Index index = index_of(i, part);
        index[at] += start;
        expected.push_back(x.values[static_cast<std::size_t>(number_of(index, longer))]);
      }
      report.count(name, difference(got[k], dtype, part, expected, {0, true, true}));
      start += sizes[k];
    }
  };
  const auto pieces = [&](std::int64_t size) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t left = longer[d]; left > 0; left -= size)
      sizes.push_back(std::min(left, size));
    return sizes;
  };
  check_parts("split", split(x.tensor, 2, d), pieces(2));
  check_parts("split whole", split(x.tensor, longer[d] + 5, d), {longer[d]});
  check_parts("split sizes", split(x.tensor, std::vector<std::int64_t>{1, 0, longer[d] - 1}, d),
              {1, 0, longer[d] - 1});
  const std::vector<std::int64_t> listed{longer[d]};
  check_parts("split list", split(x.tensor, {longer[d] - 2, 2}, d), {longer[d] - 2, 2});
  check_parts("split list of one", split(x.tensor, {longer[d]}, d), listed);
  check_parts("chunk", chunk(x.tensor, 3, d), pieces((longer[d] + 2) / 3));
}

void check_join_cells(Report& report, Device device) {
  const std::vector<Dims> shapes = {{5}, {2, 3}, {3, 1, 4}, {2, 3, 4, 5}, {33, 7}};
  for (DType dtype : kAllDTypes) {
    for (const Dims& shape : shapes) {
      for (int d = 0; d < shape.size(); ++d) {
        for (const auto& [la, lb] : {std::pair{Layout::contiguous, Layout::contiguous},
                                     std::pair{Layout::transposed, Layout::strided},
                                     std::pair{Layout::offset, Layout::expanded}}) {
          check_joins(report, dtype, shape, d, la, lb, device);
          check_parts_of(report, dtype, shape, d, lb, device);
        }
      }
    }
  }
}

}  // namespace brrr::test
