// The functions of the pointwise rows: promotion, scalar operands, in-place forms. What they all
// share is the slow path below; the usual call (one dtype, no conversion) goes straight to the
// dispatcher.
#include <fmt/format.h>

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/pointwise.h"
#include "brrr/ops/scalar_attr.h"
#include "brrr/tensor/fail.h"

namespace brrr {

namespace {

// PyTorch's rule: tensors with dimensions decide; 0-d tensors, and after them numbers, count only
// when their category is higher.
struct Promotion {
  std::optional<DType> dimensioned, zero_dim, number;

  static void join(std::optional<DType>& into, DType dtype) {
    into = into ? promote(*into, dtype) : dtype;
  }

  void add(const Operand& operand) {
    if (!operand.tensor) {
      const Category category = operand.scalar.category();
      join(number, category == Category::floating  ? f32
                   : category == Category::integer ? i64
                                                   : boolean);
    } else {
      join(operand.tensor->rank() > 0 ? dimensioned : zero_dim, operand.tensor->dtype());
    }
  }

  static std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
    if (!higher || !lower) return higher ? higher : lower;
    if (category_of(*lower) <= category_of(*higher)) return higher;
    return promote(*higher, *lower);
  }

  DType result() const { return *combine(combine(dimensioned, zero_dim), number); }
};

std::string name_types(DTypeSet types) {
  std::string text;
  for (int i = 0; i < kDTypes; ++i) {
    if (contains(types, static_cast<DType>(i))) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", name_of(static_cast<DType>(i)));
    }
  }
  return text;
}

}  // namespace

DType compute_dtype(const OpInfo& info, std::span<const Operand> operands) {
  Promotion promotion;
  for (const Operand& operand : operands) promotion.add(operand);
  DType dtype = promotion.result();
  if (info.rule == DTypeRule::float_like && !is_floating(dtype)) dtype = f32;
  if (!contains(info.types, dtype)) {
    fail("[{}] expected operands of {}, got {}", info.name, name_types(info.types), name_of(dtype));
  }
  return dtype;
}

namespace {

// Refuses numbers for which an integer op has no result (remainder by 0, negative power). Elements
// of tensors cannot be refused: there a remainder by 0 is 0 and a negative power is truncated.
Attr number_operand(Op op, DType dtype, int position, Scalar number) {
  const char* name = op_info(op).name;
  const Attr attr = scalar_attr(name, dtype, number);
  if (position == 1 && !is_floating(dtype)) {
    if (op == Op::remainder && attr.i() == 0)
      fail("[{}] expected a divisor other than 0 for integers, got 0", name);
    if (op == Op::pow && attr.i() < 0)
      fail("[{}] expected an exponent of at least 0 for integers, got {}", name, attr.i());
  }
  return attr;
}

}  // namespace

Tensor pointwise(Op op, std::span<const Operand> operands, Tensor* in_place) {
  const OpInfo& info = op_info(op);
  bool any_tensor = false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].tensor) continue;
    any_tensor = true;
    if (operands[i].tensor->defined()) [[likely]]
      continue;
    if (operands.size() == 1) undefined_tensor(info.name);
    undefined_operand(info.name, static_cast<int>(i));
  }
  if (!any_tensor) fail("[{}] expected at least one tensor, got numbers only", info.name);
  const int first = info.rule == DTypeRule::select ? 1 : 0;
  if (first == 1 && (!operands[0].tensor || operands[0].tensor->dtype() != boolean)) {
    fail("[{}] expected a bool condition, got {}", info.name,
         operands[0].tensor ? operands[0].tensor->describe() : "a number");
  }
  const DType dtype = compute_dtype(info, operands.subspan(first));

  Tensor converted[kMaxPointwiseArity];
  const Tensor* inputs[kMaxPointwiseArity];
  Call call(op, inputs, 0);
  call.dtype = dtype;
  for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
    const Operand& operand = operands[i];
    call.add_attr(0);
    if (!operand.tensor) {
      call.scalars |= static_cast<std::uint8_t>(1u << i);
      call.attrs[i] = number_operand(op, dtype, i, operand.scalar);
    } else if (i < first || operand.tensor->dtype() == dtype) {
      inputs[call.n_inputs++] = operand.tensor;
    } else {
      converted[i] = cast(*operand.tensor, dtype);
      inputs[call.n_inputs++] = &converted[i];
    }
  }
  if (call.scalars == 0) call.n_attrs = 0;
  if (!in_place) return dispatch(call);

  OutputSpec spec;
  info.infer(call, &spec);
  if (!std::ranges::equal(spec.shape, in_place->shape())) {
    fail("[{}_] expected operands that broadcast to {}, got a result of {}", info.name,
         in_place->describe(), to_string(spec.shape));
  }
  if (category_of(spec.dtype) > category_of(in_place->dtype())) {
    fail("[{}_] expected a result that {} can hold, got {}", info.name, in_place->describe(),
         name_of(spec.dtype));
  }
  if (spec.dtype != in_place->dtype()) {
    copy_(*in_place, dispatch(call));
    return *in_place;
  }
  call.in_place = true;
  Tensor output = *in_place;
  dispatch(call, &output);
  return output;
}

namespace {

bool ready(const Tensor& a, DTypeSet types, DTypeRule rule) {
  return rule != DTypeRule::select && a.defined() && contains(types, a.dtype());
}

inline Tensor unary(Op op, DTypeSet types, DTypeRule rule, const Tensor& a) {
  if (ready(a, types, rule)) [[likely]]
    return dispatch_op(op, a.dtype(), {}, a);
  return pointwise(op, std::array{Operand(a)}, nullptr);
}

[[gnu::always_inline]] inline Tensor binary(Op op, DTypeSet types, DTypeRule rule, const Tensor& a,
                                            const Tensor& b) {
  if (ready(a, types, rule) && b.defined() && a.dtype() == b.dtype()) [[likely]]
    return dispatch_op(op, a.dtype(), {}, a, b);
  return pointwise(op, std::array{Operand(a), Operand(b)}, nullptr);
}

// `position` is the number's place among the two operands.
inline Tensor binary_with_number(Op op, DTypeSet types, DTypeRule rule, const Tensor& a,
                                 Scalar number, int position) {
  if (ready(a, types, rule) && number.category() <= category_of(a.dtype())) [[likely]] {
    const Tensor* inputs[] = {&a};
    Call call(op, inputs, 1);
    call.dtype = a.dtype();
    call.scalars = static_cast<std::uint8_t>(1u << position);
    call.n_attrs = 2;
    call.attrs[0] = call.attrs[1] = 0;
    call.attrs[position] = number_operand(op, a.dtype(), position, number);
    return dispatch(call);
  }
  std::array operands{Operand(a), Operand(number)};
  if (position == 0) std::swap(operands[0], operands[1]);
  return pointwise(op, operands, nullptr);
}

// `name` ends in _.
template <class... Operands>
Tensor& in_place(Op op, const char* name, Tensor& a, const Operands&... operands) {
  const CompositeScope scope(name);
  require_defined(name, a);
  pointwise(op, std::array{Operand(a), Operand(operands)...}, &a);
  return a;
}

}  // namespace

#define BRRR_UNARY(name, types, rule, ...)                                                        \
  Tensor name(const Tensor& a) { return unary(Op::name, dtype_sets::types, DTypeRule::rule, a); } \
  Tensor& name##_(Tensor& a) { return in_place(Op::name, #name "_", a); }
#define BRRR_BINARY(name, types, rule, ...)                                                   \
  Tensor name(const Tensor& a, const Tensor& b) {                                             \
    return binary(Op::name, dtype_sets::types, DTypeRule::rule, a, b);                        \
  }                                                                                           \
  Tensor name(const Tensor& a, Scalar b) {                                                    \
    return binary_with_number(Op::name, dtype_sets::types, DTypeRule::rule, a, b, 1);         \
  }                                                                                           \
  Tensor name(Scalar a, const Tensor& b) {                                                    \
    return binary_with_number(Op::name, dtype_sets::types, DTypeRule::rule, b, a, 0);         \
  }                                                                                           \
  Tensor& name##_(Tensor& a, const Tensor& b) { return in_place(Op::name, #name "_", a, b); } \
  Tensor& name##_(Tensor& a, Scalar b) { return in_place(Op::name, #name "_", a, b); }
#define BRRR_TERNARY(name, ...)                                        \
  Tensor name(const Tensor& a, const Operand& b, const Operand& c) {   \
    return pointwise(Op::name, std::array{Operand(a), b, c}, nullptr); \
  }                                                                    \
  Tensor& name##_(Tensor& a, const Operand& b, const Operand& c) {     \
    return in_place(Op::name, #name "_", a, b, c);                     \
  }
#include "brrr/dispatch/ops.def"

}  // namespace brrr
