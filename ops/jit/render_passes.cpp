// Owns the source of what a kernel with reductions does with one element, one result and one row;
// the walks around it are in render_reduction.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "brrr/ops/jit/render.h"

namespace brrr::jit {
namespace pieces {

using Kind = BodyValue::Kind;

DType type_of_result(const BodyValue& value) {
  return value.kind == Kind::reduction || value.kind == Kind::column_reduction ? value.type
                                                                               : value.dtype;
}

namespace {

bool is_arg(const Body& body, int value) { return body.value(value).kind == Kind::arg; }

// NaN comes before everything else; of equals the first one counts.
std::string before_function(int reduction) {
  return fmt::format(
      "template <class T>\nBRRR_FN bool stands_before{0}(T a, i64 i, T b, i64 j) {{\n"
      "  const bool none = (i == highest<i64>()) | (j == highest<i64>()), nan = a != a, other = "
      "b != b, lower = i < j;\n"
      "  const bool first = before{0}<T>(a, b) | (!before{0}<T>(b, a) & lower);\n"
      "  return none ? lower : nan | other ? nan & (!other | lower) : first;\n}}\n",
      reduction);
}

// struct `name`: an accumulator for every reduction, and what is done with it.
std::string partial(const Body& body, std::string_view name, const std::vector<int>& reductions) {
  std::string text, fields, start, join, shuffle;
  for (const int r : reductions) {
    const std::string_view type = register_name(body.value(r).type);
    fields += fmt::format("  {} a{};\n", type, r);
    shuffle += fmt::format("  result.a{0} = shuffle<DOWN>(p.a{0}, by, width);\n", r);
    if (is_arg(body, r)) {
      text += before_function(r);
      // An index past every element: no element has been compared.
      fields += fmt::format("  i64 at{};\n", r);
      start += fmt::format("  p.a{0} = {1}(0);\n  p.at{0} = highest<i64>();\n", r, type);
      join += fmt::format(
          "  if (stands_before{0}<{1}>(q.a{0}, q.at{0}, p.a{0}, p.at{0})) {{\n    p.a{0} = "
          "q.a{0};\n "
          "   p.at{0} = q.at{0};\n  }}\n",
          r, type);
      shuffle += fmt::format("  result.at{0} = shuffle<DOWN>(p.at{0}, by, width);\n", r);
    } else {
      start += fmt::format("  p.a{0} = identity{0}<{1}>();\n", r, type);
      join += fmt::format("  p.a{0} = combine{0}<{1}>(p.a{0}, q.a{0});\n", r, type);
    }
  }
  return text + fmt::format(
                    "struct {0} {{\n{1}}};\n"
                    "BRRR_FN void start({0}& p) {{\n{2}}}\n"
                    "BRRR_FN void join({0}& p, const {0}& q) {{\n{3}}}\n"
                    "template <bool DOWN>\n"
                    "BRRR_FN {0} of_lane(const {0}& p, int by, int width) {{\n"
                    "  {0} result;\n{4}  return result;\n}}\n",
                    name, fields, start, join, shuffle);
}

// The result of reduction r, whose accumulators are p.
std::string finished(const Body& body, int r) {
  const BodyValue& value = body.value(r);
  const std::string_view type = register_name(value.type);
  std::string result =
      is_arg(body, r) ? fmt::format("p.at{}", r)
                      : fmt::format("finish{0}<{1}>(p.a{0}, static_cast<{1}>(elements))", r, type);
  if (is_rounded(body, r)) result = fmt::format("rounded<{}>({})", c_name(value.dtype), result);
  return fmt::format("  {} = {};\n", name_of_value(body, r), result);
}

// visit<pass>(p, row, elements..., constants..., index, v<live in>..., k<live out>...,
// y<output>...): one element enters the reductions of a pass and gives its outputs.
std::string visit(const Body& body, std::size_t number, const RowPass& pass) {
  const bool guarded = is_guarded(body, pass);
  std::string text =
      fmt::format("{}BRRR_FN void visit{}(", guarded ? "template <class Guard>\n" : "", number);
  if (!pass.reductions.empty()) text += fmt::format("Partial{}& p, ", number);
  if (!pass.column_reductions.empty()) text += "ColumnPartial& column, const bool enters, ";
  text += "const Row& row, " + element_parameters(body) + constant_parameters(body) + "i64 index";
  for (const int v : pass.live_in)
    text += fmt::format(", {} {}", register_name(body.value(v).dtype), name_of_value(body, v));
  for (const int v : pass.live_out)
    text += fmt::format(", {}& k{}", register_name(body.value(v).dtype), v);
  for (const int o : pass.outputs) {
    text +=
        fmt::format(", {}& y{}", register_name(body.outputs[static_cast<std::size_t>(o)].dtype), o);
  }
  if (guarded) text += ", Guard& guard";
  text += ") {\n" + statements(body, pass.elements, static_cast<int>(number));
  for (const int v : pass.live_out) text += fmt::format("  k{} = {};\n", v, name_of_value(body, v));
  for (const int r : pass.reductions) {
    const BodyValue& value = body.value(r);
    const std::string_view type = register_name(value.type);
    const std::string element = converted(body, value.operands[0], value.type);
    if (is_arg(body, r)) {
      // A thread visits its elements in order, so of a tie it keeps the one that it has.
      text += fmt::format(
          "  const bool wins{0} = (p.at{0} == highest<i64>()) | before{0}<{1}>({2}, p.a{0}) | "
          "(({2} "
          "!= {2}) & (p.a{0} == p.a{0}));\n"
          "  p.a{0} = wins{0} ? {2} : p.a{0};\n  p.at{0} = wins{0} ? index : p.at{0};\n",
          r, type, element);
    } else {
      text +=
          fmt::format("  p.a{0} = combine{0}<{1}>(p.a{0}, map{0}<{1}>({2}));\n", r, type, element);
    }
  }
  for (const int r : pass.column_reductions) {
    const BodyValue& value = body.value(r);
    text +=
        fmt::format("  if (enters) column.a{0} = combine{0}<{1}>(column.a{0}, map{0}<{1}>({2}));\n",
                    r, register_name(value.type), converted(body, value.operands[0], value.type));
  }
  for (const int o : pass.outputs) {
    const Body::TensorOperand& output = body.outputs[static_cast<std::size_t>(o)];
    text += fmt::format("  y{} = {};\n", o, converted(body, output.value, output.dtype));
  }
  return text + "}\n";
}

// finish(row, p, constants..., elements): results of a pass.
std::string finish(const Body& body, std::size_t number, const RowPass& pass) {
  std::string text =
      fmt::format("BRRR_FN void finish(Row& row, const Partial{}& p, {}i64 elements) {{\n", number,
                  constant_parameters(body));
  for (const int r : pass.reductions) text += finished(body, r);
  return text + statements(body, pass.results) + "}\n";
}

// Pointers to all outputs as parameters, and the statements that store those of a scope at
// offset[output].
std::pair<std::string, std::string> stores_of(const Body& body, Body::Scope scope) {
  std::string parameters, stores;
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    const Body::TensorOperand& output = body.outputs[i];
    parameters += fmt::format("{}* out{}, ", c_name(output.dtype), i);
    if (output.scope != scope) continue;
    stores += fmt::format("  out{0}[offset[{0}]] = narrow<{1}>({2});\n", i, c_name(output.dtype),
                          converted(body, output.value, output.dtype));
  }
  return {parameters, stores};
}

// leave_column(p, outputs..., constants..., offset of each output, elements): the results of a
// column, from all of its rows, are written.
std::string leave_column(const Body& body) {
  std::string fields, statements_of_columns;
  for (const int v : values_of_columns(body)) {
    fields += fmt::format("    {} {};\n", register_name(type_of_result(body.value(v))),
                          name_of_value(body, v).substr(7));
    statements_of_columns +=
        body.value(v).kind == Kind::column_reduction ? finished(body, v) : statements(body, {v});
  }
  const auto [parameters, stores] = stores_of(body, Body::Scope::column);
  return fmt::format(
      "BRRR_FN void leave_column(const ColumnPartial& p, {}{}const i64* offset, i64 elements) {{\n"
      "  struct {{\n{}  }} column;\n{}{}}}\n",
      parameters, constant_parameters(body), fields, statements_of_columns, stores);
}

}  // namespace

// struct Row: what is known of a row. begin(row, inputs..., offset) reads it.
std::string row_struct(const Body& body, bool before_wait) {
  std::string fields, begin;
  const std::vector<Level> levels = levels_of(body);
  for (std::size_t i = 0; i < body.values.size(); ++i) {
    const BodyValue& value = body.values[i];
    if (!levels[i].per_row() || value.kind == Kind::scalar) continue;
    const std::string name = name_of_value(body, static_cast<int>(i)).substr(4);
    fields += fmt::format("  {} {};\n", register_name(type_of_result(value)), name);
    if (value.kind == Kind::input)
      begin += fmt::format("  row.{0} = widen({2}in{1}{3}offset[{1}]{4});\n", name, value.number,
                           before_wait ? "load_before_wait(" : "", before_wait ? " + " : "[",
                           before_wait ? ")" : "]");
    if (value.kind == Kind::index)
      begin += fmt::format("  row.{} = offset[{}];\n", name,
                           body.inputs.size() + static_cast<std::size_t>(value.number));
  }
  std::string inputs;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    inputs += fmt::format("const {}* in{}, ", c_name(body.inputs[i].dtype), i);
    if (is_address(body, i) && is_of_rows(body, i)) {
      fields += fmt::format("  const {}* g{};\n", c_name(body.inputs[i].dtype), i);
      begin += fmt::format("  row.g{0} = in{0} + offset[{0}];\n", i);
    }
  }
  std::string text = fmt::format("struct Row {{\n{}}};\n", fields);
  const auto function = [&](std::string_view name, const std::string& statements) {
    text += fmt::format("BRRR_FN void {}(Row& row, {}{}const i64* offset) {{\n{}}}\n", name, inputs,
                        constant_parameters(body), statements);
  };
  const std::string computed = statements(body, values_of_rows(body));
  if (body.reduces_columns()) function("load_row", begin);
  function("begin_row", body.reduces_columns() ? computed : begin + computed);
  return text;
}

// leave(row, outputs..., constants..., offset of each output): results are written.
std::string leave(const Body& body) {
  const auto [parameters, stores] = stores_of(body, Body::Scope::row);
  return fmt::format("BRRR_FN void leave(const Row& row, {}{}const i64* offset) {{\n{}}}\n",
                     parameters, constant_parameters(body), stores);
}

bool is_guarded(const Body& body, const RowPass& pass) {
  return std::ranges::any_of(pass.elements,
                             [&](int value) { return body.value(value).expression.is_guarded(); });
}

bool has_row_values(const Body& body) {
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (is_of_rows(body, i)) return true;
  }
  return !values_of_rows(body).empty();
}

std::string row_functions(const Body& body, const Schedule& schedule,
                          const std::vector<RowPass>& passes) {
  std::string text = row_struct(body) + leave(body) + draw_caches(body, schedule);
  if (body.reduces_columns())
    text += partial(body, "ColumnPartial", column_reductions(body)) + leave_column(body);
  for (std::size_t n = 0; n < passes.size(); ++n) {
    if (!passes[n].reductions.empty())
      text += partial(body, fmt::format("Partial{}", n), passes[n].reductions) +
              finish(body, n, passes[n]);
    text += visit(body, n, passes[n]);
  }
  return text;
}

std::string finish_call(const Body& body, std::string_view row, std::string_view partial) {
  return fmt::format("finish({}, {}, {}elements);\n", row, partial, constant_arguments(body));
}
std::string leave_call(const Body& body, std::string_view row, std::string_view offset) {
  return fmt::format("leave({}, {}{}{});\n", row, numbered("out", body.outputs.size()),
                     constant_arguments(body), offset);
}
namespace {

std::string row_call(std::string_view function, const Body& body, std::string_view row,
                     std::string_view offset) {
  return fmt::format("{}({}, {}{}{});\n", function, row, numbered("in", body.inputs.size()),
                     constant_arguments(body), offset);
}

}  // namespace

std::string begin_call(const Body& body, std::string_view row, std::string_view offset) {
  return has_row_values(body) ? row_call("begin_row", body, row, offset) : "";
}
std::string load_call(const Body& body, std::string_view row, std::string_view offset) {
  return has_row_values(body) ? row_call("load_row", body, row, offset) : "";
}

std::size_t partial_size_of(const Body& body, const std::vector<int>& reductions) {
  std::size_t size = 0, alignment = 1;
  const auto field = [&](std::size_t bytes) {
    size = (size + bytes - 1) / bytes * bytes + bytes;
    alignment = std::max(alignment, bytes);
  };
  for (const int r : reductions) {
    field(size_of(register_dtype(body.value(r).type)));
    if (is_arg(body, r)) field(8);
  }
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace pieces

std::size_t partial_size(const Body& body) {
  std::size_t size = 0;
  for (const pieces::RowPass& pass : pieces::passes_of(body))
    size = std::max(size, pieces::partial_size_of(body, pass.reductions));
  return size;
}

std::size_t column_partial_size(const Body& body) {
  return pieces::partial_size_of(body, pieces::column_reductions(body));
}

}  // namespace brrr::jit
