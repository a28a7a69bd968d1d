// Gradients of views, structured ops and composites.
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"
#include "tests/harness/op_gradients.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;
using Out = std::vector<Tensor>;

Tensor leaf(const std::string& key, const Dims& shape, Layout layout = Layout::contiguous) {
  return smooth_leaf(key, shape, layout, -2, 2);
}

// f(leaf, layout) over every layout that the shape has.
void each_layout(const std::string& key, const Dims& shape,
                 const std::function<void(const Tensor& x)>& f) {
  for (const Layout layout : kLeafLayouts) {
    if (applies(layout, shape)) f(leaf(key, shape, layout));
  }
}
void each_shape(const std::string& key, const std::function<void(const Tensor& x)>& f) {
  for (const Dims& shape : kGradientShapes) each_layout(key, shape, f);
}

Tensor index(const std::string& key, const Dims& shape, std::int64_t below,
             Layout layout = Layout::contiguous) {
  return indices_of(key, shape, below, layout, cpu).tensor;
}

// The results of views are multiplied by their inputs' own reshapes elsewhere; here squaring makes
// the second order see more than zeros.
Tensor bent(const Tensor& x) { return x * x; }

}  // namespace

const std::map<std::string, GradientCellsOf>& structured_gradient_cells() {
  static const std::map<std::string, GradientCellsOf> table = {
      {"view", check_view_gradients},         {"permute", check_view_gradients},
      {"expand", check_view_gradients},       {"slice", check_view_gradients},
      {"unslice", check_view_gradients},      {"copy", check_view_gradients},
      {"softmax_of", check_scan_gradients},   {"matmul", check_matmul_gradients},
      {"affine", check_matmul_gradients},     {"cat", check_join_gradients},
      {"cumsum", check_scan_gradients},       {"triangle", check_scan_gradients},
      {"gather", check_index_gradients},      {"index_select", check_index_gradients},
      {"scatter_add", check_index_gradients}, {"checked", check_scan_gradients},
      {"argmax", check_constant_results},     {"argmin", check_constant_results},
      {"empty", check_constant_results},      {"full", check_constant_results},
      {"arange", check_constant_results},     {"uniform", check_constant_results},
      {"normal", check_constant_results},     {"bernoulli", check_constant_results},
      {"cast", check_view_gradients}};
  return table;
}

void check_gradient_coverage(Report& report) {
  for (const std::string& name : structured_ops()) {
    report.count(name, structured_gradient_cells().count(name)
                           ? ""
                           : "has no cells in op_gradients_structured.cpp");
  }
}

static void check_gradients_of_views(Report& report) {
  each_shape("view", [&](const Tensor& x) {
    expect_gradient(
        report, "reshape", [](In in) { return bent(reshape(in[0], {-1})); },
        x.numel() ? std::vector{x} : std::vector{leaf("one", {1})});
    expect_gradient(report, "unsqueeze", [](In in) { return bent(unsqueeze(in[0], -1)); }, {x});
    expect_gradient(report, "squeeze", [](In in) { return bent(squeeze(in[0])); }, {x});
    expect_gradient(report, "clone", [](In in) { return bent(clone(in[0])); }, {x});
    expect_gradient(report, "contiguous", [](In in) { return bent(contiguous(in[0])); }, {x});
    expect_gradient(report, "flatten", [](In in) { return bent(flatten(in[0])); }, {x});
    Dims wider(x.shape());
    wider.insert(0, 2);
    expect_gradient(report, "expand", [&](In in) { return bent(expand(in[0], wider)); }, {x});
    expect_gradient(report, "expand with weights",
                    [&](In in) { return expand(in[0], wider) * in[1]; },
                    {x, leaf("weights", wider)});
    expect_gradient(report, "sum_to", [&](In in) { return bent(sum_to(in[0], x.shape())); },
                    {leaf("wide", wider)});
    for (int d = 0; d < x.rank(); ++d) {
      const std::int64_t size = x.size(d);
      expect_gradient(report, "transpose", [d](In in) { return bent(transpose(in[0], d, -1)); },
                      {x});
      expect_gradient(report, "movedim", [d](In in) { return bent(movedim(in[0], d, 0)); }, {x});
      for (const auto& [start, end, step] :
           {std::tuple{0, 100, 1}, {0, 100, 2}, {1, 100, 1}, {1, 100, 3}, {-2, -1, 1}, {1, 1, 1}}) {
        expect_gradient(
            report, "slice",
            [d, a = start, b = end, c = step](In in) { return bent(slice(in[0], d, a, b, c)); },
            {x});
      }
      if (size > 0)
        expect_gradient(report, "select", [d](In in) { return bent(select(in[0], d, -1)); }, {x});
      expect_gradient(report, "unslice",
                      [&](In in) { return bent(unslice(in[0], d, 1, 3 * size + 2, 2)); }, {x});
      expect_gradient(report, "roll", [d](In in) { return bent(roll(in[0], 2, d)); }, {x});
    }
  });
  each_layout("permute", {2, 3, 4}, [&](const Tensor& x) {
    for (const Dims& order : {Dims{2, 0, 1}, Dims{1, 2, 0}, Dims{0, 2, 1}}) {
      expect_gradient(report, "permute",
                      [&](In in) { return permute(in[0], order) * permute(in[1], order) * in[2]; },
                      {x, leaf("other", {2, 3, 4}), leaf("third", {1})});
    }
  });
  each_layout("expand", {2, 1, 3}, [&](const Tensor& x) {
    const Tensor weights = leaf("w", {4, 2, 5, 3});
    expect_gradient(report, "expand inside",
                    [](In in) {
                      return expand(in[0], {4, 2, 5, 3}) * in[1];
                    },
                    {x, weights});
    expect_gradient(report, "repeat", [](In in) { return bent(repeat(in[0], {2, 1, 3, 2})); }, {x});
    expect_gradient(report, "tile", [](In in) { return bent(tile(in[0], {2})); }, {x});
  });
}

static void check_gradients_of_copies(Report& report) {
  // Conversion: there and back, through a type that holds the values' gradients.
  const Tensor x = leaf("cast", {3, 2});
  expect_gradient(report, "copy_ of a part",
                  [](In in) {
                    Tensor y = zeros({3, 2}, {f64, cpu});
                    copy_(y, in[0]);
                    return bent(y);
                  },
                  {x});
  expect_gradient(report, "copy_ of a broadcast source",
                  [](In in) {
                    Tensor y = clone(in[0]);
                    copy_(y, in[1]);
                    return bent(y);
                  },
                  {x, leaf("row", {2})});
  const Tensor single = requires_grad_(ones({3}));
  const Tensor through = grad(sum(cast(single, f64) * 3), single);
  report.count("cast's gradient", difference(through, f32, {3}, {3, 3, 3}));
}

void check_view_gradients(Report& report) {
  check_gradients_of_views(report);
  check_gradients_of_copies(report);
}

static void check_gradients_of_joins(Report& report) {
  for (const Layout layout : kLeafLayouts) {
    const Tensor a = leaf("a", {2, 3}, layout), b = leaf("b", {2, 1}, layout),
                 c = leaf("c", {2, 2}, layout), d = leaf("d", {2, 3}, layout);
    expect_gradient(report, "cat",
                    [](In in) {
                      return bent(cat({in[0], in[1], in[2]}, 1));
                    },
                    {a, b, c});
    expect_gradient(report, "cat with itself",
                    [](In in) {
                      return bent(cat({in[0], in[1], in[0]}, 0));
                    },
                    {a, d});
    expect_gradient(report, "cat with constants",
                    [](In in) {
                      return bent(cat({in[0], in[1], ones({2, 2}, {f64, cpu})}, 1));
                    },
                    {detach(a), b});
    for (const int dim : {0, 1, 2, -1}) {
      expect_gradient(report, "stack",
                      [dim](In in) {
                        return bent(stack({in[0], in[1]}, dim));
                      },
                      {a, d});
    }
  }
  std::vector<Tensor> many;
  for (int i = 0; i < 40; ++i) many.push_back(leaf(std::to_string(i), {1, 1 + i % 3}));
  expect_gradient(
      report, "cat of 40",
      [](In in) { return bent(cat(std::vector<Tensor>(in.begin(), in.end()), 1)); }, many);
  // Each element of each by itself, not along a direction: a swap of two parts would show.
  {
    const Tensor y = cat(many, 1);
    Values weights;
    for (std::int64_t i = 0; i < y.numel(); ++i) weights.push_back(static_cast<double>(i));
    const auto gradients = grad(std::vector{sum(y * tensor<double>(weights, y.shape()))}, many);
    std::int64_t at = 0;
    std::string problem;
    for (std::size_t i = 0; i < many.size() && problem.empty(); ++i) {
      Values expected;
      for (std::int64_t k = 0; k < many[i].numel(); ++k)
        expected.push_back(static_cast<double>(at++));
      problem = difference(gradients[i], f64, many[i].shape(), expected, {0, false, true});
    }
    report.count("cat of 40, element by element", problem);
  }
}

static void check_gradients_of_parts(Report& report) {
  each_shape("split", [&](const Tensor& x) {
    for (int dim = 0; dim < x.rank(); ++dim) {
      expect_gradient(report, "split",
                      [dim](In in) {
                        Out parts = split(in[0], 2, dim);
                        for (std::size_t i = 0; i < parts.size(); ++i)
                          parts[i] = bent(parts[i]) * static_cast<double>(i + 1);
                        return parts;
                      },
                      {x});
      expect_gradient(report, "chunk",
                      [dim](In in) {
                        const Out parts = chunk(in[0], 3, dim);
                        return Out{bent(parts.back()), parts.front()};  // and some unused
                      },
                      {x});
    }
  });
}

void check_join_gradients(Report& report) {
  check_gradients_of_joins(report);
  check_gradients_of_parts(report);
}

void check_index_gradients(Report& report) {
  for (const Layout layout : kLeafLayouts) {
    const Tensor x = leaf("x", {4, 3}, layout);
    for (const int dim : {0, 1}) {
      const std::int64_t size = x.size(dim);
      const Tensor picks = index("picks", {5}, size);
      expect_gradient(report, "index_select",
                      [&](In in) { return bent(index_select(in[0], dim, picks)); }, {x});
      // Of the whole shape, and smaller along the other dimension.
      for (const Dims& shape : {Dims{4, 3}, Dims{2, 3}, Dims{4, 2}, Dims{1, 1}, Dims{0, 3}}) {
        const Tensor at = index("gather", shape, size);
        expect_gradient(report, "gather", [&](In in) { return bent(gather(in[0], dim, at)); }, {x});
        const Tensor source = leaf("source", {4, 3}, layout);
        expect_gradient(report, "scatter_add",
                        [&](In in) { return bent(scatter_add(in[0], dim, at, in[1])); },
                        {x, source});
        expect_gradient(report, "scatter_add by source alone",
                        [&](In in) { return bent(scatter_add(in[1], dim, at, in[0])); },
                        {source, detach(x)});
      }
      expect_gradient(report, "flip", [dim](In in) { return flip(in[0], dim) * in[0]; }, {x});
    }
    // An index longer than the tensor along its dimension.
    const Tensor longer = index("longer", {9, 3}, 4);
    expect_gradient(report, "gather of more", [&](In in) { return bent(gather(in[0], 0, longer)); },
                    {x});
    for (const Dims& shape : {Dims{}, Dims{5}, Dims{2, 3}, Dims{0}}) {
      const Tensor words = index("words", shape, 4);
      expect_gradient(report, "embedding", [&](In in) { return bent(embedding(in[0], words)); },
                      {x});
    }
  }
  const Tensor cube = leaf("cube", {2, 3, 4});
  for (const int dim : {0, 1, 2}) {
    const Tensor at = index("cube", {1, 2, 2}, cube.size(dim));
    expect_gradient(report, "gather in 3 dimensions",
                    [&](In in) { return bent(gather(in[0], dim, at)); }, {cube});
    expect_gradient(report, "scatter_add in 3 dimensions",
                    [&](In in) { return bent(scatter_add(in[0], dim, at, in[1])); },
                    {cube, leaf("source", {1, 3, 3})});
  }
  const Tensor point = leaf("point", {}), zero = index("zero", {}, 1);
  expect_gradient(report, "gather 0-d", [&](In in) { return bent(gather(in[0], 0, zero)); },
                  {point});
  expect_gradient(report, "index_select 0-d",
                  [&](In in) { return bent(index_select(in[0], 0, zero)); }, {point});
}

void check_scan_gradients(Report& report) {
  each_shape("scan", [&](const Tensor& x) {
    for (int dim = x.rank() ? -1 : 0; dim < x.rank(); ++dim) {
      expect_gradient(report, "checked", [](In in) { return bent(checked(in[0], -100, 100)); },
                      {x});
      expect_gradient(report, "cumsum", [dim](In in) { return bent(cumsum(in[0], dim)); }, {x});
      expect_gradient(report, "softmax", [dim](In in) { return bent(softmax(in[0], dim)); }, {x});
    }
    if (x.rank() < 2) return;
    for (const int diagonal : {-2, -1, 0, 1, 5}) {
      expect_gradient(report, "tril", [&](In in) { return bent(tril(in[0], diagonal)) + in[0]; },
                      {x});
      expect_gradient(report, "triu", [&](In in) { return bent(triu(in[0], diagonal)) + in[0]; },
                      {x});
    }
  });
  expect_gradient(report, "cumsum 0-d", [](In in) { return bent(cumsum(in[0], 0)); },
                  {leaf("point", {})});
}

void check_matmul_gradients(Report& report) {
  const std::vector<std::pair<Dims, Dims>> pairs = {{{3}, {3}},
                                                    {{3}, {3, 2}},
                                                    {{2, 3}, {3}},
                                                    {{2, 3}, {3, 4}},
                                                    {{1, 3}, {3, 1}},
                                                    {{5, 1}, {1, 4}},
                                                    {{2, 2, 3}, {3, 2}},
                                                    {{2, 3}, {2, 3, 2}},
                                                    {{2, 2, 3}, {2, 3, 2}},
                                                    {{1, 2, 3}, {2, 3, 2}},
                                                    {{2, 2, 3}, {3}},
                                                    {{3}, {2, 3, 2}},
                                                    {{2, 1, 2, 3}, {3, 3, 2}},
                                                    {{2, 1, 2, 3}, {1, 3, 3, 2}},
                                                    {{2, 2, 2, 3}, {2, 2, 3, 2}},
                                                    {{2, 2, 2, 3}, {3, 2}},
                                                    {{0, 3}, {3, 2}},
                                                    {{2, 0}, {0, 2}},
                                                    {{7, 9}, {9, 5}}};
  for (const auto& [a, b] : pairs) {
    for (const auto& [la, lb] : {std::pair{Layout::contiguous, Layout::contiguous},
                                 {Layout::transposed, Layout::contiguous},
                                 {Layout::contiguous, Layout::transposed},
                                 {Layout::strided, Layout::offset},
                                 {Layout::transposed, Layout::transposed}}) {
      const Tensor x = leaf("left", a, la), y = leaf("right", b, lb);
      expect_gradient(report, "matmul", [](In in) { return matmul(in[0], in[1]); }, {x, y});
      // The last two dimensions as a transposed view.
      if (a.size() >= 2 && b.size() >= 2) {
        expect_gradient(
            report, "matmul of transposed views",
            [](In in) { return matmul(transpose(in[1], -2, -1), transpose(in[0], -2, -1)); },
            {x, y});
      }
    }
    expect_gradient(report, "matmul by one alone", [](In in) { return bent(matmul(in[1], in[0])); },
                    {leaf("right", b), detach(leaf("left", a))});
  }
  expect_gradient(report, "matmul with itself", [](In in) { return matmul(in[0], in[0]); },
                  {leaf("square", {3, 3})});
  for (const Layout layout : kLeafLayouts) {
    const Tensor weight = leaf("weight", {4, 3}, layout), bias = leaf("bias", {4}, layout),
                 factor = leaf("factor", {3, 4}, layout);
    for (const Dims& shape : {Dims{3}, Dims{2, 3}, Dims{2, 2, 3}, Dims{2, 1, 2, 3}, Dims{0, 3}}) {
      const Tensor x = leaf("input", shape, layout);
      expect_gradient(report, "linear", [](In in) { return bent(linear(in[0], in[1], in[2])); },
                      {x, weight, bias});
      expect_gradient(report, "linear without bias",
                      [](In in) { return bent(linear(in[0], in[1])); }, {x, weight});
      if (shape.size() < 2) continue;
      expect_gradient(report, "affine", [](In in) { return bent(affine(in[0], in[1], in[2])); },
                      {x, factor, bias});
    }
    expect_gradient(report, "affine with a batch of factors",
                    [](In in) { return bent(affine(in[0], in[1], in[2])); },
                    {leaf("input", {2, 3}, layout), leaf("factors", {2, 3, 4}, layout), bias});
  }
}

static void check_gradients_of_reducing_composites(Report& report) {
  each_shape("composite", [&](const Tensor& x) {
    const bool empty = x.numel() == 0;
    if (!empty) {
      expect_gradient(report, "logsumexp", [](In in) { return logsumexp(in[0]); }, {x});
    }
    if (x.numel() > 1) {
      expect_gradient(report, "var", [](In in) { return var(in[0]); }, {x});
      expect_gradient(report, "std", [](In in) { return std(in[0]); }, {x});
    }
    for (int d = 0; d < std::max(x.rank(), 1); ++d) {
      const int dim = d - std::max(x.rank(), 1);
      expect_gradient(report, "softmax", [&](In in) { return softmax(in[0], dim); }, {x});
      expect_gradient(report, "log_softmax", [&](In in) { return log_softmax(in[0], dim); }, {x});
      if (empty || x.rank() == 0) continue;
      for (const bool keepdim : {false, true}) {
        expect_gradient(report, "logsumexp over a dimension",
                        [&](In in) { return logsumexp(in[0], {dim}, keepdim); }, {x});
        if (x.size(d) < 2) continue;
        for (const int correction : {0, 1}) {
          expect_gradient(report, "var over a dimension",
                          [&](In in) { return var(in[0], {dim}, keepdim, correction); }, {x});
          expect_gradient(report, "std over a dimension",
                          [&](In in) { return std(in[0], {dim}, keepdim, correction); }, {x});
        }
      }
    }
    for (int dims = 1; dims <= std::min(x.rank(), 2) && !empty; ++dims) {
      if (x.size(-1) < 2) continue;  // its only element, centred, is a zero divided by a small eps
      Dims last;
      for (int d = x.rank() - dims; d < x.rank(); ++d) last.push_back(x.size(d));
      const Tensor weight = leaf("weight", last), bias = leaf("bias", last);
      expect_gradient(report, "layer_norm",
                      [&](In in) { return layer_norm(in[0], dims, in[1], in[2], 0.1); },
                      {x, weight, bias});
      expect_gradient(report, "layer_norm without parameters",
                      [&](In in) { return layer_norm(in[0], dims, {}, {}, 0.1); }, {x});
      expect_gradient(report, "rms_norm", [&](In in) { return rms_norm(in[0], dims, in[1], 0.1); },
                      {x, weight});
    }
    if (!empty) {
      expect_gradient(report, "dropout",
                      [](In in) { return bent(dropout(in[0], 0.4)) + bent(dropout(in[0], 0.1)); },
                      {x});
    }
  });
}

static void check_gradients_of_pointwise_composites(Report& report) {
  each_shape("composite", [&](const Tensor& x) {
    const Tensor low = leaf("low", {}), high = smooth_leaf("high", {}, Layout::contiguous, 0, 1, 1);
    expect_gradient(report, "clamp_min by a tensor",
                    [](In in) { return bent(clamp_min(in[0], in[1])); }, {x, high});
    expect_gradient(report, "clamp_max by a tensor",
                    [](In in) { return bent(clamp_max(in[0], in[1])); }, {x, high});
    expect_gradient(report, "clamp_min", [](In in) { return bent(clamp_min(in[0], 0.5)); }, {x});
    expect_gradient(report, "clamp_max", [](In in) { return bent(clamp_max(in[0], 0.5)); }, {x});
    const Tensor mask = sample_of("mask", x.shape(), boolean, Layout::contiguous, cpu).tensor;
    expect_gradient(report, "masked_fill",
                    [&](In in) { return bent(masked_fill(in[0], mask, 3.0)); }, {x});
    expect_gradient(report, "addcmul by a number",
                    [](In in) { return addcmul(in[0], in[1], in[0], 0.7); }, {x, low});
    expect_gradient(report, "addcdiv by a number",
                    [](In in) { return addcdiv(in[0], in[0], in[1], 0.7); }, {x, high});
  });
}

static void check_gradients_of_masked_places(Report& report) {
  // Masked places are nothing, to both orders.
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor masked = tensor<double>(std::vector<double>{0, -inf, 0, 0, 0, -inf}, {2, 3});
  expect_gradient(report, "softmax with masked places",
                  [&](In in) { return softmax(in[0] + masked, 1); }, {leaf("scores", {2, 3})});
  expect_gradient(report, "logsumexp with masked places",
                  [&](In in) { return logsumexp(in[0] + masked, {1}); }, {leaf("scores", {2, 3})});
}

void check_composite_gradients(Report& report) {
  check_gradients_of_reducing_composites(report);
  check_gradients_of_pointwise_composites(report);
  check_gradients_of_masked_places(report);
}

void check_constant_results(Report& report) {
  const Tensor x = leaf("x", {2, 3});
  const auto constant = [&](const char* name, const Tensor& result) {
    report.count(name, requires_grad(result) ? "requires a gradient" : "");
  };
  constant("argmax", argmax(x, 1));
  constant("argmin", argmin(x));
  constant("empty_like", empty_like(x));
  constant("full_like", full_like(x, 2.0));
  constant("arange", arange(3));
  constant("rand_like", rand_like(x));
  constant("randn_like", randn_like(x));
  constant("gt", gt(x, 0.0));
  constant("isnan", isnan(x));
  constant("any", any(x));
  constant("cast to integers", cast(x, i64));
  constant("detach", detach(x));
  const Tensor one = full({}, 1, {.dtype = x.dtype()});
  for (const Tensor& output : adam_step({x, x, x, x, one, one, 0.1, 0.1, 0.1, 0.1, 0}))
    constant("adam_step", output);
}

}  // namespace brrr::test
