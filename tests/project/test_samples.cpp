// Tests of the harness: comparisons must be able to fail.
#include <cmath>
#include <limits>

#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"
#include "tests/harness/op_references.h"
#include "tests/harness/samples.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("the comparison sees what differs", "[samples]") {
  const Tensor x = tensor({1, 2, 3});
  CHECK(difference(x, f32, {3}, {1, 2, 3}).empty());
  CHECK_FALSE(difference(x, f32, {3}, {1, 2, 3.0001}).empty());
  CHECK_FALSE(difference(x, f64, {3}, {1, 2, 3}).empty());
  CHECK_FALSE(difference(x, f32, {3, 1}, {1, 2, 3}).empty());
  CHECK_FALSE(difference(Tensor(), f32, {3}, {1, 2, 3}).empty());
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  CHECK(matches(nan, nan, f32));
  CHECK_FALSE(matches(nan, 1, f32));
  CHECK_FALSE(matches(1, nan, f32));
  CHECK(matches(inf, inf, f32));
  CHECK_FALSE(matches(inf, -inf, f32));
  CHECK_FALSE(matches(3e38, inf, f32));
  CHECK(matches(inf, 1e39, f32));
  CHECK(matches(0.0, -0.0, f32));
  CHECK_FALSE(matches(0.0, -0.0, f32, {0, true}));
  CHECK_FALSE(matches(0.0, 0x1p-149, f32, {0, true, true}));
  CHECK_FALSE(matches(4, 5, i64));
  CHECK(matches(1.0005, 1, f16));
  CHECK_FALSE(matches(1.0005, 1, f32));
}

TEST_CASE("samples have the layout that they state", "[samples]") {
  Values values;
  for (int i = 0; i < 24; ++i) values.push_back(i);
  for (DType dtype : {f32, f64, f16, bf16, i32, i64}) {
    for (Layout layout : kLayouts) {
      const Sample sample = make_sample(values, {4, 3, 2}, dtype, layout);
      INFO(name_of(dtype) << " " << name_of(layout));
      CHECK(read(sample.tensor) == sample.values);
      CHECK(read(sample.base) == sample.base_values);
      CHECK((sample.values == values) == (layout != Layout::expanded));
      CHECK((sample.tensor.is_contiguous() ==
             (layout == Layout::contiguous || layout == Layout::offset)));
    }
  }
}

TEST_CASE("the references are right at known points", "[samples]") {
  const Computing computing{f64};
  const auto at = [&](const char* op, double a, double b = 0, double c = 0) {
    const double operands[] = {a, b, c};
    return pointwise_reference(op)(operands, computing);
  };
  CHECK(at("round", 2.5) == 2);
  CHECK(at("round", 3.5) == 4);
  CHECK(at("round", -0.5) == 0);
  CHECK(std::signbit(at("round", -0.5)));
  CHECK(at("remainder", -7, 3) == 2);
  CHECK(at("remainder", 7, -3) == -2);
  CHECK(at("clamp", 5, 0, 1) == 1);
  CHECK(at("where", 0, 1, 2) == 2);
  CHECK(at("lerp", 1, 3, 0.5) == 2);
  CHECK(std::fabs(at("gelu", 1) - 0.8413447460685429) < 1e-15);
  CHECK(std::fabs(at("softplus", 0) - 0.6931471805599453) < 1e-15);
  CHECK(std::isnan(at("maximum", std::nan(""), 1)));
  CHECK(std::isnan(at("minimum", 1, std::nan(""))));
  CHECK(pointwise_reference("no such op") == nullptr);
}
