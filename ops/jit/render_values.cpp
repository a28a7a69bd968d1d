// Owns the source of values: expressions as functions, and the statements that call them in order.
#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/sources.h"
#include "brrr/tensor/fail.h"

namespace brrr::jit {

using Kind = BodyValue::Kind;

namespace pieces {

std::string_view c_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float";
    case DType::f64: return "double";
    default: return name_of(dtype);
  }
}

std::string_view register_name(DType dtype) { return c_name(register_dtype(dtype)); }

std::string typedef_of(std::string_view type, std::string_view name) {
  return fmt::format("typedef {} {};\n", type, name);
}

std::string typedef_of(DType dtype, std::string_view name) {
  return typedef_of(c_name(dtype), name);
}

std::string typedef_of_bits(DType dtype, std::string_view name) {
  return typedef_of(fmt::format("u{}", 8 * size_of(dtype)), name);
}

bool is_reduction(const BodyValue& value) {
  return value.kind == Kind::reduction || value.kind == Kind::arg ||
         value.kind == Kind::contraction || value.kind == Kind::column_reduction;
}

std::string name_of_value(const Body& body, int value) {
  const BodyValue& v = body.value(value);
  if (v.kind == Kind::scalar) return fmt::format("s{}", v.number);
  const Level level = levels_of(body)[static_cast<std::size_t>(value)];
  const std::string_view row = level.of_columns                    ? "column."
                               : body.reduces() && level.per_row() ? "row."
                                                                   : "";
  switch (v.kind) {
    case Kind::input: return fmt::format("{}x{}", row, v.number);
    case Kind::index: return fmt::format("{}n{}", row, v.number);
    case Kind::reduction:
    case Kind::column_reduction:
    case Kind::contraction:
    case Kind::arg: return fmt::format("{}r{}", row, value);
    default: return fmt::format("{}v{}", row, value);
  }
}

std::string converted(const Body& body, int value, DType type) {
  const std::string name = name_of_value(body, value);
  return register_dtype(body.value(value).dtype) == register_dtype(type)
             ? name
             : fmt::format("narrow<{}>({})", register_name(type), name);
}

namespace {

std::string parameters(const BodyValue& value) {
  std::string text;
  for (std::size_t i = 0; i < value.operands.size(); ++i) {
    const std::string_view type = value.select && i == 0 ? "bool" : "T";
    text += fmt::format("{}{} {}", i ? ", " : "", type, static_cast<char>('a' + i));
  }
  return text;
}

// The number of the first value with the same function: equal expressions share one.
std::size_t function_of(const Body& body, std::size_t number) {
  const BodyValue& value = body.values[number];
  for (std::size_t i = 0; i < number; ++i) {
    const BodyValue& other = body.values[i];
    if (other.kind == value.kind && other.expression == value.expression &&
        other.operands.size() == value.operands.size() && other.select == value.select &&
        (other.dtype == boolean) == (value.dtype == boolean)) {
      return i;
    }
  }
  return number;
}

}  // namespace

std::string function_name(const Body& body, int value) {
  return fmt::format("op{}", function_of(body, static_cast<std::size_t>(value)));
}

namespace {

std::string call_of(const Body& body, int number) {
  const BodyValue& value = body.value(number);
  std::string arguments;
  for (std::size_t k = 0; k < value.operands.size(); ++k) {
    arguments += fmt::format(
        "{}{}", k ? ", " : "",
        converted(body, value.operands[k], value.select && k == 0 ? boolean : value.type));
  }
  if (value.expression.is_guarded()) arguments += ", guard";
  std::string call =
      fmt::format("{}<{}>({})", function_name(body, number), register_name(value.type), arguments);
  if (value.dtype != boolean && register_dtype(value.dtype) != register_dtype(value.type)) {
    call = fmt::format("static_cast<{}>({})", register_name(value.dtype), call);
  }
  return call;
}

bool is_of_row(const Body& body, int number) {
  return body.reduces() && levels_of(body)[static_cast<std::size_t>(number)].per_row();
}

// The address that a value of an element or of a row reads through.
std::string address_of(const Body& body, int number) {
  return fmt::format("{}g{}", is_of_row(body, number) ? "row." : "", body.value(number).number);
}

std::string draw_of(const Body& body, int number) {
  const BodyValue& value = body.value(number);
  // Halves are drawn as f32: uniform with fewer bits, normal then rounded.
  const bool normal = value.draw == Algebra::normal_draw;
  const std::string_view drawn = normal && is_half(value.dtype) ? "f32" : name_of(value.dtype);
  const std::string place = fmt::format("u64({} + {})", name_of_value(body, value.operands[1]),
                                        name_of_value(body, value.operands[2]));
  const std::string from =
      fmt::format("{}, {}", address_of(body, number), name_of_value(body, value.operands[0]));
  const bool has_threshold = value.draw == Algebra::bernoulli_draw;
  const std::string function =
      has_threshold ? std::string("brrr_bernoulli")
                    : fmt::format("brrr_{}_{}", normal ? "normal" : "uniform", drawn);
  const std::string last =
      has_threshold ? fmt::format(", u32({})", name_of_value(body, value.operands[3])) : "";
  if (is_of_row(body, number)) {
    return fmt::format("{0}(brrr_block_of_draw({1}, {2} / {3}), {2}{4})", function, from, place,
                       draws_of_block(value.dtype), last);
  }
  return fmt::format("(caches.v{0}.find({1}, {2}), {3}(caches.v{0}.block, caches.v{0}.word{4}))",
                     number, from, place, function, last);
}

std::string check_of(const Body& body, const BodyValue& value, bool again) {
  const auto operand = [&](std::size_t k) {
    return converted(body, value.operands[k], value.type);
  };
  const std::string position = converted(body, value.operands.back(), i64);
  if (value.kind == Kind::index_check) {
    return again ? fmt::format("index_within({}, {})", operand(0), operand(1))
                 : fmt::format("checked_index(sink{}, {}, {}, {})", value.number, position,
                               operand(0), operand(1));
  }
  const std::string given = name_of_value(body, value.operands[0]);
  return again ? given
               : fmt::format("checked_range(sink{}, {}, {}, {}, {}, {})", value.number, position,
                             given, operand(0), operand(1), operand(2));
}

}  // namespace

std::string functions(const Body& body) {
  std::string text;
  for (std::size_t i = 0; i < body.values.size(); ++i) {
    const BodyValue& value = body.values[i];
    const auto function = [&](std::string_view result, std::string_view name,
                              std::string_view arguments, std::string_view expression,
                              bool guarded = false) {
      text += fmt::format("template <class T{}>\nBRRR_FN {} {}{}({}{}) {{\n  return {};\n}}\n",
                          guarded ? ", class Guard" : "", result, name, i, arguments,
                          guarded ? ", Guard& guard" : "", expression);
    };
    switch (value.kind) {
      case Kind::expression:
        if (function_of(body, i) == i)
          function(value.dtype == boolean ? "bool" : "T", "op", parameters(value),
                   value.expression.text(), value.expression.is_guarded());
        break;
      case Kind::reduction:
      case Kind::column_reduction:
        function("T", "map", "T a", value.expression.text());
        function("T", "identity", "", value.identity.text());
        function("T", "combine", "T x, T y", value.combine.text());
        function("T", "finish", "T x, T n", value.finish.text());
        break;
      case Kind::arg: function("bool", "before", "T a, T b", value.expression.text()); break;
      default: break;
    }
  }
  return text;
}

std::string computation(const Body& body, int number, bool again) {
  const BodyValue& value = body.value(number);
  std::string text;
  switch (value.kind) {
    case Kind::expression: text = call_of(body, number); break;
    case Kind::gathered:
      text = fmt::format("widen({}[{}])", address_of(body, number),
                         converted(body, value.operands[0], i64));
      break;
    case Kind::draw: text = draw_of(body, number); break;
    case Kind::index_check:
    case Kind::range_check: return check_of(body, value, again);
    default: return name_of_value(body, number);
  }
  if (is_rounded(body, number)) text = fmt::format("rounded<{}>({})", c_name(value.dtype), text);
  return text;
}

std::string statements(const Body& body, const std::vector<int>& values, int pass) {
  std::string text;
  const std::vector<Level> levels = levels_of(body);
  for (const int i : values) {
    const BodyValue& value = body.value(i);
    if (value.kind == Kind::input || value.kind == Kind::index || is_reduction(value)) continue;
    const std::string name = name_of_value(body, i);
    const Level& level = levels[static_cast<std::size_t>(i)];
    const bool is_field = level.of_columns || (body.reduces() && level.per_row());
    const std::string type = is_field ? "" : fmt::format("const {} ", register_name(value.dtype));
    text += fmt::format("  {}{} = {};\n", type, name, computation(body, i, level.pass < pass));
  }
  return text;
}

std::string within_bounds(const Body& body, std::size_t input, const NameOf& coordinate) {
  std::string text;
  for (const Body::Bound& bound : body.inputs[input].bounds) {
    text += fmt::format("{}within({}, s{}, s{})", text.empty() ? "" : " && ",
                        coordinate(static_cast<std::size_t>(bound.index)), bound.low, bound.high);
  }
  return text;
}

bool is_address(const Body& body, std::size_t input) {
  return std::any_of(body.values.begin(), body.values.end(), [input](const BodyValue& value) {
    return (value.kind == Kind::gathered || value.kind == Kind::draw) &&
           value.number == static_cast<int>(input);
  });
}

std::vector<int> draws_of_elements(const Body& body) {
  std::vector<int> draws;
  for (int i = 0; i < static_cast<int>(body.values.size()); ++i) {
    if (body.value(i).kind == Kind::draw && !is_of_row(body, i)) draws.push_back(i);
  }
  return draws;
}

namespace {

// Inputs that are the state of a generator.
std::vector<std::size_t> generators_of_elements(const Body& body) {
  std::vector<std::size_t> inputs;
  for (const int draw : draws_of_elements(body)) {
    const auto input = static_cast<std::size_t>(body.value(draw).number);
    if (std::ranges::find(inputs, input) == inputs.end()) inputs.push_back(input);
  }
  return inputs;
}

}  // namespace

std::string draw_caches(const Body& body, const Schedule& schedule) {
  std::string fields;
  for (const int draw : draws_of_elements(body)) {
    const int block = draws_of_block(body.value(draw).dtype);
    fields += schedule.whole_blocks && schedule.width < block
                  ? fmt::format("  brrr_next_block<{}, {}> v{};\n", block, schedule.width, draw)
                  : fmt::format("  brrr_{}_block<{}> v{};\n",
                                schedule.whole_blocks ? "next" : "cached", block, draw);
  }
  return fields.empty() ? "" : fmt::format("struct DrawCaches {{\n{}}};\n", fields);
}

bool is_of_rows(const Body& body, std::size_t input) {
  return body.reduces() && body.inputs[input].scope <= Body::Scope::row;
}

namespace {

// Of each element: inputs and addresses, then coordinates.
std::string of_element(const Body& body, const NameOf& element, const NameOf& address,
                       const NameOf& coordinate) {
  std::string text;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (is_address(body, i)) {
      text += address(i) + ", ";
    } else if (!is_of_rows(body, i)) {
      text += element(i) + ", ";
    }
  }
  for (std::size_t i = 0; i < body.indices.size(); ++i) {
    if (!(body.reduces() && body.indices[i] <= Body::Scope::row)) text += coordinate(i) + ", ";
  }
  return text;
}

}  // namespace

std::string element_parameters(const Body& body) {
  return std::string(draws_of_elements(body).empty() ? "" : "DrawCaches& caches, ") +
         of_element(
             body,
             [&](std::size_t i) {
               return fmt::format("{} x{}", register_name(body.inputs[i].dtype), i);
             },
             [&](std::size_t i) {
               return fmt::format("const {}* g{}", c_name(body.inputs[i].dtype), i);
             },
             [](std::size_t i) { return fmt::format("i64 n{}", i); });
}

std::string element_arguments(const Body& body, const NameOf& element, const NameOf& address,
                              const NameOf& coordinate) {
  const std::vector<std::size_t> generators = generators_of_elements(body);
  const auto is_generator = [&](std::size_t i) {
    return std::ranges::find(generators, i) != generators.end();
  };
  return (generators.empty() ? "" : "caches, ") +
         of_element(
             body, element,
             [&](std::size_t i) {
               return is_generator(i) ? fmt::format("state{}", i) : address(i);
             },
             coordinate);
}

std::string_view unrolled(const Body& body, int copies) {
  constexpr int kFunction = 60, kMost = 6000;  // instructions, about
  int each = 0;
  for (const BodyValue& value : body.values) {
    if (value.kind == Kind::expression)
      each += value.expression.flops() + kFunction * value.expression.functions();
  }
  return each * copies <= kMost ? "#pragma unroll" : "#pragma unroll 1";
}

std::string numbered(std::string_view name, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += fmt::format("{}{}, ", name, i);
  return text;
}

std::string constant_parameters(const Body& body) {
  std::string text;
  for (std::size_t i = 0; i < body.scalars.size(); ++i)
    text += fmt::format("{} s{}, ", c_name(body.scalars[i]), i);
  for (std::size_t i = 0; i < body.checks.size(); ++i) text += fmt::format("FaultSink sink{}, ", i);
  return text;
}

std::string constant_arguments(const Body& body) {
  return numbered("s", body.scalars.size()) + numbered("sink", body.checks.size());
}

namespace {

// Pointers to outputs and inputs, constants, and the last parameters, which an entry takes by value
// and a function by reference where they are large.
std::string kernel_parameters(const Body& body, const Kernel& kernel, bool of_entry,
                              std::string_view suffix) {
  std::string text;
  std::string_view comma;
  const auto add = [&](std::string_view type, std::string_view name) {
    text += fmt::format("{}{} {}{}", comma, type, name, suffix);
    comma = ", ";
  };
  const auto add_all = [&](std::size_t count, std::string_view name, auto type) {
    for (std::size_t i = 0; i < count; ++i) add(type(i), fmt::format("{}{}", name, i));
  };
  add_all(body.outputs.size(), "out",
          [&](std::size_t i) { return fmt::format("{}*", c_name(body.outputs[i].dtype)); });
  add_all(kernel.reads_inputs ? body.inputs.size() : 0, "in",
          [&](std::size_t i) { return fmt::format("const {}*", c_name(body.inputs[i].dtype)); });
  add_all(body.scalars.size(), "s", [&](std::size_t i) { return c_name(body.scalars[i]); });
  add_all(body.checks.size(), "sink", [](std::size_t) { return "FaultSink"; });
  for (const auto& [type, name, large] : kernel.last) {
    add(fmt::format("{}{}{}",
                    !large     ? ""
                    : of_entry ? "const __grid_constant__ "
                               : "const ",
                    type, large && !of_entry ? "&" : ""),
        name);
  }
  return text;
}

}  // namespace

std::string function_of(const Body& body, const Kernel& kernel) {
  std::string states;
  for (const std::size_t i : generators_of_elements(body)) {
    if (kernel.reads_inputs)  // once a thread: stores may alias it as far as the compiler knows
      states += fmt::format("  const i64 state{0}[] = {{in{0}[0], in{0}[1], in{0}[2]}};\n", i);
  }
  return fmt::format(
      "template <class Block>\nBRRR_FN void {}(Block block, void* memory, {}) {{\n{}{}}}\n",
      kernel.function, kernel_parameters(body, kernel, false, ""), states, kernel.statements);
}

std::string entry_parameters(const Body& body, const Kernel& kernel, std::string_view suffix) {
  return kernel_parameters(body, kernel, true, suffix);
}

std::string entry_arguments(const Body& body, const Kernel& kernel, std::string_view suffix) {
  std::string text;
  const auto add_all = [&](std::size_t count, std::string_view name) {
    for (std::size_t i = 0; i < count; ++i) text += fmt::format("{}{}{}, ", name, i, suffix);
  };
  add_all(body.outputs.size(), "out");
  add_all(kernel.reads_inputs ? body.inputs.size() : 0, "in");
  add_all(body.scalars.size(), "s");
  add_all(body.checks.size(), "sink");
  for (const Kernel::Parameter& parameter : kernel.last)
    text += fmt::format("{}{}, ", parameter.name, suffix);
  text.resize(text.size() - 2);
  return text;
}

std::string kernel_of(const Body& body, const Kernel& kernel) {
  return function_of(body, kernel) +
         fmt::format(
             "extern \"C\" __global__ void __launch_bounds__({}){} {}{}({}) {{\n"
             "  wait_for_previous_kernel();\n  start_next_kernel_in_one_wave();\n{}  "
             "{}(LaunchedBlock(), {}, {});\n}}\n",
             kernel.threads,
             kernel.cluster > 1 ? fmt::format(" __cluster_dims__(1, {}, 1)", kernel.cluster) : "",
             body.name, kernel.suffix, entry_parameters(body, kernel),
             kernel.memory.empty()
                 ? ""
                 : fmt::format("  __shared__ alignas(16) char memory[sizeof({})];\n",
                               kernel.memory),
             kernel.function, kernel.memory.empty() ? "nullptr" : "memory",
             entry_arguments(body, kernel));
}

std::string of_body(const Body& body, std::string_view text) {
  return fmt::format("namespace of_{0} {{\n{1}}}  // namespace of_{0}\n", body.name, text);
}

}  // namespace pieces

bool draws(const Body& body) {
  return std::any_of(body.values.begin(), body.values.end(),
                     [](const BodyValue& value) { return value.kind == Kind::draw; });
}

const char* misfit_of(const Body& body, const Schedule& schedule) {
  const auto power_of_two = [](int n) { return n > 0 && (n & (n - 1)) == 0; };
  const std::size_t passes = pieces::passes_of(body).size();
  if (body.has_bounds() && schedule.walk == Walk::flat) return "a walk that knows coordinates";
  if (schedule.reduces() != body.reduces()) return "a walk for its body";
  if (schedule.rank < 1 || schedule.rank > kMaxDims || schedule.reduced_rank < 1 ||
      schedule.reduced_rank > kMaxDims)
    return "ranks of 1 to 8";
  if (!power_of_two(schedule.width) || schedule.width > 16 || schedule.unroll < 1)
    return "a width of 1 to 16, unrolled at least once";
  if (schedule.threads % 32 != 0 || schedule.threads > 1024) return "blocks of whole warps";
  if (!power_of_two(schedule.lanes) || schedule.lanes > schedule.threads)
    return "lanes that are a power of two";
  if (schedule.walk == Walk::tiled && schedule.rank < 2) return "two dimensions to transpose";
  if (schedule.join_lanes > 0 && (passes > 1 || body.reduces_columns()))
    return "rows that are not split among blocks";
  if (schedule.cluster != 1 &&
      (!power_of_two(schedule.cluster) || schedule.cluster > 8 || passes > 1 ||
       schedule.walk != Walk::columns || schedule.join_lanes > 0))
    return "clusters of at most 8 blocks, that share columns";
  if (schedule.keeps && passes == 1 && !body.reduces_columns())
    return "rows that are passed over again";
  if (schedule.reduces_columns != body.reduces_columns() ||
      (schedule.reduces_columns && (schedule.walk != Walk::rows || !schedule.keeps)))
    return "rows in registers beside reductions of columns";
  if (shared_bytes(body, schedule) > kSharedBytes)
    return "accumulators and tiles that fit into shared memory";
  return nullptr;
}

std::int64_t shared_bytes(const Body& body, const Schedule& schedule) {
  constexpr std::size_t kMostWarps = 32;
  const auto threads = static_cast<std::size_t>(schedule.threads);
  std::size_t bytes = 0;
  if (schedule.walk == Walk::columns) {
    bytes = partial_size(body) * threads * static_cast<std::size_t>(schedule.width);
  } else if (schedule.walk == Walk::rows) {
    // As render_reduction() has it where a row takes several warps.
    const bool is_joined = schedule.reduces_columns && schedule.threads > schedule.lanes;
    bytes = 2 * std::max(partial_size(body) * kMostWarps,
                         is_joined ? column_partial_size(body) * threads : 0);
  } else if (schedule.walk == Walk::tiled) {
    const auto add = [&](std::size_t operand, DType dtype) {
      if (!(schedule.transposed >> operand & 1)) return;
      bytes += static_cast<std::size_t>(
          tile_bytes(schedule.tile, static_cast<std::int64_t>(size_of(dtype))));
    };
    for (std::size_t o = 0; o < body.outputs.size(); ++o) add(o, body.outputs[o].dtype);
    for (std::size_t i = 0; i < body.inputs.size(); ++i)
      add(body.outputs.size() + i, body.inputs[i].dtype);
  }
  return static_cast<std::int64_t>(bytes);
}

std::string render_cuda(const Body& body, const Schedule& schedule) {
  verify(body);
  if (const char* const what = misfit_of(body, schedule))
    fail("[{}] expected a schedule with {}", body.name, what);
  return (body.checks.empty() ? "" : sources::faults_inl) +
         (schedule.reduces() ? render_reduction(body, schedule) : render_pointwise(body, schedule));
}

}  // namespace brrr::jit
