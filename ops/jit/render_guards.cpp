// Owns the rewriting of expressions into fast forms that a Guard (prelude.inl) watches: they are
// right for all but extreme operands, have no branches, and so overlap with those of other
// elements. A vector whose guard fails is computed again, by the slow forms.
#include <algorithm>
#include <array>

#include "brrr/ops/jit/render.h"

namespace brrr::jit::pieces {
namespace {

// Whether every use of the value rounds it to bf16 first.
bool becomes_bf16(const Body& body, int number) {
  const BodyValue& value = body.value(number);
  if (!body.strict) return false;
  if (value.dtype == bf16) return true;
  const auto is_cast = [](const BodyValue& user) {
    return user.kind == BodyValue::Kind::expression && user.expression.is(ScalarOp::operand) &&
           user.dtype == bf16;
  };
  return std::ranges::all_of(body.outputs,
                             [&](const Body::TensorOperand& output) {
                               return output.value != number || output.dtype == bf16;
                             }) &&
         std::ranges::all_of(body.values, [&](const BodyValue& user) {
           return std::ranges::find(user.operands, number) == user.operands.end() || is_cast(user);
         });
}

}  // namespace

Body with_guarded_functions(const Body& body) {
  const std::vector<Level> levels = levels_of(body);
  Body result = body;
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    BodyValue& value = result.values[i];
    if (value.kind != BodyValue::Kind::expression || register_dtype(value.type) != f32 ||
        !levels[i].per_element())
      continue;
    value.expression = value.expression.with_guards();
  }
  return result;
}

Body with_inverses(const Body& body) {
  const std::vector<Level> levels = levels_of(body);
  const auto level = [&](int value) { return levels[static_cast<std::size_t>(value)]; };
  const auto divides_by = [&](const BodyValue& value) {
    return value.kind == BodyValue::Kind::expression && value.expression.is(ScalarOp::divide) &&
                   register_dtype(value.type) == f32 && !level(value.operands[1]).per_element() &&
                   level(value.operands[1]).scope != Body::Scope::one
               ? value.operands[1]
               : -1;
  };
  Body result = body;
  result.values.clear();
  std::vector<int> moved;
  std::vector<std::array<int, 3>> inverses(body.values.size(), {-1, -1, -1});
  for (std::size_t i = 0; i < body.values.size(); ++i) {
    BodyValue value = body.values[i];
    const int by = levels[i].per_element() ? divides_by(value) : -1;
    for (int& operand : value.operands) operand = moved[static_cast<std::size_t>(operand)];
    if (by >= 0) {
      auto& [inverse, down, rest] = inverses[static_cast<std::size_t>(by)];
      const int divisor = value.operands[1];
      if (inverse < 0) inverse = result.add_expression("K(1) / a", f32, f32, {divisor});
      if (body.fast) {
        value.expression = "a * b";
        value.operands[1] = inverse;
      } else if (becomes_bf16(body, static_cast<int>(i))) {
        value.expression = "divided_for_bf16(a, b, c)";
        value.operands.push_back(inverse);
      } else {
        if (down < 0) {
          down = result.add_expression("inverse_towards_zero(a)", f32, f32, {divisor});
          rest =
              result.add_expression("rest_of_inverse(a, b, c)", f32, f32, {divisor, down, inverse});
        }
        value.expression = "divided(a, b, c, d, e)";
        value.operands.insert(value.operands.end(), {inverse, down, rest});
      }
    }
    moved.push_back(result.add(std::move(value)));
  }
  for (Body::TensorOperand& output : result.outputs)
    output.value = moved[static_cast<std::size_t>(output.value)];
  return result;
}

}  // namespace brrr::jit::pieces
