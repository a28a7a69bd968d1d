#include "tests/harness/rounding_bounds.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/expression.h"
#include "brrr/dispatch/observe.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/harness/samples.h"

namespace brrr::test {
namespace {

using Tensors = std::vector<Tensor>;

// Half the distance of neighbouring values, relative to them.
double unit_of(DType dtype) {
  switch (dtype) {
    case f32: return 0x1p-24;
    case f16: return 0x1p-11;
    case bf16: return 0x1p-8;
    default: return 0;
  }
}
double largest_of(DType dtype) {
  return dtype == f16    ? 65504
         : dtype == bf16 ? 0x1.fep127
         : dtype == f32  ? 0x1.fffffep127
                         : INFINITY;
}
constexpr double kTf32Unit = 0x1p-11;
constexpr double kWidest = 1;
constexpr double kLeastHalf = 0x1p-24;  // of f16
// libmvec's functions are within 4 ulp.
constexpr double kUnitsOfFunction = 8;

Tensor larger(const Tensor& a, const Tensor& b) { return maximum(a, b); }
Tensor size_of_values(const Tensor& x) { return abs(cast(x, f64)); }
bool is_zero(const Tensor& radius) { return item(max(radius)) == 0; }

class ErrorAnalysis final : public Observer {
 public:
  explicit ErrorAnalysis(Precisions precisions)
      : own_(unit_of(precisions.dtype)),
        computed_(unit_of(f32)),
        factors_(precisions.tf32 && precisions.dtype == f32 ? 2 * kTf32Unit : 0),
        dtype_(precisions.dtype) {}

  // Of all elements of a tensor, as a view of its storage's.
  Tensor radius_of(const Tensor& x) {
    const Known* known = known_of(x);
    if (!known) return nothing(x);
    return make_view(known->radius, x.shape(), x.strides(), x.storage_offset());
  }

  void before(const Call& call) override {
    const NoGrad constant;
    inputs_.clear();
    radii_.clear();
    for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
      const Tensor x = detach(*call.inputs[i]), radius = radius_of(x);
      inputs_.push_back(call.in_place ? clone(x) : x);
      radii_.push_back(call.in_place ? clone(radius) : radius);
    }
  }

  void after(const Call& call, std::span<const Tensor> outputs) override {
    const OpInfo& info = op_info(call.op);
    if (info.kind == OpKind::view) return;
    const NoGrad constant;
    const Tensor out = detach(outputs[0]);
    if (out.numel() == 0) return;
    if (info.effect == Effect::draws && out.dtype() == f64) draw_in_own_type(call, out);
    Tensor radius = radius_of_result(call, info, out);
    if (out.dtype() == f64) {
      const Tensor most = size_of_values(out) + radius;
      radius = where(le(most, largest_of(dtype_)), radius, INFINITY);
    }
    if (!is_floating(out.dtype()) && out.dtype() != boolean && !is_zero(radius))
      throw Error(
          fmt::format("[{}] expected an index that does not depend on rounding", info.name));
    if (!call.in_place || !known_of(out)) begin(out);
    copy_(radius_of(out), radius);
    inputs_.clear();  // the program may ask whether a tensor's memory is shared
    radii_.clear();
  }

 private:
  // Of a storage, which has no bound any more when its memory is another one's.
  struct Known {
    const void* data;
    std::size_t bytes;
    Tensor radius;
  };
  const Known* known_of(const Tensor& x) const {
    const Storage* storage = TensorImpl::of(x)->storage;
    const auto found = known_.find(storage);
    if (found == known_.end() || found->second.data != storage->data ||
        found->second.bytes != storage->bytes)
      return nullptr;
    return &found->second;
  }
  void begin(const Tensor& x) {
    const Storage* storage = TensorImpl::of(x)->storage;
    const auto count = static_cast<std::int64_t>(storage->bytes / size_of(x.dtype()));
    known_[storage] = {storage->data, storage->bytes, zeros({count}, {.dtype = f64})};
  }

  // The call once more, with other operands.
  Tensor again(const Call& call, const Tensors& inputs) {
    std::vector<const Tensor*> pointers;
    for (const Tensor& x : inputs) pointers.push_back(&x);
    Call copy = call;
    copy.inputs = pointers.data();
    copy.in_place = false;
    return dispatch(copy);
  }

  static Tensor moved(const Tensor& x, const Tensor& radius) {
    if (x.dtype() == boolean) return logical_xor(x, ne(radius, 0));
    return cast(cast(x, f64) + radius, x.dtype());
  }
  static Tensor nothing(const Tensor& out) { return zeros(Dims(out.shape()), {.dtype = f64}); }
  static Tensor difference(const Tensor& a, const Tensor& b) {
    return abs(cast(a, f64) - cast(b, f64));
  }

  void draw_in_own_type(const Call& call, Tensor out) {
    Call own = call;
    own.dtype = dtype_;
    copy_(out, dispatch(own));
  }

  Tensor radius_of_result(const Call& call, const OpInfo& info, const Tensor& out) {
    switch (info.kind) {
      case OpKind::pointwise: return of_pointwise(call, info, out);
      case OpKind::reduction: return of_reduction(call, info, out);
      case OpKind::structured: return of_structured(call, info, out);
      default: throw Error(fmt::format("[{}] has no bound of its rounding", info.name));
    }
  }

  // The rounding of a result: to the program's type where that is f64 now.
  Tensor rounded(const Tensor& out) const {
    const DType dtype = out.dtype() == f64 ? dtype_ : out.dtype();
    return size_of_values(out) * unit_of(dtype) + (dtype == f16 ? kLeastHalf / 2 : 0.0);
  }

  Tensor of_pointwise(const Call& call, const OpInfo& info, const Tensor& out) {
    const double wider = out.dtype() == boolean ? 2 : 1;  // both sides of a comparison may be off
    Tensor radius = nothing(out);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (is_zero(radii_[i])) continue;
      Tensor change = nothing(out);
      for (const double sign : {-wider, wider}) {
        Tensors inputs = inputs_;
        inputs[i] = moved(inputs_[i], radii_[i] * sign);
        change = larger(change, difference(again(call, inputs), out));
      }
      radius = radius + change;
    }
    if (call.dtype == f64) radius = radius + of_numbers(call, out);
    if (!is_floating(out.dtype())) return radius;
    const Tensor roundings = rounded(out) + of_expression(call, info, out);
    if (out.dtype() != f64) {
      // A type that the program names: f64 rounds as the program's type does where nothing is off.
      if (info.algebra == Algebra::conversion) radius = radius + difference(out, inputs_[0]);
      return radius + where(ne(radius, 0), roundings * 2.0, 0);
    }
    const bool exact = info.algebra == Algebra::identity || info.algebra == Algebra::negation ||
                       info.algebra == Algebra::selection;
    if (exact && call.scalars == 0) return radius;
    return radius + roundings;
  }

  // Numbers of the program are rounded to f32, in which also halves compute.
  Tensor of_numbers(const Call& call, const Tensor& out) {
    Tensor radius = nothing(out);
    for (int operand = 0; operand < call.n_attrs; ++operand) {
      if (!call.is_scalar(operand)) continue;
      const double number = call.attrs[operand].d();
      if (static_cast<double>(static_cast<float>(number)) == number) continue;
      Call copy = call;
      copy.attrs[operand] = Attr::of(static_cast<double>(static_cast<float>(number)));
      radius = radius + difference(again(copy, inputs_), out);
    }
    return radius;
  }

  // The operations of an expression, each relative to the result, or to the largest of what it may
  // be made of.
  Tensor of_expression(const Call& call, const OpInfo& info, const Tensor& out) {
    const double functions = info.expression.functions(), flops = info.expression.flops();
    const double units = (flops + kUnitsOfFunction * functions) * computed_;
    Tensor scale = size_of_values(out);
    if (flops > 1) {
      Tensor product = ones(Dims(out.shape()), {.dtype = f64});
      for (const Tensor& x : inputs_) product = product * maximum(size_of_values(x), 1.0);
      for (int operand = 0; operand < call.n_attrs; ++operand) {
        if (call.is_scalar(operand))
          product = product * std::max(1.0, std::abs(call.attrs[operand].d()));
      }
      scale = larger(scale, product);
    }
    return scale * units;
  }

  Tensor of_reduction(const Call& call, const OpInfo& info, const Tensor& out) {
    const Tensor &x = inputs_[0], away = radii_[0] * sign(cast(x, f64));
    Tensor radius = nothing(out);
    if (!is_zero(radii_[0])) {
      for (const Tensor& change : {radii_[0], -radii_[0], away, -away})
        radius = larger(radius, difference(again(call, {moved(x, change)}), out));
    }
    if (info.combine.flops() == 0 || info.combine.selects()) return radius;  // an extreme
    const double terms = static_cast<double>(x.numel()) / static_cast<double>(out.numel());
    const Tensor sizes = cast(again(call, {abs(x)}), f64);
    return radius + sizes * ((terms + info.result_flops) * computed_) + rounded(out);
  }

  Tensor of_structured(const Call& call, const OpInfo& info, const Tensor& out) {
    switch (info.algebra) {
      case Algebra::identity: return expand(radii_[0], Dims(out.shape()));
      case Algebra::concatenation:
      case Algebra::embedding: return again(call, radii_);
      case Algebra::gathering: return again(call, {radii_[0], inputs_[1]});
      case Algebra::scattering: return of_scattering(call, out);
      case Algebra::contraction: return of_contraction(call, out);
      case Algebra::scan:
        return again(call, radii_) + rounded(out) +
               again(call, {abs(inputs_[0])}) * (static_cast<double>(out.numel()) * computed_);
      case Algebra::undefined:
      case Algebra::uniform: return out.dtype() == f64 ? rounded(out) : nothing(out);
      default: break;
    }
    if (info.effect == Effect::draws) return out.dtype() == f64 ? rounded(out) : nothing(out);
    if (inputs_.empty()) return out.dtype() == f64 ? rounded(out) : nothing(out);
    if (inputs_.size() == 1) return again(call, radii_);  // elements of the operand, or zeros
    throw Error(fmt::format("[{}] has no bound of its rounding", info.name));
  }

  Tensor of_scattering(const Call& call, const Tensor& out) {
    const Tensor added = again(
        call, {zeros_like(inputs_[0]), inputs_[1], full(Dims(inputs_[2].shape()), 1, {f64, cpu})});
    const Tensor sizes = again(call, {abs(inputs_[0]), inputs_[1], abs(inputs_[2])});
    return again(call, {radii_[0], inputs_[1], radii_[2]}) + sizes * added * computed_ +
           rounded(out);
  }

  // |A| |B| bounds the sum of what the terms may be off, each of A and B by its radius.
  Tensor of_contraction(const Call& call, const Tensor& out) {
    Tensors sizes, wider;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      sizes.push_back(abs(inputs_[i]));
      wider.push_back(sizes.back() + radii_[i]);
    }
    const auto terms = static_cast<double>(inputs_[0].size(-1));
    const Tensor least = again(call, sizes);
    const Tensor radius =
        again(call, wider) - least + least * ((terms + 1) * computed_ + factors_) + rounded(out);
    // A row is added to the product in a call of its own, or not.
    return inputs_.size() < 3 ? radius : radius + (abs(out) + sizes[2]) * own_;
  }

  const double own_, computed_, factors_;
  const DType dtype_;
  std::map<const Storage*, Known> known_;
  Tensors inputs_, radii_;  // of the call under way
};

}  // namespace

std::vector<Bounded> with_bounds(const std::function<Tensors()>& program, Precisions precisions) {
  ErrorAnalysis analysis(precisions);
  Tensors values;
  {
    const Observing observing(analysis);
    values = program();
  }
  std::vector<Bounded> all;
  for (const Tensor& x : values) {
    if (!x.defined()) {
      all.emplace_back();
      continue;
    }
    all.push_back({contiguous(detach(x)), contiguous(analysis.radius_of(detach(x)))});
  }
  return all;
}

std::string beyond_bounds(const Tensors& got, const std::vector<Bounded>& wanted) {
  if (got.size() != wanted.size())
    return fmt::format("{} tensors, {} expected", got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].defined() != wanted[i].value.defined())
      return fmt::format("tensor {} is missing", i);
    if (!got[i].defined()) continue;
    const Values x = read(to(detach(got[i]), cpu)), y = read(wanted[i].value),
                 radius = read(wanted[i].radius);
    if (x.size() != y.size()) return fmt::format("tensor {} has another shape", i);
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (std::isnan(x[k]) && std::isnan(y[k])) continue;
      if (!std::isfinite(radius[k])) continue;  // it may overflow, or what it is made of
      if (x[k] == y[k] || std::abs(x[k] - y[k]) <= radius[k]) continue;
      return fmt::format("element {} of tensor {}, {}: got {}, in f64 {}, bound {}", k, i,
                         got[i].describe(), x[k], y[k], radius[k]);
    }
  }
  return "";
}

std::string beyond_bounds(const TensorsFunction& program, const Tensors& arguments,
                          Precisions precisions, const Tensors& got) {
  Tensors wide;
  for (const Tensor& x : arguments)
    wide.push_back(is_floating(x.dtype()) ? to(x, cpu, f64) : clone(to(x, cpu)));
  const auto call = [&] {
    Tensors all = program(wide);
    all.insert(all.end(), wide.begin(), wide.end());
    return all;
  };
  const std::vector<Bounded> wanted = with_bounds(call, precisions);
  if (const double width = widest(wanted); !(width < kWidest))
    return fmt::format("a bound of {} says nothing", width);
  return beyond_bounds(got, wanted);
}

double widest(const std::vector<Bounded>& all) {
  double widest = 0;
  for (const Bounded& each : all) {
    if (!each.value.defined() || each.value.dtype() == boolean) continue;
    double radius = 0, size = 1;
    for (const double r : read(each.radius)) radius = std::max(radius, r);
    for (const double v : read(each.value)) size = std::max(size, std::abs(v));
    widest = std::max(widest, radius / size);
  }
  return widest;
}

}  // namespace brrr::test
