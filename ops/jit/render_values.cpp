// Owns the text of values: expressions as functions, and the statements that call them in order.
#include <fmt/format.h>

#include "brrr/ops/jit/render.h"

namespace brrr::jit {

namespace pieces {

std::string_view c_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float";
    case DType::f64: return "double";
    default: return name_of(dtype);
  }
}

std::string_view register_name(DType dtype) { return c_name(register_dtype(dtype)); }

std::vector<int> levels(const KernelSpec& spec) {
  std::vector<int> result;
  for (const Value& value : spec.values) {
    int level = value.kind == Value::Kind::reduction || value.kind == Value::Kind::arg;
    for (int operand : value.operands) level = std::max(level, result[operand]);
    result.push_back(level);
  }
  return result;
}

std::string name_of_value(const KernelSpec& spec, int value) {
  const Value& v = spec.values[value];
  switch (v.kind) {
    case Value::Kind::input: return fmt::format("x{}", v.number);
    case Value::Kind::scalar: return fmt::format("s{}", v.number);
    case Value::Kind::index: return "index";
    case Value::Kind::expression: return fmt::format("v{}", value);
    default: return fmt::format("r{}", value);
  }
}

std::string converted(const KernelSpec& spec, int value, DType type) {
  const std::string name = name_of_value(spec, value);
  const Value& v = spec.values[value];
  const DType held = v.kind == Value::Kind::index ? i64 : register_dtype(v.dtype);
  return held == register_dtype(type) ? name
                                      : fmt::format("narrow<{}>({})", register_name(type), name);
}

namespace {

std::string parameters(const Value& value) {
  std::string text;
  for (std::size_t i = 0; i < value.operands.size(); ++i) {
    const std::string_view type = value.select && i == 0 ? "bool" : "T";
    text += fmt::format("{}{} {}", i ? ", " : "", type, static_cast<char>('a' + i));
  }
  return text;
}

// The number of the first value with the same function: equal expressions share one.
std::size_t function_of(const KernelSpec& spec, std::size_t number) {
  const Value& value = spec.values[number];
  for (std::size_t i = 0; i < number; ++i) {
    const Value& other = spec.values[i];
    if (other.kind == value.kind && other.text == value.text &&
        other.operands.size() == value.operands.size() && other.select == value.select &&
        (other.dtype == boolean) == (value.dtype == boolean)) {
      return i;
    }
  }
  return number;
}

}  // namespace

std::string functions(const KernelSpec& spec) {
  std::string text;
  for (std::size_t i = 0; i < spec.values.size(); ++i) {
    const Value& value = spec.values[i];
    const auto function = [&](std::string_view result, std::string_view name,
                              std::string_view arguments, std::string_view body) {
      text += fmt::format("template <class T>\nBRRR_FN {} {}{}({}) {{\n  return {};\n}}\n", result,
                          name, i, arguments, body);
    };
    switch (value.kind) {
      case Value::Kind::expression: {
        if (function_of(spec, i) == i)
          function(value.dtype == boolean ? "bool" : "T", "op", parameters(value), value.text);
        break;
      }
      case Value::Kind::reduction:
        function("T", "map", "T a", value.text);
        function("T", "identity", "", value.identity);
        function("T", "combine", "T x, T y", value.combine);
        function("T", "finish", "T x, T n", value.finish);
        break;
      case Value::Kind::arg: function("bool", "before", "T a, T b", value.text); break;
      default: break;
    }
  }
  return text;
}

std::string statements(const KernelSpec& spec, int level) {
  const std::vector<int> level_of = levels(spec);
  std::string text;
  for (std::size_t i = 0; i < spec.values.size(); ++i) {
    const Value& value = spec.values[i];
    if (value.kind != Value::Kind::expression || level_of[i] != level) continue;
    std::string arguments;
    for (std::size_t k = 0; k < value.operands.size(); ++k) {
      arguments += fmt::format(
          "{}{}", k ? ", " : "",
          converted(spec, value.operands[k], value.select && k == 0 ? boolean : value.type));
    }
    std::string call =
        fmt::format("op{}<{}>({})", function_of(spec, i), register_name(value.type), arguments);
    if (value.dtype != boolean && register_dtype(value.dtype) != register_dtype(value.type)) {
      call = fmt::format("static_cast<{}>({})", register_name(value.dtype), call);
    }
    if (spec.strict && is_half(value.dtype))
      call = fmt::format("rounded<{}>({})", c_name(value.dtype), call);
    text += fmt::format("  const {} v{} = {};\n", register_name(value.dtype), i, call);
  }
  return text;
}

}  // namespace pieces

std::string render_cuda(const KernelSpec& spec) {
  verify(spec);
  return spec.reduces() ? render_reduction(spec) : render_pointwise(spec);
}

}  // namespace brrr::jit
