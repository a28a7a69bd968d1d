// Cells of pointwise functions with separate names, and of copies between layouts.
#include <algorithm>
#include <cmath>

#include "brrr/ops/functions.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;

const std::vector<Dims> kShapes = {{}, {0}, {7}, {2, 3}, {3, 1, 4}, {17, 33}};

// In-place forms write every element of the view and nothing around it.
void expect_in_place(Report& report, const std::string& cell,
                     const std::function<Tensor&(Tensor&)>& call, Sample x, const Values& expected,
                     const Match& match = {}) {
  Values after = x.base_values;
  for (std::size_t i = 0; i < expected.size(); ++i)
    after[static_cast<std::size_t>(x.places[i])] = expected[i];
  std::string problem;
  try {
    const Tensor& result = call(x.tensor);
    problem =
        TensorImpl::of(result) == TensorImpl::of(x.tensor) ? "" : "did not return its argument";
    if (problem.empty()) {
      problem = difference(x.base, x.tensor.dtype(), Dims{static_cast<std::int64_t>(after.size())},
                           after, match);
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  report.count(cell + " " + x.tensor.describe(), problem);
}

Values map(const Sample& a, const std::function<double(std::size_t)>& f) {
  Values values;
  for (std::size_t i = 0; i < a.values.size(); ++i) values.push_back(f(i));
  return values;
}

// The step from one rounding to two, which halves see.
double slack_of(DType dtype) { return dtype == f16 ? 0x1p-8 : dtype == bf16 ? 0x1p-5 : 0; }

void forms(Report& report, DType dtype, const Dims& shape, Layout layout, Device device) {
  const Sample a = sample_of("a", shape, dtype, layout, device),
               b = sample_of("b", shape, dtype, layout, device),
               ones = make_sample(Values(a.values.size(), 2), shape, dtype, layout, device);
  const Match exact{0, false, true}, close{slack_of(dtype)};
  const Values low = map(a, [&](std::size_t i) { return std::max(a.values[i], -1.0); }),
               high = map(a, [&](std::size_t i) { return std::min(a.values[i], 1.0); });
  if (dtype != boolean) {
    expect(
        report, "clamp_min", [](In in) { return clamp_min(in[0], -1); }, {a}, dtype, shape, low,
        exact);
    expect(
        report, "clamp_max", [](In in) { return clamp_max(in[0], 1); }, {a}, dtype, shape, high,
        exact);
    expect(
        report, "clamp_min tensor", [](In in) { return clamp_min(in[0], in[1]); }, {a, b}, dtype,
        shape, map(a, [&](std::size_t i) { return std::max(a.values[i], b.values[i]); }), exact);
    expect(
        report, "clamp_max tensor", [](In in) { return clamp_max(in[0], in[1]); }, {a, b}, dtype,
        shape, map(a, [&](std::size_t i) { return std::min(a.values[i], b.values[i]); }), exact);
    const Values sum = map(a, [&](std::size_t i) { return a.values[i] + 3 * b.values[i] * 2; });
    expect(
        report, "addcmul value", [](In in) { return addcmul(in[0], in[1], in[2], 3); },
        {a, b, ones}, dtype, shape, sum, close);
    const Values quotient =
        map(a, [&](std::size_t i) { return a.values[i] + 3 * b.values[i] / 2; });
    const DType floating = is_floating(dtype) ? dtype : f32;
    expect(
        report, "addcdiv value", [](In in) { return addcdiv(in[0], in[1], in[2], 3); },
        {a, b, ones}, floating, shape, quotient, close);
    if (layout != Layout::expanded) {
      const auto again = [&] { return sample_of("a", shape, dtype, layout, device); };
      expect_in_place(
          report, "clamp_min_", [](Tensor& x) -> Tensor& { return clamp_min_(x, -1); }, again(),
          low);
      expect_in_place(
          report, "clamp_max_", [](Tensor& x) -> Tensor& { return clamp_max_(x, 1); }, again(),
          high);
      expect_in_place(
          report, "addcmul_ value",
          [&](Tensor& x) -> Tensor& { return addcmul_(x, b.tensor, ones.tensor, 3); }, again(), sum,
          close);
      if (is_floating(dtype)) {
        expect_in_place(
            report, "addcdiv_ value",
            [&](Tensor& x) -> Tensor& { return addcdiv_(x, b.tensor, ones.tensor, 3); }, again(),
            quotient, close);
      }
    }
  }
}

void masked_fills(Report& report, DType dtype, const Dims& shape, Layout layout, Device device) {
  const Sample a = sample_of("a", shape, dtype, layout, device);
  const Match exact{0, false, true};
  const Sample mask = sample_of("mask", shape, boolean, layout, device);
  const Values filled = map(a, [&](std::size_t i) { return mask.values[i] ? 1 : a.values[i]; });
  expect(
      report, "masked_fill", [](In in) { return masked_fill(in[0], in[1], true); }, {a, mask},
      dtype, shape, filled, exact);
  if (layout != Layout::expanded) {
    expect_in_place(
        report, "masked_fill_",
        [&](Tensor& x) -> Tensor& { return masked_fill_(x, mask.tensor, true); },
        sample_of("a", shape, dtype, layout, device), filled, exact);
  }
}

void copies(Report& report, DType dtype, const Dims& shape, Layout layout, Device device) {
  const Sample x = sample_of("copies", shape, dtype, layout, device);
  const Match exact{0, true, true};
  for (const std::int64_t n : {0, 1, 3}) {
    for (int lead = 0; lead < 2; ++lead) {
      Dims times = Dims::filled(shape.size(), 1), longer = shape;
      for (int d = 0; d < shape.size(); ++d) times[d] = d % 2 ? 2 : n;
      if (lead) times.insert(0, n), longer.insert(0, 1);
      for (int d = 0; d < longer.size(); ++d) longer[d] *= times[d];
      const auto value = [&](Index i) {
        if (lead) i.erase(i.begin());
        for (int d = 0; d < shape.size(); ++d) i[static_cast<std::size_t>(d)] %= shape[d];
        return x.values[static_cast<std::size_t>(number_of(i, shape))];
      };
      expect_at(
          report, "repeat " + to_string(times), [&](In in) { return repeat(in[0], times); }, {x},
          dtype, longer, value, exact);
      expect_at(
          report, "tile " + to_string(times), [&](In in) { return tile(in[0], times); }, {x}, dtype,
          longer, value, exact);
    }
  }
  expect_true(report, "repeat has its own bytes",
              !repeat(x.tensor, Dims::filled(shape.size(), 1)).shares_storage_with(x.tensor));
  if (shape.size() >= 2) {  // numbers for the last dimension only
    Dims wider = shape;
    wider[shape.size() - 1] *= 2;
    expect_at(
        report, "tile of the last", [](In in) { return tile(in[0], {2}); }, {x}, dtype, wider,
        [&](Index i) {
          i.back() %= shape[shape.size() - 1];
          return x.values[static_cast<std::size_t>(number_of(i, shape))];
        },
        exact);
  }
}

void rolls_and_moves(Report& report, DType dtype, const Dims& shape, Layout layout, Device device) {
  const Sample x = sample_of("copies", shape, dtype, layout, device);
  const Match exact{0, true, true};
  for (int d = 0; d < shape.size(); ++d) {
    const auto at = static_cast<std::size_t>(d);
    for (const std::int64_t shift : {0, 1, -1, 2, -100, 101}) {
      expect_at(
          report, "roll " + std::to_string(shift),
          [&](In in) { return roll(in[0], shift, d % 2 ? d - shape.size() : d); }, {x}, dtype,
          shape,
          [&](Index i) {
            i[at] = ((i[at] - shift) % shape[d] + shape[d]) % shape[d];
            return x.values[static_cast<std::size_t>(number_of(i, shape))];
          },
          exact);
    }
    for (int to = 0; to < shape.size(); ++to) {
      Dims moved = shape;
      moved.erase(d);
      moved.insert(to, shape[d]);
      expect_at(
          report, "movedim", [&](In in) { return movedim(in[0], d, to - shape.size()); }, {x},
          dtype, moved,
          [&](Index i) {
            const std::int64_t place = i[static_cast<std::size_t>(to)];
            i.erase(i.begin() + to);
            i.insert(i.begin() + d, place);
            return x.values[static_cast<std::size_t>(number_of(i, shape))];
          },
          exact);
    }
  }
}

}  // namespace

void check_form_cells(Report& report, Device device) {
  for (DType dtype : kAllDTypes) {
    for (const Dims& shape : kShapes) {
      for (Layout layout : kLayouts) {
        if (!applies(layout, shape)) continue;
        forms(report, dtype, shape, layout, device);
        masked_fills(report, dtype, shape, layout, device);
        copies(report, dtype, shape, layout, device);
        rolls_and_moves(report, dtype, shape, layout, device);
      }
    }
  }
  const double nan = std::nan("");
  const Sample x = make_sample({nan, -3, 3}, {3}, f32, Layout::contiguous, device);
  expect(report, "clamp_min keeps NaN", [](In in) { return clamp_min(in[0], 0); }, {x}, f32, {3},
         {nan, 0, 3});
  expect(report, "clamp_max keeps NaN", [](In in) { return clamp_max(in[0], 0); }, {x}, f32, {3},
         {nan, -3, 0});
  const Sample one = make_sample({1}, {1, 1, 1, 1, 1, 1, 1, 1}, f32, Layout::contiguous, device);
  expect(
      report, "repeat of eight dimensions",
      [](In in) {
        return repeat(in[0], {1, 2, 1, 1, 3, 1, 1, 1});
      },
      {one}, f32, {1, 2, 1, 1, 3, 1, 1, 1}, Values(6, 1));
  const Sample row = make_sample({1, 0}, {2}, boolean, Layout::contiguous, device);
  const Sample table = make_sample({1, 2, 3, 4}, {2, 2}, i64, Layout::contiguous, device);
  expect(report, "masked_fill broadcasts", [](In in) { return masked_fill(in[0], in[1], 9); },
         {table, row}, i64, {2, 2}, {9, 2, 9, 4});
}

}  // namespace brrr::test
