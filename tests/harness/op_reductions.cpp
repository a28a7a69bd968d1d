// The harness's cells of reductions and arg reductions.
#include <algorithm>
#include <cmath>

#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "tests/harness/op_harness.h"

namespace brrr::test {

namespace {

std::string list_of(const Dims& dims) { return to_string(dims); }

// The values that each element of the result is made of, in row-major order of both.
std::vector<Values> groups_of(const Values& values, const Dims& shape, const Dims& dims,
                              Dims& result, bool keepdim) {
  std::vector<bool> reduced(static_cast<std::size_t>(shape.size()), dims.empty());
  for (std::int64_t d : dims)
    reduced[static_cast<std::size_t>(d < 0 ? d + shape.size() : d)] = true;
  std::int64_t count = 1;
  for (int d = 0; d < shape.size(); ++d) {
    if (!reduced[static_cast<std::size_t>(d)]) {
      result.push_back(shape[d]);
      count *= shape[d];
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  std::vector<Values> groups(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), place = 0, step = 1;
    for (int d = shape.size() - 1; d >= 0; --d) {
      const std::int64_t at = rest % shape[d];
      rest /= shape[d];
      if (reduced[static_cast<std::size_t>(d)]) continue;
      place += at * step;
      step *= shape[d];
    }
    groups[static_cast<std::size_t>(place)].push_back(values[i]);
  }
  return groups;
}

// Rounding that an honest summation in f32 may add for the longest group, over and above the
// rounding of the result.
double summation_slack(const std::string& op, DType dtype, const std::vector<Values>& groups) {
  if (!is_floating(dtype)) return 0;
  const double epsilon = dtype == f64 ? 0x1p-53 : 0x1p-24;
  double most = 0;
  for (const Values& group : groups) {
    double size = 0, product = 1;
    for (double v : group) {
      size += std::fabs(v);
      product *= v;
    }
    const auto n = static_cast<double>(group.size());
    if (op == "sum") most = std::max(most, 2 * epsilon * size);
    if (op == "mean" && n > 0) most = std::max(most, 2 * epsilon * size / n);
    if (op == "prod") most = std::max(most, n * epsilon * std::fabs(product));
    if (op == "norm") most = std::max(most, 4 * epsilon * size);
  }
  return most;
}

Values samples_for(const std::string& op, Random& random, DType dtype, std::int64_t count) {
  if (op != "prod" || dtype == boolean) return draw_many(random, dtype, count, -2, 2);
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double sign = random.below(2) ? 1 : -1;
    const double size = is_floating(dtype)            ? round_to(dtype, random.uniform(0.8, 1.25))
                        : i % 61 == 7 && count < 1000 ? 2
                                                      : 1;
    values[i] = sign * size;
  }
  return values;
}

const std::vector<Dims> kShapes = {
    {},       {1},      {7},       {31},      {33},      {127},        {129},    {257},
    {1023},   {1025},   {2, 3},    {5, 7},    {17, 33},  {64, 65},     {1, 129}, {129, 1},
    {3, 257}, {257, 3}, {3, 1, 4}, {2, 0, 3}, {4, 3, 5}, {2, 3, 4, 5}, {0}};

std::vector<Dims> dim_lists(const Dims& shape) {
  std::vector<Dims> lists;
  for (int d = 0; d < shape.size(); ++d) lists.push_back({d});
  if (shape.size() >= 1) lists.push_back({-1});
  if (shape.size() >= 2) lists.push_back({0, 1});
  if (shape.size() >= 3) {
    lists.push_back({0, 2});
    lists.push_back({1, 2});
    lists.push_back({-1, 0});
  }
  if (shape.size() >= 4) lists.push_back({1, 3});
  return lists;
}

void check_one(Report& report, const Reduction& row, const Sample& sample, const Dims& shape,
               const Dims* dims, bool keepdim, Layout layout) {
  const OpInfo& info = op_info(row.op);
  const std::string op = info.name;
  const std::string cell = op + "(" + sample.tensor.describe() + " " + name_of(layout) + ", " +
                           (dims ? list_of(*dims) : "all") + (keepdim ? ", keepdim)" : ")");
  const Typed typed{sample.tensor.dtype(), Rank::dimensions};
  const Types types = types_of(info, std::span(&typed, 1));
  const auto call = [&](std::span<const Tensor> in) {
    return dims ? row.over(in[0], *dims, keepdim) : row.all(in[0]);
  };
  Dims result;
  const auto groups = groups_of(sample.values, shape, dims ? *dims : Dims{}, result, keepdim);
  // A largest element needs elements.
  const bool nothing =
      (op == "max" || op == "min") &&
      std::any_of(groups.begin(), groups.end(), [](const Values& g) { return g.empty(); });
  if (!types.accepted || nothing) {
    std::string problem = "took what it has no result for";
    try {
      call(std::span(&sample.tensor, 1));
    } catch (const Error& error) {
      problem = std::string(error.what()).starts_with("[" + op + "]") ? "" : error.what();
    }
    report.count(cell, problem);
    return;
  }
  Values expected;
  for (const Values& group : groups) expected.push_back(reduction_reference(op)(group));
  std::string problem;
  try {
    const Tensor got = run_with_meta(call, std::span(&sample.tensor, 1), problem);
    if (problem.empty()) {
      problem = difference(got, types.output, result, expected,
                           {summation_slack(op, types.output, groups)});
    }
  } catch (const std::exception& error) {
    problem = std::string("threw ") + error.what();
  }
  report.count(cell, problem);
}

struct ArgReduction {
  const char* name;
  Tensor (*all)(const Tensor&);
  Tensor (*over)(const Tensor&, int, bool);
};
constexpr ArgReduction kArgReductions[] = {
#define BRRR_ARG_REDUCTION(name, ...)                    \
  {#name, [](const Tensor& x) { return brrr::name(x); }, \
   [](const Tensor& x, int dim, bool keepdim) { return brrr::name(x, dim, keepdim); }},
#include "brrr/dispatch/ops.def"
};

// The first of the largest (smallest); a NaN is before every number, as in PyTorch.
double arg_reference(bool largest, const Values& values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (std::isnan(values[best])) break;
    if (std::isnan(values[i]) || (largest ? values[i] > values[best] : values[i] < values[best]))
      best = i;
  }
  return static_cast<double>(best);
}

void check_arg(Report& report, const ArgReduction& row, const Sample& sample, const Dims& shape,
               const int* dim, bool keepdim, Layout layout, const char* what) {
  const std::string cell = std::string(row.name) + "(" + sample.tensor.describe() + " " +
                           name_of(layout) + what + ", " + (dim ? std::to_string(*dim) : "all") +
                           (keepdim ? ", keepdim)" : ")");
  Dims result;
  const auto groups = groups_of(sample.values, shape, dim ? Dims{*dim} : Dims{}, result, keepdim);
  const auto call = [&](std::span<const Tensor> in) {
    return dim ? row.over(in[0], *dim, keepdim) : row.all(in[0]);
  };
  std::string problem;
  const bool nothing =
      std::any_of(groups.begin(), groups.end(), [](const Values& g) { return g.empty(); });
  try {
    Values expected;
    if (!nothing) {
      for (const Values& group : groups)
        expected.push_back(arg_reference(std::string(row.name) == "argmax", group));
    }
    const Tensor got = run_with_meta(call, std::span(&sample.tensor, 1), problem);
    if (nothing) problem = "gave an index into nothing";
    if (problem.empty()) problem = difference(got, i64, result, expected);
  } catch (const Error& error) {
    const bool named = std::string(error.what()).starts_with(std::string("[") + row.name + "]");
    if (!nothing || !named) problem = std::string("threw ") + error.what();
  }
  report.count(cell, problem);
}

}  // namespace

void check_reductions(Report& report, Device device) {
  for (const Reduction& row : reduction_ops()) {
    const std::string op = op_info(row.op).name;
    for (DType dtype : kAllDTypes) {
      if (!in_this_part(op_info(row.op).name, dtype)) continue;
      for (const Dims& shape : kShapes) {
        for (Layout layout : kLayouts) {
          if (!applies(layout, shape)) continue;
          Random random(hash_text(op + to_string(shape)));
          const Sample sample = make_sample(samples_for(op, random, dtype, numel_of(shape)), shape,
                                            dtype, layout, device);
          check_one(report, row, sample, shape, nullptr, false, layout);
          for (const Dims& dims : dim_lists(shape)) {
            check_one(report, row, sample, shape, &dims, false, layout);
            check_one(report, row, sample, shape, &dims, true, layout);
          }
        }
      }
    }
  }
  for (const ArgReduction& row : kArgReductions) {
    for (DType dtype : kAllDTypes) {
      if (!in_this_part(row.name, dtype)) continue;
      for (const Dims& shape : kShapes) {
        for (Layout layout : kLayouts) {
          if (!applies(layout, shape)) continue;
          Random random(hash_text(row.name + to_string(shape)));
          Values values = draw_many(random, dtype, numel_of(shape), -2, 2);
          for (int nans = 0; nans < (is_floating(dtype) ? 2 : 1); ++nans) {
            for (std::size_t i = 3; nans && i < values.size(); i += 5) values[i] = std::nan("");
            const Sample sample = make_sample(values, shape, dtype, layout, device);
            const char* what = nans ? " with NaN" : "";
            check_arg(report, row, sample, shape, nullptr, false, layout, what);
            for (int d = 0; d < shape.size(); ++d) {
              const int dim = d % 2 ? d - shape.size() : d;
              check_arg(report, row, sample, shape, &dim, d % 2, layout, what);
            }
          }
        }
      }
    }
  }
}

}  // namespace brrr::test
