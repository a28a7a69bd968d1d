// Cells of creation functions and random draws.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "brrr/ops/functions.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;

void made(Report& report, const std::string& cell, const std::function<Tensor()>& make, DType dtype,
          const Dims& shape, const Values& expected, Device device, const Match& match = {}) {
  expect(
      report, cell, [&](In) { return make(); }, {}, dtype, shape, expected, match);
  expect_true(report, cell + " is where it was asked for", make().device() == device);
}

void made_at(Report& report, const std::string& cell, const std::function<Tensor()>& make,
             DType dtype, const Dims& shape, Device device,
             const std::function<double(const Index&)>& value) {
  Values expected;
  for (std::int64_t i = 0; i < numel_of(shape); ++i) expected.push_back(value(index_of(i, shape)));
  made(report, cell, make, dtype, shape, expected, device);
}

double mean_of(const Values& values) {
  double total = 0;
  for (double v : values) total += v;
  return total / static_cast<double>(values.size());
}

double variance_of(const Values& values) {
  const double mean = mean_of(values);
  double total = 0;
  for (double v : values) total += (v - mean) * (v - mean);
  return total / static_cast<double>(values.size());
}

constexpr std::int64_t kBig = (std::int64_t{1} << 40) + 3;  // no f32 has it

void check_filled(Report& report, Device device) {
  for (DType dtype : kAllDTypes) {
    const Options options{.dtype = dtype, .device = device};
    for (const Dims& shape :
         {Dims{}, Dims{0}, Dims{1}, Dims{7}, Dims{2, 0, 3}, Dims{17, 33}, Dims{2, 3, 4, 5}}) {
      const auto all = [&](double v) {
        return Values(static_cast<std::size_t>(numel_of(shape)), v);
      };
      made(
          report, "full", [&] { return full(shape, 1, options); }, dtype, shape, all(1), device);
      const double number = is_floating(dtype) ? 2.5 : dtype == boolean ? 0 : -5;
      made(
          report, "full of a double", [&] { return full(shape, number, options); }, dtype, shape,
          all(number), device);
      made(
          report, "zeros", [&] { return zeros(shape, options); }, dtype, shape, all(0), device);
      made(
          report, "ones", [&] { return ones(shape, options); }, dtype, shape, all(1), device);
      const Sample x = sample_of("like", shape, dtype, Layout::transposed, device);
      expect(
          report, "zeros_like", [](In in) { return zeros_like(in[0]); }, {x}, dtype, shape, all(0));
      expect(
          report, "ones_like", [](In in) { return ones_like(in[0]); }, {x}, dtype, shape, all(1));
      expect(
          report, "full_like",
          [](In in) { return full_like(in[0], in[0].dtype() == boolean ? 1 : 3); }, {x}, dtype,
          shape, all(dtype == boolean ? 1 : 3));
      const Tensor e = empty(shape, options), l = empty_like(x.tensor);
      for (const Tensor& t : {e, l}) {
        expect_true(report, "empty",
                    t.dtype() == dtype && Dims(t.shape()) == shape && t.is_contiguous());
      }
      const Tensor m = meta(shape, options);
      expect_true(report, "meta", m.is_meta() && m.dtype() == dtype && Dims(m.shape()) == shape);
    }
    for (std::int64_t n : {0, 1, 2, 5, 17}) {
      made_at(
          report, "eye", [&] { return eye(n, options); }, dtype, {n, n}, device,
          [](const Index& i) { return double(i[0] == i[1]); });
    }
    if (dtype == boolean) continue;
    made_at(
        report, "arange typed",
        [&] {
          return arange(2, 100, 3, {dtype, device});
        },
        dtype, {33}, device, [](const Index& i) { return 2.0 + 3.0 * static_cast<double>(i[0]); });
    made(
        report, "scalar_tensor", [&] { return scalar_tensor(3, options); }, dtype, {}, {3}, device);
  }
}

void check_ranges(Report& report, Device device) {
  const std::vector<std::vector<std::int64_t>> ranges = {{0, 5, 1},   {0, 0, 1},  {3, 10, 4},
                                                         {10, 0, -3}, {-5, 5, 2}, {0, 129, 1}};
  for (const auto& r : ranges) {
    Values expected;
    for (std::int64_t v = r[0]; r[2] > 0 ? v < r[1] : v > r[1]; v += r[2])
      expected.push_back(static_cast<double>(v));
    const Dims shape{static_cast<std::int64_t>(expected.size())};
    made(
        report, "arange", [&] { return arange(r[0], r[1], r[2], {.device = device}); }, i64, shape,
        expected, device);
    made(
        report, "arange float",
        [&] { return arange(double(r[0]), r[1], r[2], {.device = device}); }, f32, shape, expected,
        device);
  }
  made(
      report, "arange end", [&] { return arange(4, {.device = device}); }, i64, {4}, {0, 1, 2, 3},
      device);
  made(
      report, "arange f32 end", [&] { return arange(2.5, {.device = device}); }, f32, {3},
      {0, 1, 2}, device);
  made_at(
      report, "arange step 0.1",
      [&] {
        return arange(0.0, 1.0, 0.1, {f64, device});
      },
      f64, {10}, device, [](const Index& i) { return 0.1 * static_cast<double>(i[0]); });
  made(
      report, "arange large", [&] { return arange(kBig, kBig + 3, {.device = device}); }, i64, {3},
      {double(kBig), double(kBig + 1), double(kBig + 2)}, device);
}

void check_linspaces(Report& report, Device device) {
  for (DType dtype : {f32, f64}) {
    const Options options{.dtype = dtype, .device = device};
    for (std::int64_t n : {0, 1, 2, 5, 11, 129}) {
      made_at(
          report, "linspace", [&] { return linspace(-1.5, 4, n, options); }, dtype, {n}, device,
          [&](const Index& i) {
            return n == 1 ? -1.5
                          : -1.5 + 5.5 * static_cast<double>(i[0]) / static_cast<double>(n - 1);
          });
    }
  }
  for (DType dtype : {i32, i64}) {  // what PyTorch gives
    const auto whole = [&](double start, double end, std::int64_t n, const Values& expected) {
      made(
          report, "linspace of integers",
          [&] { return linspace(start, end, n, {.dtype = dtype, .device = device}); }, dtype, {n},
          expected, device);
    };
    whole(0, 10, 5, {0, 2, 5, 7, 10});
    whole(-10, 0, 4, {-10, -6, -3, 0});
    whole(0, 10, 7, {0, 1, 3, 5, 6, 8, 10});
    whole(3, -3, 3, {3, 0, -3});
    whole(7, 9, 1, {7});
    whole(7, 9, 0, {});
    Values counted(50);
    std::iota(counted.begin(), counted.end(), 0);
    whole(0, 49, 50, counted);
  }
}

void check_given_values(Report& report, Device device) {
  for (const Dims& shape : {Dims{}, Dims{7}, Dims{3, 4}, Dims{0}}) {
    const Sample index = indices_of("one_hot", shape, 5, Layout::transposed, device);
    Dims longer = shape;
    longer.push_back(5);
    expect_at(
        report, "one_hot", [](In in) { return one_hot(in[0], 5); }, {index}, i64, longer,
        [&](Index i) {
          const auto column = static_cast<double>(i.back());
          i.pop_back();
          return double(index.values[static_cast<std::size_t>(number_of(i, shape))] == column);
        });
  }
  made(
      report, "tensor list",
      [&] {
        return tensor({1, 2.5f, -3}, device);
      },
      f32, {3}, {1, 2.5, -3}, device);
  made(
      report, "tensor<i64> list",
      [&] {
        return tensor<std::int64_t>({kBig, 2}, device);
      },
      i64, {2}, {double(kBig), 2}, device);
  made(
      report, "tensor<bool> list",
      [&] {
        return tensor<bool>({true, false}, device);
      },
      boolean, {2}, {1, 0}, device);
  made(
      report, "tensor<f16> list",
      [&] {
        return tensor<Float16>({Float16(0.5f), Float16(2.0f)}, device);
      },
      f16, {2}, {0.5, 2}, device);
  made(
      report, "tensor i64",
      [&] {
        return tensor(std::vector<std::int64_t>{1, 2, 3, 4}, {2, 2}, device);
      },
      i64, {2, 2}, {1, 2, 3, 4}, device);
  made(
      report, "tensor f64",
      [&] {
        return tensor(std::vector<double>{0.1, 0.2}, {2}, device);
      },
      f64, {2}, {0.1, 0.2}, device);
}

constexpr std::int64_t kCount = 20000;  // draws

void check_draws(Report& report, DType dtype, Device device) {
  const std::string type(name_of(dtype));
  const Options options{.dtype = dtype, .device = device};
  manual_seed(7);
  const Values uniform = read(rand({kCount}, options)), second = read(rand({kCount}, options));
  const Values normal = read(randn({kCount}, options));
  manual_seed(7);
  expect_true(report, "rand repeats after manual_seed " + type,
              read(rand({kCount}, options)) == uniform);
  expect_true(report, "the second draw differs " + type, second != uniform);
  manual_seed(8);
  expect_true(report, "another seed differs " + type, read(rand({kCount}, options)) != uniform);
  manual_seed(7);
  next_random_step(device);
  expect_true(report, "the next step differs " + type, read(rand({kCount}, options)) != uniform);
  const auto [low, high] = std::minmax_element(uniform.begin(), uniform.end());
  expect_true(report, "rand is in [0, 1) " + type, *low >= 0 && *high < 1,
              std::to_string(*low) + " to " + std::to_string(*high));
  expect_true(report, "rand mean " + type, std::fabs(mean_of(uniform) - 0.5) < 0.012);
  expect_true(report, "rand variance " + type, std::fabs(variance_of(uniform) - 1.0 / 12) < 0.005);
  expect_true(report, "randn mean " + type, std::fabs(mean_of(normal)) < 0.04);
  expect_true(report, "randn variance " + type, std::fabs(variance_of(normal) - 1) < 0.06);
  const auto beyond =
      std::count_if(normal.begin(), normal.end(), [](double v) { return std::fabs(v) > 1.96; });
  expect_true(report, "randn tails " + type,
              std::fabs(static_cast<double>(beyond) / kCount - 0.05) < 0.01);
}

void check_draws_like(Report& report, DType dtype, Device device) {
  const std::string type(name_of(dtype));
  const Options options{.dtype = dtype, .device = device};
  manual_seed(7);
  const Values uniform = read(rand({kCount}, options));
  const Tensor wanted = empty({kCount}, options);
  manual_seed(7);
  const Tensor like = rand_like(wanted), normal_like = randn_like(wanted);
  expect_true(report, "rand_like draws as rand " + type,
              like.dtype() == dtype && like.device() == device && read(like) == uniform);
  manual_seed(7);
  rand_like(wanted);
  expect_true(report, "randn_like draws as randn " + type,
              read(randn({kCount}, options)) == read(normal_like));
  const Tensor shadow = meta({3}, options);
  expect_true(report, "likes of meta " + type,
              rand_like(shadow).is_meta() && randn_like(shadow).is_meta());
  // More than any memory holds: nothing is drawn.
  const Tensor vast = meta({std::int64_t{1} << 50}, options);
  manual_seed(7);
  expect_true(report, "bernoulli and dropout of meta " + type,
              bernoulli(vast).is_meta() && dropout(vast, 0.5).is_meta() &&
                  read(rand({kCount}, options)) == uniform);
}

void check_dropout(Report& report, DType dtype, Device device) {
  const std::string type(name_of(dtype));
  const Sample x = sample_of("dropout", {100, 100}, dtype, Layout::transposed, device);
  const Tensor dropped = dropout(x.tensor, 0.25);
  const Values after = read(dropped);
  long zeros_made = 0;
  bool scaled = dropped.dtype() == dtype;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] == 0 && x.values[i] != 0) {
      ++zeros_made;
    } else {
      scaled = scaled && matches(after[i], x.values[i] / 0.75, dtype,
                                 {std::fabs(x.values[i]) * 1e-2 * is_half(dtype)});
    }
  }
  expect_true(report, "dropout scales what it keeps " + type, scaled);
  expect_true(report, "dropout rate " + type, std::abs(zeros_made - 2500) < 250,
              std::to_string(zeros_made));
  report.count("dropout 0 " + type,
               difference(dropout(x.tensor, 0.0), dtype, {100, 100}, x.values));
}

void check_integers_and_flips(Report& report, Device device) {
  const Tensor dice = randint(-3, 4, {kCount}, {.dtype = i64, .device = device});
  Values rolls = read(dice);
  expect_true(report, "randint type", dice.dtype() == i64);
  for (int face = -3; face < 4; ++face) {
    const auto count = std::count(rolls.begin(), rolls.end(), face);
    expect_true(report, "randint face",
                std::fabs(static_cast<double>(count) / kCount - 1.0 / 7) < 0.015);
  }
  expect_true(report, "randint range",
              std::all_of(rolls.begin(), rolls.end(), [](double v) { return v >= -3 && v < 4; }));
  const Tensor flips = bernoulli(full({kCount}, 0.3, {.device = device}));
  const Values ones_drawn = read(flips);
  expect_true(report, "bernoulli rate", std::fabs(mean_of(ones_drawn) - 0.3) < 0.015);
  expect_true(
      report, "bernoulli values",
      std::all_of(ones_drawn.begin(), ones_drawn.end(), [](double v) { return v == 0 || v == 1; }));
  for (const Dims& shape : {Dims{}, Dims{0}, Dims{5}, Dims{3, 7}, Dims{1025}}) {
    manual_seed(1);
    const Tensor a = rand(shape, {.device = device});
    expect_true(report, "rand shape",
                Dims(a.shape()) == shape && a.dtype() == f32 && a.device() == device);
    // A draw's numbers do not depend on how many there are.
    manual_seed(1);
    const Values more = read(rand({2000}, {.device = device}));
    const Values some = read(a);
    expect_true(report, "rand prefix", std::equal(some.begin(), some.end(), more.begin()));
  }
}

}  // namespace

void check_creation_cells(Report& report, Device device) {
  check_filled(report, device);
  check_ranges(report, device);
  check_linspaces(report, device);
  check_given_values(report, device);
}

void check_random_cells(Report& report, Device device) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    check_draws(report, dtype, device);
    check_draws_like(report, dtype, device);
    check_dropout(report, dtype, device);
  }
  check_integers_and_flips(report, device);
}

}  // namespace brrr::test
