// Owns how calls become values of bodies.
#include "brrr/ops/jit/add_call.h"

#include <bit>
#include <cstring>

#include "brrr/ops/formulas.h"
#include "brrr/tensor/half.h"

namespace brrr::jit {
namespace {

// The bits of an f32 rounded to a 16-bit type. Scalars that `where` selects are rounded here, once,
// so the selected element needs no rounding (is_rounded).
std::uint64_t rounded(std::uint64_t bits, DType half) {
  const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  return std::bit_cast<std::uint32_t>(half == f16 ? static_cast<float>(Float16(value))
                                                  : static_cast<float>(BFloat16(value)));
}

std::vector<int> add_pointwise(Body& body, const Call& call, std::span<const int> operands,
                               std::vector<std::uint64_t>& scalars) {
  const OpInfo& op = op_info(call.op);
  std::vector<int> values;
  std::size_t next = 0;
  for (int i = 0; i < op.arity; ++i) {
    if (!call.is_scalar(i)) {
      values.push_back(operands[next++]);
      continue;
    }
    const bool condition = i == 0 && op.rule == DTypeRule::select;
    values.push_back(body.add_scalar(condition ? boolean : call.dtype));
    scalars.push_back(scalar_bits(call.attrs[i], is_floating(call.dtype), body.scalars.back()));
    if (op.rule == DTypeRule::select && is_half(call.dtype) && !condition)
      scalars.back() = rounded(scalars.back(), call.dtype);
  }
  return {add_pointwise(body, op, call.dtype, call.dtype, values)};
}

std::vector<int> add_formula(Body& body, const Call& call, std::span<const int> operands,
                             DType type, std::vector<std::uint64_t>& scalars) {
  const Formula& formula = op_info(call.op).formula;
  const std::int64_t as_inputs = call.attrs[formula.numbers()].i();
  std::vector<int> values(operands.begin(), operands.begin() + formula.elements);
  std::size_t next = static_cast<std::size_t>(formula.elements);
  for (int k = 0; k < formula.numbers(); ++k) {
    if (as_inputs >> k & 1) {
      values.push_back(operands[next++]);
      continue;
    }
    values.push_back(body.add_scalar(type));
    scalars.push_back(scalar_bits(call.attrs[k], true, type));
  }
  for (const Formula::Assignment& value : formula.values) {
    std::vector<int> of;
    for (const int operand : value.operands)
      of.push_back(values[static_cast<std::size_t>(operand)]);
    values.push_back(body.add_expression(value.expression, type, type, std::move(of)));
  }
  std::vector<int> results;
  for (const int result : formula.results)
    results.push_back(values[static_cast<std::size_t>(result)]);
  return results;
}

// A product of matrices, and a row added to it before the result is rounded.
int add_contraction(Body& body, std::span<const int> operands, DType result) {
  BodyValue value;
  value.kind = BodyValue::Kind::contraction;
  value.dtype = value.type = operands.size() > 2 ? register_dtype(result) : result;
  value.operands = {operands[0], operands[1]};
  const int product = body.add(std::move(value));
  if (operands.size() == 2) return product;
  return body.add_expression("a + b", result, result, {product, operands[2]});
}

}  // namespace

bool has_values(const OpInfo& op) {
  return op.kind == OpKind::pointwise || op.kind == OpKind::formula ||
         op.kind == OpKind::reduction || op.algebra == Algebra::contraction || is_copy(op) ||
         is_made_of_blocks(op);
}

bool is_copy(const OpInfo& op) {
  return op.kind == OpKind::structured && op.algebra == Algebra::identity &&
         op.effect == Effect::pure && op.arity == 1;
}

bool is_made_of_blocks(const OpInfo& op) {
  return op.kind == OpKind::structured && op.effect == Effect::pure &&
         (op.algebra == Algebra::concatenation || op.algebra == Algebra::embedding);
}

int block_dim(const Call& call) { return static_cast<int>(call.attrs[0].i()); }

std::optional<Blocks> blocks_of(const Call& call, std::span<const std::int64_t> sizes) {
  Blocks blocks{block_dim(call), {}};
  if (op_info(call.op).algebra == Algebra::embedding) {
    if (call.attrs[3].i() != 1) return {};
    blocks.starts = {call.attrs[1].i()};
    return blocks;
  }
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    blocks.starts.push_back(start);
    start += size;
  }
  return blocks;
}

int add_blocks(Body& body, const Call& call, DType result, std::span<const int> operands,
               std::span<const int> inside, std::vector<std::uint64_t>& scalars) {
  std::size_t i = operands.size();
  int value;
  if (op_info(call.op).algebra == Algebra::concatenation) {
    value = operands[--i];  // what is in no block before is in the last one
  } else {
    value = body.add_scalar(result);
    scalars.push_back(0);
  }
  while (i-- > 0) {
    value = body.add_expression("where(a, b, c)", result, result, {inside[i], operands[i], value});
    body.values.back().select = true;
  }
  return value;
}

int add_within(Body& body, int index, int low, int high) {
  return body.add_expression("(a >= b) & (a < c)", i64, boolean, {index, low, high});
}

std::vector<int> add_call(Body& body, const Call& call, std::span<const int> operands,
                          std::span<const DType> outputs, std::vector<std::uint64_t>& scalars) {
  const OpInfo& op = op_info(call.op);
  switch (op.kind) {
    case OpKind::pointwise: return add_pointwise(body, call, operands, scalars);
    case OpKind::formula:
      return add_formula(body, call, operands, outputs[0] == f64 ? f64 : f32, scalars);
    case OpKind::reduction: return {add_reduction(body, op, outputs[0], operands[0])};
    default: return {is_copy(op) ? operands[0] : add_contraction(body, operands, outputs[0])};
  }
}

int add_fill(Body& body, const Call& call, DType dtype, std::vector<std::uint64_t>& scalars) {
  const int value = body.add_scalar(dtype);
  scalars.push_back(scalar_bits(call.attrs[0], is_floating(dtype), body.scalars.back()));
  if (is_half(dtype)) scalars.back() = rounded(scalars.back(), dtype);
  return value;
}

std::uint64_t scalar_bits(Attr attr, bool is_double, DType type) {
  const auto bits = [](auto value) {
    std::uint64_t result = 0;
    std::memcpy(&result, &value, sizeof(value));
    return result;
  };
  switch (type) {
    case DType::f32:
      return bits(is_double ? static_cast<float>(attr.d()) : static_cast<float>(attr.i()));
    case DType::f64: return bits(is_double ? attr.d() : static_cast<double>(attr.i()));
    case DType::i32:
      return bits(
          static_cast<std::int32_t>(is_double ? static_cast<std::int64_t>(attr.d()) : attr.i()));
    case DType::i64: return bits(is_double ? static_cast<std::int64_t>(attr.d()) : attr.i());
    default: return is_double ? attr.d() != 0 : attr.i() != 0;
  }
}

}  // namespace brrr::jit
