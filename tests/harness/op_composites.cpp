// Cells of composites: softmax, normalizations, variance. Each op of the chain rounds, so 16-bit
// types get a tolerance of a few units, where a single op gets one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "brrr/ops/functions.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;

double slack_of(DType dtype, double scale) {
  switch (dtype) {
    case DType::f16: return 8 * scale * 0x1p-11;
    case DType::bf16: return 8 * scale * 0x1p-8;
    case DType::f32: return 8 * scale * 0x1p-24;
    default: return 0;
  }
}

// Applies f to the lines along a dimension.
Values along(const Sample& x, int dim, const std::function<void(Values&)>& f) {
  const auto shape = x.tensor.shape();
  const auto d = static_cast<std::size_t>(dim);
  Values result(x.values.size());
  std::int64_t inner = 1;
  for (std::size_t i = d + 1; i < shape.size(); ++i) inner *= shape[i];
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.values.size()); ++i) {
    if (i / inner % shape[d] != 0) continue;
    Values line;
    for (std::int64_t k = 0; k < shape[d]; ++k)
      line.push_back(x.values[static_cast<std::size_t>(i + k * inner)]);
    f(line);
    for (std::int64_t k = 0; k < shape[d]; ++k) {
      result[static_cast<std::size_t>(i + k * inner)] = line[static_cast<std::size_t>(k)];
    }
  }
  return result;
}

double log_sum_exp(const Values& line) {
  const double most = *std::max_element(line.begin(), line.end());
  if (std::isinf(most)) return most;
  double total = 0;
  for (double v : line) total += std::exp(v - most);
  return most + std::log(total);
}

double variance(const Values& line, double correction) {
  double mean = 0, total = 0;
  for (double v : line) mean += v / static_cast<double>(line.size());
  for (double v : line) total += (v - mean) * (v - mean);
  return total / (static_cast<double>(line.size()) - correction);
}

void softmaxes(Report& report, const Sample& x, const Dims& shape, DType dtype,
               const std::string& what, double scale) {
  for (int d = 0; d < shape.size(); ++d) {
    const int dim = d % 2 ? d - shape.size() : d;
    expect(report, "softmax" + what, [&](In in) { return softmax(in[0], dim); }, {x}, dtype, shape,
           along(x, d,
                 [](Values& line) {
                   const double total = log_sum_exp(line);
                   for (double& v : line) v = std::exp(v - total);
                 }),
           {slack_of(dtype, 2)});
    expect(report, "log_softmax" + what, [&](In in) { return log_softmax(in[0], dim); }, {x}, dtype,
           shape,
           along(x, d,
                 [](Values& line) {
                   const double total = log_sum_exp(line);
                   for (double& v : line) v -= total;
                 }),
           {slack_of(dtype, scale)});
    for (bool keepdim : {false, true}) {
      Dims rest = shape;
      keepdim ? (rest[d] = 1) : (rest.erase(d), 0);
      const Values repeated =
          along(x, d, [](Values& line) { std::fill(line.begin(), line.end(), log_sum_exp(line)); });
      Values expected;
      for (std::int64_t i = 0; i < numel_of(rest); ++i) {
        Index index = index_of(i, rest);
        if (!keepdim) index.insert(index.begin() + d, 0);
        expected.push_back(repeated[static_cast<std::size_t>(number_of(index, shape))]);
      }
      expect(report, "logsumexp" + what, [&](In in) { return logsumexp(in[0], {dim}, keepdim); },
             {x}, dtype, rest, expected, {slack_of(dtype, scale)});
    }
  }
}

void over_all(Report& report, const Sample& x, DType dtype) {
  const Match match{slack_of(dtype, 4)};
  expect(
      report, "var over all", [](In in) { return var(in[0]); }, {x}, dtype, {},
      {variance(x.values, 1)}, match);
  expect(
      report, "std over all", [](In in) { return std(in[0]); }, {x}, dtype, {},
      {std::sqrt(variance(x.values, 1))}, match);
  expect(
      report, "logsumexp over all", [](In in) { return logsumexp(in[0]); }, {x}, dtype, {},
      {log_sum_exp(x.values)}, match);
}

void variances(Report& report, const Sample& x, const Dims& shape, DType dtype) {
  for (int correction : {0, 1}) {
    expect(report, "var", [&](In in) { return var(flatten(in[0]), {0}, false, correction); }, {x},
           dtype, {}, {variance(x.values, correction)}, {slack_of(dtype, 4)});
    const double deviation = std::sqrt(variance(x.values, correction));
    expect(report, "std", [&](In in) { return std(in[0], {}, false, correction); }, {x}, dtype, {},
           {deviation}, {slack_of(dtype, 4)});
    for (int d = 0; d < shape.size(); ++d) {
      if (shape[d] < 2) continue;
      Dims rest = shape;
      rest[d] = 1;
      const Values repeated = along(x, d, [&](Values& line) {
        std::fill(line.begin(), line.end(), variance(line, correction));
      });
      expect_at(
          report, "std dim", [&](In in) { return std(in[0], {d}, true, correction); }, {x}, dtype,
          rest,
          [&](const Index& i) {
            return std::sqrt(repeated[static_cast<std::size_t>(number_of(i, shape))]);
          },
          {slack_of(dtype, 4)});
      expect_at(
          report, "var dim", [&](In in) { return var(in[0], {d}, true, correction); }, {x}, dtype,
          rest,
          [&](const Index& i) { return repeated[static_cast<std::size_t>(number_of(i, shape))]; },
          {slack_of(dtype, 4)});
    }
  }
}

void normalizations(Report& report, const Sample& x, const Dims& shape, DType dtype,
                    Device device) {
  for (int dims = 1; dims <= std::min(2, shape.size()); ++dims) {
    Dims last;
    for (int d = shape.size() - dims; d < shape.size(); ++d) last.push_back(shape[d]);
    const auto n = static_cast<std::size_t>(numel_of(last));
    const Sample weight = sample_of("weight", last, dtype, Layout::contiguous, device);
    const Sample bias = sample_of("bias", last, dtype, Layout::contiguous, device);
    for (int parts = 0; parts < 3; ++parts) {  // neither, weight, both
      Values layer, rms;
      for (std::size_t i = 0; i < x.values.size(); i += n) {
        const Values line(x.values.begin() + static_cast<long>(i),
                          x.values.begin() + static_cast<long>(i + n));
        double mean = 0, square = 0;
        for (double v : line)
          mean += v / static_cast<double>(n), square += v * v / static_cast<double>(n);
        for (std::size_t k = 0; k < n; ++k) {
          const double scale = parts > 0 ? weight.values[k] : 1,
                       shift = parts > 1 ? bias.values[k] : 0;
          layer.push_back((line[k] - mean) / std::sqrt(variance(line, 0) + 1e-5) * scale + shift);
          rms.push_back(line[k] / std::sqrt(square + 1e-6) * scale);
        }
      }
      const auto pick = [&](In in, int part) {
        return parts >= part ? in[static_cast<std::size_t>(part)] : Tensor();
      };
      expect(report, "layer_norm",
             [&](In in) { return layer_norm(in[0], dims, pick(in, 1), pick(in, 2)); },
             {x, weight, bias}, dtype, shape, layer, {slack_of(dtype, 8)});
      expect(report, "rms_norm", [&](In in) { return rms_norm(in[0], dims, pick(in, 1)); },
             {x, weight}, dtype, shape, rms, {slack_of(dtype, 8)});
    }
  }
}

}  // namespace

void check_composite_cells(Report& report, Device device) {
  for (DType dtype : kFloatDTypes) {
    for (const Dims& shape : {Dims{7}, Dims{129}, Dims{3, 5}, Dims{17, 33}, Dims{2, 3, 4}}) {
      for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::strided}) {
        if (!applies(layout, shape)) continue;
        const Sample x = sample_of("composite", shape, dtype, layout, device);
        softmaxes(report, x, shape, dtype, "", 4);
        variances(report, x, shape, dtype);
        over_all(report, x, dtype);
        normalizations(report, x, shape, dtype, device);
      }
    }
    // Far from zero nothing overflows, and a masked place is exactly nothing.
    const double inf = std::numeric_limits<double>::infinity();
    const Sample large =
        make_sample({900, 901, 899, -1000, 5, 6, 7, 8}, {2, 4}, dtype, Layout::contiguous, device);
    softmaxes(report, large, {2, 4}, dtype, " of large", 900);
    const Sample masked = make_sample({1, -inf, 2, 0.5, -inf, -inf, 3, -inf}, {2, 4}, dtype,
                                      Layout::contiguous, device);
    expect(report, "softmax masked", [](In in) { return softmax(in[0], 1); }, {masked}, dtype,
           {2, 4},
           along(masked, 1,
                 [](Values& line) {
                   const double total = log_sum_exp(line);
                   for (double& v : line) v = std::exp(v - total);
                 }),
           {slack_of(dtype, 2)});
    const Sample nothing =
        make_sample({-inf, -inf, 1, 2}, {2, 2}, dtype, Layout::contiguous, device);
    expect(report, "logsumexp of -inf", [](In in) { return logsumexp(in[0], {1}); }, {nothing},
           dtype, {2}, {-inf, log_sum_exp({1, 2})}, {slack_of(dtype, 2)});
  }
}

}  // namespace brrr::test
