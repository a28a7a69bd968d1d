// The cost model: predicts the time of a kernel from its work and the device's ceilings.
#include "brrr/graph/ceilings.h"

#include <algorithm>
#include <limits>

#include "brrr/dispatch/expression.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/ops/attention.h"
#include "brrr/ops/matmul.h"

namespace brrr::graph {
namespace {

using std::int64_t;

constexpr int64_t kSecond = 1'000'000'000'000;  // in picoseconds

// a * b / c without overflow of the product; saturates at the largest number.
int64_t scaled(int64_t a, int64_t b, int64_t c) {
  const __int128 quotient = static_cast<__int128>(a) * b / c;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  return quotient > kMost ? kMost : static_cast<int64_t>(quotient);
}

int64_t conversions_of(const Call& call, std::span<const Tensor> outputs) {
  int64_t elements = 0;
  const auto add = [&](const Tensor& x) {
    if (x.defined() && size_of(x.dtype()) == 2 && is_floating(x.dtype()))
      elements += distinct_bytes(x) / 2;
  };
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) add(call.input(static_cast<int>(i)));
  std::ranges::for_each(outputs, add);
  return elements;
}

}  // namespace

Curve Curve::of_rate(int64_t work_per_second) { return {{{0, 0}, {work_per_second, kSecond}}}; }

int64_t Curve::time_of(int64_t work) const {
  if (work <= 0) return 0;
  const Point& last = points.back();
  if (work >= last.work) return scaled(work, last.ps, last.work);
  const auto after = std::ranges::upper_bound(points, work, {}, &Point::work);
  if (after == points.begin()) return after->ps;
  const Point& before = *(after - 1);
  return before.ps + scaled(work - before.work, after->ps - before.ps, after->work - before.work);
}

int64_t Curve::rate() const {
  return scaled(points.back().work, kSecond, std::max<int64_t>(points.back().ps, 1));
}

Ceilings Ceilings::for_step_over(int64_t bytes) const {
  Ceilings flat = *this;
  // The curve was measured with a += b, which moves three bytes for each two of its working set.
  bytes = std::clamp(bytes + bytes / 2, moved.points.front().work, moved.points.back().work);
  bytes = std::max<int64_t>(bytes, 1);
  const int64_t ps = std::max<int64_t>(moved.time_of(bytes), 1);
  flat.moved = Curve::of_rate(scaled(bytes, kSecond, ps));
  return flat;
}

// At most the rate of the working set, and at most that of the curve; in between points linear.
Ceilings Ceilings::for_kernels_over(int64_t bytes) const {
  Ceilings result = for_step_over(bytes);
  Curve kernels{{{0, 0}}};
  const Curve::Point all = result.moved.points.back();
  for (const Curve::Point& point : moved.points) {
    if (point.work > 0 && point.work < all.work)
      kernels.points.push_back({point.work, std::max(point.ps, result.moved.time_of(point.work))});
  }
  kernels.points.push_back(all);
  for (Curve::Point& point : kernels.points) point.ps = std::min(point.ps, all.ps);
  result.moved = std::move(kernels);
  return result;
}

Ceilings Ceilings::at_full_rates() const {
  Ceilings full = *this;
  full.moved = Curve::of_rate(moved.rate());
  for (ProductCurves& curves : full.products) {
    for (Curve& curve : curves) curve = Curve::of_rate(curve.rate());
  }
  return full;
}

Work& Work::operator+=(const Work& other) {
  Cost::operator+=(other);
  if (product_flops == 0) {
    type = other.type;
    factors = other.factors;
  }
  product_flops += other.product_flops;
  functions += other.functions;
  draws += other.draws;
  conversions += other.conversions;
  wide |= other.wide;
  return *this;
}

ProductType product_type(DType dtype, Device device) {
  switch (dtype) {
    case DType::f64: return ProductType::f64;
    case DType::f16: return ProductType::f16;
    case DType::bf16: return ProductType::bf16;
    default:
      return device.is_cuda() && matmul_precision() == Precision::tf32 ? ProductType::tf32
                                                                       : ProductType::f32;
  }
}

FactorOrder order_of_factors(std::span<const int64_t> a_shape, std::span<const int64_t> a_strides,
                             std::span<const int64_t> b_shape, std::span<const int64_t> b_strides) {
  if (a_shape.size() < 2 || b_shape.size() < 2) return FactorOrder::along;
  const std::size_t row = b_shape.size() - 2;
  const bool a = a_strides.back() == 1 || a_shape.back() == 1;
  const bool b = b_strides[row] == 1 || b_shape[row] == 1;
  return a && b ? FactorOrder::along : a || b ? FactorOrder::mixed : FactorOrder::across;
}

int64_t functions_of(const Call& call, int64_t elements) {
  const OpInfo& op = op_info(call.op);
  int count = op.kind == OpKind::pointwise ? op.expression.functions() : 0;
  for (const Formula::Assignment& value : op.formula.values) count += value.expression.functions();
  return count * elements;
}

int64_t draws_of(const Call& call, int64_t elements) {
  if (op_info(call.op).effect != Effect::draws) return 0;
  return call.dtype == DType::boolean ? elements / 2
                                      : elements;  // 8 draws in a Philox block, not 4
}

Work work_of(const Call& call, std::span<const Tensor> outputs, const BodySpec* body) {
  Work work;
  static_cast<Cost&>(work) = cost_of(call, outputs);
  work.wide = !outputs.empty() && outputs[0].dtype() == f64;
  const bool product = op_info(call.op).algebra == Algebra::contraction || is_attention(call.op);
  if (product) work.product_flops = work.flops;
  if (product && !is_attention(call.op)) {
    const Tensor &a = call.input(0), &b = call.input(1);
    work.factors = order_of_factors(a.shape(), a.strides(), b.shape(), b.strides());
  }
  if (!outputs.empty()) {
    work.functions = functions_of(call, outputs[0].numel());
    work.draws = draws_of(call, outputs[0].numel());
  }
  for (; body; body = body->next.get()) {
    if (work.product_flops == 0) work.factors = body->factors;
    work.product_flops += body->product_flops;
    work.functions += body->functions;
    work.draws += body->draws;
  }
  if (work.product_flops == 0) work.conversions = conversions_of(call, outputs);
  if (work.product_flops > 0)
    work.type = product_type(call.input(0).dtype(), call.input(0).device());
  return work;
}

int64_t time_of_instructions(const Work& work, const Ceilings& ceilings) {
  const auto at_rate = [](int64_t amount, int64_t rate) {
    return rate > 0 ? scaled(amount, kSecond, rate) : 0;
  };
  return scaled(work.flops - work.product_flops, kSecond,
                work.wide ? ceilings.f64_flops : ceilings.f32_flops) +
         scaled(work.functions, kSecond, ceilings.functions) + at_rate(work.draws, ceilings.draws) +
         at_rate(work.conversions, ceilings.conversions);
}

KernelTime time_of(const Work& work, const Ceilings& ceilings, int64_t overhead_ps) {
  return {.overhead_ps = overhead_ps,
          .moving_ps = ceilings.moved.time_of(work.bytes),
          .computing_ps = ceilings.product(work.type, work.factors).time_of(work.product_flops) +
                          time_of_instructions(work, ceilings)};
}

void add_to(Roofline& roofline, const Work& work, const Ceilings& ceilings, const Ceilings& full) {
  const KernelTime at_full_rates = time_of(work, full, 0);
  roofline.moving_ps += at_full_rates.moving_ps;
  roofline.computing_ps += at_full_rates.computing_ps;
  roofline.bound += at_full_rates;
  Work twice = work;
  twice += work;
  const KernelTime once = time_of(work, ceilings, 0);
  KernelTime added = time_of(twice, ceilings, 0);
  added.moving_ps = std::clamp<int64_t>(added.moving_ps - once.moving_ps, 0, once.moving_ps);
  added.computing_ps =
      std::clamp<int64_t>(added.computing_ps - once.computing_ps, 0, once.computing_ps);
  roofline.growing += added;
}

}  // namespace brrr::graph
