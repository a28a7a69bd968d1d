// Owns how rows of the op table become bodies, and the rules that a body obeys.
#include "brrr/ops/jit/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "brrr/tensor/fail.h"

namespace brrr::jit {

using Kind = BodyValue::Kind;

bool Body::reduces() const {
  return std::any_of(values.begin(), values.end(), [](const BodyValue& value) {
    return value.kind == Kind::reduction || value.kind == Kind::arg ||
           value.kind == Kind::contraction;
  });
}

bool Body::reduces_columns() const {
  return std::ranges::find(values, Kind::column_reduction, &BodyValue::kind) != values.end();
}

int Body::contraction() const {
  const auto found = std::ranges::find(values, Kind::contraction, &BodyValue::kind);
  return found == values.end() ? -1 : static_cast<int>(found - values.begin());
}

bool Body::has_bounds() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const TensorOperand& input) { return !input.bounds.empty(); });
}

namespace {

Body::Scope scope_of_output(const Body& body, const std::vector<Level>& levels, int value) {
  const Level& level = levels.at(static_cast<std::size_t>(value));
  if (level.of_columns) return Body::Scope::column;
  return body.reduces() && level.per_row() ? Body::Scope::row : Body::Scope::element;
}

}  // namespace

int Body::add(BodyValue value) {
  values.push_back(std::move(value));
  return static_cast<int>(values.size()) - 1;
}

namespace {

BodyValue value_of(Kind kind, DType dtype, std::size_t number = 0) {
  BodyValue value;
  value.kind = kind;
  value.dtype = value.type = dtype;
  value.number = static_cast<int>(number);
  return value;
}

}  // namespace

int Body::add_input(DType dtype, Scope scope) {
  inputs.push_back({dtype, scope, 0, {}});
  return add(value_of(Kind::input, dtype, inputs.size() - 1));
}

int Body::add_scalar(DType dtype) {
  scalars.push_back(register_dtype(dtype));
  return add(value_of(Kind::scalar, scalars.back(), scalars.size() - 1));
}

int Body::add_index(Scope scope) {
  indices.push_back(scope);
  return add(value_of(Kind::index, i64, indices.size() - 1));
}

int Body::add_expression(Expression expression, DType type, DType result,
                         std::vector<int> operands) {
  BodyValue value = value_of(Kind::expression, result);
  value.type = type;
  value.expression = expression;
  value.operands = std::move(operands);
  return add(std::move(value));
}

void Body::add_output(int value, DType dtype) {
  const std::vector<Level> levels = levels_of(*this);
  outputs.push_back({dtype, scope_of_output(*this, levels, value), value, {}});
}

std::vector<Level> levels_of(const Body& body) {
  std::vector<Level> levels;
  for (const BodyValue& value : body.values) {
    Level level;
    const auto covers = [&level](Body::Scope scope) {
      const auto bits = static_cast<std::uint8_t>(level.scope) | static_cast<std::uint8_t>(scope);
      level.scope = static_cast<Body::Scope>(bits);
    };
    for (const int operand : value.operands) {
      const Level& of = levels.at(static_cast<std::size_t>(operand));
      covers(of.scope);
      level.pass = std::max(level.pass, of.pass);
      level.of_columns |= of.of_columns;
    }
    switch (value.kind) {
      case Kind::input:
      case Kind::gathered:
        covers(body.inputs.at(static_cast<std::size_t>(value.number)).scope);
        break;
      case Kind::index: covers(body.indices.at(static_cast<std::size_t>(value.number))); break;
      case Kind::reduction:
      case Kind::arg:
      case Kind::contraction:
        level.scope = Body::Scope::row;
        ++level.pass;
        break;
      case Kind::column_reduction:
        level.scope = Body::Scope::column;
        level.of_columns = true;
        break;
      default: break;
    }
    levels.push_back(level);
  }
  return levels;
}

bool mixes_columns(const Body& body) {
  if (!body.reduces_columns()) return false;
  const std::vector<Level> levels = levels_of(body);
  for (std::size_t i = 0; i < body.values.size(); ++i) {
    const BodyValue& value = body.values[i];
    if (!levels[i].of_columns || value.kind == Kind::column_reduction) continue;
    const bool is_of_columns = std::ranges::all_of(value.operands, [&](int operand) {
      return levels[static_cast<std::size_t>(operand)].of_columns ||
             body.value(operand).kind == Kind::scalar;
    });
    if (value.kind != Kind::expression || !is_of_columns) return true;
  }
  return false;
}

namespace {

// The operands that an expression passes through unchanged.
std::span<const int> choices_of(const BodyValue& value) {
  if (value.kind != Kind::expression) return {};
  if (value.expression.is(ScalarOp::operand)) return value.operands;
  if (value.select && value.expression.is(ScalarOp::select))
    return std::span(value.operands).subspan(1);
  return {};
}

bool is_only_stored(const Body& body, int number) {
  const DType dtype = body.value(number).dtype;
  bool stored = false;
  for (const Body::TensorOperand& output : body.outputs) {
    if (output.value != number) continue;
    if (output.dtype != dtype) return false;
    stored = true;
  }
  for (int user = number + 1; user < static_cast<int>(body.values.size()); ++user) {
    const BodyValue& value = body.value(user);
    const auto uses = std::ranges::count(value.operands, number);
    if (uses == 0) continue;
    if (value.kind == Kind::contraction) {  // takes operands of its type
      stored = true;
      continue;
    }
    if (value.dtype != dtype || std::ranges::count(choices_of(value), number) != uses ||
        !is_only_stored(body, user))
      return false;
    stored = true;
  }
  return stored;
}

}  // namespace

bool is_rounded(const Body& body, int number) {
  const BodyValue& value = body.value(number);
  if (!body.strict || !is_half(value.dtype)) return false;
  const std::span<const int> choices = choices_of(value);
  // Scalar operands of `where` are rounded when the body is made (add_call.cpp).
  const bool chooses = std::ranges::all_of(choices, [&](int choice) {
    return body.value(choice).dtype == value.dtype ||
           (value.select && body.value(choice).kind == Kind::scalar);
  });
  return (choices.empty() || !chooses) && !is_only_stored(body, number);
}

namespace {

void verify_value(const Body& body, std::size_t i, const std::vector<Level>& levels) {
  const BodyValue& value = body.values[i];
  const auto require = [&](bool met, std::string_view what) {
    if (!met) fail("[{}] expected a body with {}", body.name, what);
  };
  const auto among = [&](std::size_t count) {
    return value.number >= 0 && static_cast<std::size_t>(value.number) < count;
  };
  const std::size_t operands = value.operands.size();
  switch (value.kind) {
    case Kind::input: require(among(body.inputs.size()) && operands == 0, "known inputs"); break;
    case Kind::scalar: require(among(body.scalars.size()) && operands == 0, "known scalars"); break;
    case Kind::index: require(among(body.indices.size()) && operands == 0, "known indices"); break;
    case Kind::expression:
      require(!value.expression.empty() && operands <= 26, "expressions of at most 26 operands");
      break;
    case Kind::reduction:
    case Kind::column_reduction:
    case Kind::arg:
      require(operands == 1 && levels[static_cast<std::size_t>(value.operands[0])].per_element(),
              "reductions of elements");
      break;
    case Kind::contraction:
      require(operands == 2 &&
                  body.value(value.operands[0]).dtype == body.value(value.operands[1]).dtype &&
                  std::ranges::count(body.values, Kind::contraction, &BodyValue::kind) == 1,
              "one contraction, of two inputs of one type");
      break;
    case Kind::gathered:
      require(among(body.inputs.size()) && operands == 1, "known gathered inputs");
      break;
    case Kind::draw:
      require(
          among(body.inputs.size()) &&
              body.inputs[static_cast<std::size_t>(value.number)].dtype == i64 &&
              body.value(value.operands[1]).kind == Kind::index &&
              body.value(value.operands[2]).kind == Kind::scalar &&
              (value.draw == Algebra::bernoulli_draw ? operands == 4 && value.dtype == boolean
                                                     : operands == 3 && is_floating(value.dtype) &&
                                                           (value.draw == Algebra::uniform_draw ||
                                                            value.draw == Algebra::normal_draw)),
          "draws, uniform, normal or bernoulli, from a generator's state");
      break;
    case Kind::index_check:
      require(among(body.checks.size()) && operands == 3 && value.type == i64, "checks of indices");
      break;
    case Kind::range_check:
      require(
          among(body.checks.size()) && operands == 4 && (value.type == i64 || value.type == f64),
          "checks of ranges");
      break;
  }
}

}  // namespace

void verify(const Body& body) {
  const auto require = [&body](bool met, std::string_view what) {
    if (!met) fail("[{}] expected a body with {}", body.name, what);
  };
  require(!body.name.empty() && !body.outputs.empty(), "a name and outputs");
  const auto at_most = [&body](std::size_t most, std::size_t got, std::string_view what) {
    if (got > most)
      fail("[{}] expected a body of at most {} {}, got {}", body.name, most, what, got);
  };
  at_most(Body::kMostOperands, body.strided(), "operands and coordinates");
  at_most(Body::kMostNumbers, body.scalars.size() + body.checks.size(), "scalars and checks");
  at_most(Body::kMostValues, body.values.size(), "values");
  for (std::size_t i = 0; i < body.values.size(); ++i) {
    for (const int operand : body.values[i].operands) {
      require(operand >= 0 && operand < static_cast<int>(i), "values in order");
    }
  }
  for (const Body::TensorOperand& input : body.inputs) {
    const auto scalar = [&](int number) {
      return number >= 0 && number < static_cast<int>(body.scalars.size()) &&
             body.scalars[static_cast<std::size_t>(number)] == i64;
    };
    for (const Body::Bound& bound : input.bounds) {
      require(input.scope == Body::Scope::element && bound.index >= 0 &&
                  bound.index < static_cast<int>(body.indices.size()) && scalar(bound.low) &&
                  scalar(bound.high),
              "bounds of elements, by known coordinates");
    }
  }
  const std::vector<Level> levels = levels_of(body);
  for (std::size_t i = 0; i < body.values.size(); ++i) verify_value(body, i, levels);
  require(!body.reduces_columns() || body.reduces(), "reductions of rows beside those of columns");
  require(!mixes_columns(body), "values of columns computed from their reductions");
  for (const Body::TensorOperand& output : body.outputs) {
    require(output.value >= 0 && output.value < static_cast<int>(body.values.size()),
            "known results");
    require(output.scope == scope_of_output(body, levels, output.value),
            "outputs of the scope of their values");
  }
}

int add_pointwise(Body& body, const OpInfo& op, DType computed_in, DType result,
                  const std::vector<int>& operands) {
  const DType dtype = op.rule == DTypeRule::predicate ? boolean : result;
  const int value = body.add_expression(op.expression, computed_in, dtype, operands);
  body.values.back().select = op.rule == DTypeRule::select;
  return value;
}

int add_reduction(Body& body, const OpInfo& op, DType result, int operand) {
  BodyValue value = value_of(Kind::reduction, result);
  value.type = accumulator_of(op, result, cuda());
  value.cpu_accumulator = accumulator_of(op, result, cpu);
  value.operands = {operand};
  value.expression = op.expression;
  value.identity = op.identity;
  value.combine = op.combine;
  value.finish = op.finish;
  return body.add(std::move(value));
}

int add_arg_reduction(Body& body, const OpInfo& op, int operand) {
  BodyValue value = value_of(Kind::arg, i64);
  value.type = register_dtype(body.values[static_cast<std::size_t>(operand)].dtype);
  value.operands = {operand};
  value.expression = op.expression;
  return body.add(std::move(value));
}

namespace {

Body body_named(std::string_view op, DType dtype) {
  Body body;
  for (const char c : op) body.name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  body.name += fmt::format("_{}", name_of(dtype));
  return body;
}

}  // namespace

Body pointwise_body(const OpInfo& op, DType computed_in, std::uint8_t scalars,
                    const std::vector<DType>& inputs, DType output) {
  Body body = body_named(op.name, computed_in);
  std::vector<int> operands;
  std::size_t next = 0;
  for (int i = 0; i < op.arity; ++i) {
    const bool condition = i == 0 && op.rule == DTypeRule::select;
    operands.push_back(scalars >> i & 1 ? body.add_scalar(condition ? boolean : computed_in)
                                        : body.add_input(inputs.at(next++)));
  }
  body.add_output(add_pointwise(body, op, computed_in, computed_in, operands), output);
  return body;
}

Body copy_body(DType from, DType to) {
  Body body = body_named(fmt::format("copy_{}", name_of(from)), to);
  body.add_output(body.add_input(from), to);
  return body;
}

Body reduction_body(const OpInfo& op, DType input, DType output) {
  Body body = body_named(op.name, input);
  body.add_output(add_reduction(body, op, output, body.add_input(input)), output);
  return body;
}

Body arg_reduction_body(const OpInfo& op, DType input) {
  Body body = body_named(op.name, input);
  body.add_output(add_arg_reduction(body, op, body.add_input(input)), i64);
  return body;
}

}  // namespace brrr::jit
