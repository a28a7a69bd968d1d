// Owns the source of one pass over a tile of elements. Its values are computed in stages, each a
// loop over the tile (cpu_lanes.h). What a later stage needs stays in an array of the tile.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "brrr/ops/jit/cpu_lanes.h"
#include "brrr/ops/jit/render_cpu_tile.h"

namespace brrr::jit {

namespace {

using namespace pieces;
using Kind = BodyValue::Kind;

// The source of one pass over a tile.
class Tile {
 public:
  Tile(const Body& body, const RowPass& pass, std::size_t number, Walked walked,
       const KeptValues& known)
      : body_(body),
        pass_(pass),
        number_(static_cast<int>(number)),
        is_last_(number + 1 == passes_of(body).size()),
        walked_(std::move(walked)),
        known_(known) {
    if (!known_.empty())
      pass_.elements = elements_without(body_, pass_, [&](int value) { return is_known(value); });
    stages_ = stages_of(body_, pass_.elements, [&](int value) { return is_read(value); });
    for (const auto& [value, stage] : stages_) last_ = std::max(last_, stage);
  }

  // Inputs that all elements share.
  std::string constants() const {
    std::string text;
    for (const int value : pass_.elements) {
      const BodyValue& v = body_.value(value);
      if (!is_shared(value) || v.kind != Kind::input) continue;
      text +=
          fmt::format("  const {0} x{1} = widen(in{1}[0]);\n", register_name(v.dtype), v.number);
    }
    return text;
  }

  // Arrays for all that is kept beyond its stage; they live as long as the function.
  std::string buffers() const {
    std::string text;
    const auto buffer = [&](DType dtype, const std::string& name, bool of_chunk) {
      text += fmt::format("  alignas(64) {} b_{}[{}];\n", array_name(dtype), name,
                          walked_.in_chunks && of_chunk ? "kTile" : "kMost");
    };
    for (const int value : pass_.elements) {
      if (needs_array(value) && !is_known(value) && !is_shared(value))
        buffer(body_.value(value).dtype, array(value), !outlives_chunk(value));
    }
    for (const std::size_t input : addressed())
      buffer(i64, fmt::format("g{}_{}", number_, input), true);
    for (const int value : of_rows()) {
      text += fmt::format("  alignas(64) {} b_{}[kMost + kWidth];\n",
                          array_name(type_of_row_value(value)), spread_array(value));
    }
    for (const int r : pass_.reductions) {
      if (is_converted(r)) buffer(body_.value(r).type, operand_array(r), false);
    }
    for (const int o : pass_.outputs) {
      if (is_converted_output(o)) buffer(output(o).dtype, output_array(o), true);
    }
    return text;
  }

  // Values of rows, to arrays with one for each element of the tile.
  std::string spread() const {
    std::string loads, repeats, text;
    for (const int value : of_rows()) {
      text += fmt::format("  {0}* a_{1} = b_{1};\n", array_name(type_of_row_value(value)),
                          spread_array(value));
      loads += fmt::format("b_{}[e] = {};\n", spread_array(value), name_of_value(body_, value));
      repeats += fmt::format("b_{0}[first + e] = b_{0}[e];\n", spread_array(value));
    }
    if (text.empty()) return "";
    if (walked_.by_columns) {
      return text + fmt::format(
                        "  for (i64 e = 0; e < kWidth; ++e) {{\n    const Row& row = rows[e];\n{}  "
                        "}}\n  for (i64 first = kWidth; first < kMost; first += kWidth) {{\n    "
                        "for (i64 e = 0; "
                        "e < kWidth; ++e) {{\n{}    }}\n  }}\n",
                        loads, repeats);
    }
    return text + fmt::format(
                      "  for (i64 e = 0, line = 0; line < lines; ++line) {{\n    const Row& row = "
                      "rows[line];\n    for (; e < (line + 1) * kWidth; ++e) {{\n{0}    }}\n  "
                      "}}\n  for (i64 e = n; e < m; ++e) {{\n    const Row& row = rows[0];\n{0}  "
                      "}}\n",
                      loads);
  }

  // From operands in memory to arrays of all values: `m` elements, `n` and the padding.
  std::string statements_of_tile() const {
    std::string text = reads();
    for (int stage = 0; stage <= last_; ++stage) text += stage % 2 ? lanes(stage) : loop(stage);
    return text + conversions();
  }

  // Outputs in memory, which may be that of inputs: after everything that reads them.
  std::string writes() const {
    std::string first, text;
    for (const int o : pass_.outputs) {
      const std::size_t operand = output_operand(o);
      const std::string to = output_pointer(o);
      (is_read_late(output(o).value) ? first : text) +=
          walked_.is_direct(operand) ? fmt::format("  write_direct({}, n, a_{});\n", to, source(o))
          : walked_.has_lines ? fmt::format("  write_lines<kWidth>({}, {}, lines, a_{});\n", to,
                                            strides_of_lines(operand), source(o))
          : walked_.linear ? fmt::format("  write_strided({}, {}.inner_stride({}), n, a_{});\n", to,
                                         walked_.space, operand, source(o))
                           : fmt::format("  write({}, {}, {}, {}, n, a_{});\n", walked_.space,
                                         operand, walked_.place, to, source(o));
    }
    return first + text;
  }

  // The array of what a reduction reduces.
  std::string reduced(int reduction) const {
    const int value = body_.value(reduction).operands[0];
    const std::string_view prefix = walked_.in_chunks ? "b_" : "a_";
    if (is_converted(reduction)) return fmt::format("{}{}", prefix, operand_array(reduction));
    if (!walked_.in_chunks || outlives_chunk(value) || is_known(value))
      return fmt::format("{}{}", prefix, array(value));
    const auto input = static_cast<std::size_t>(body_.value(value).number);
    return fmt::format("(in{} + base[{}])", input, input_operand(input));
  }

  // The values that later passes over the same tile read from arrays: inputs, and values that need
  // more than exact arithmetic.
  KeptValues kept() const {
    KeptValues values = known_;
    for (const int value : pass_.elements) {
      if (has_own_array(value) && is_kept(value)) values[value] = array(value);
    }
    return values;
  }

 private:
  bool is_known(int value) const { return known_.contains(value); }
  // Whether later passes find it in its array. They read again what chunks read where it is.
  bool is_kept(int value) const {
    return !is_last_ && !is_shared(value) && !(walked_.in_chunks && is_in_memory(value)) &&
           (body_.value(value).kind != Kind::expression || needs_lanes(body_, value));
  }
  // Whether it is an input whose elements are adjacent, of a type that registers have.
  bool is_in_memory(int value) const {
    const BodyValue& v = body_.value(value);
    return v.kind == Kind::input && array_name(v.dtype) == c_name(v.dtype) &&
           walked_.is_direct(input_operand(static_cast<std::size_t>(v.number)));
  }
  // Whether its array has all elements of the tile, not those of one chunk: later passes or
  // reductions read it. Reductions read inputs in memory, unless outputs are stored before.
  bool outlives_chunk(int value) const {
    const bool is_reduced =
        std::any_of(pass_.reductions.begin(), pass_.reductions.end(),
                    [&](int r) { return body_.value(r).operands[0] == value && !is_converted(r); });
    return walked_.in_chunks &&
           (is_kept(value) ||
            (is_reduced && !(is_in_memory(value) && pass_.outputs.empty() && !walked_.has_lines)));
  }
  // Its buffer, or the chunk's part of that.
  std::string buffer_of(const std::string& name, bool of_tile) const {
    return fmt::format("b_{}{}", name, walked_.in_chunks && of_tile ? " + at" : "");
  }
  std::string buffer_of(int value) const {
    return buffer_of(array(value), outlives_chunk(value) || is_known(value));
  }
  // Whether it is one number for all elements of a body without rows.
  bool is_shared(int value) const {
    const BodyValue& v = body_.value(value);
    return !body_.reduces() && v.kind == Kind::input &&
           body_.inputs[static_cast<std::size_t>(v.number)].scope == Body::Scope::one;
  }
  const Body::TensorOperand& output(int o) const {
    return body_.outputs[static_cast<std::size_t>(o)];
  }
  std::string array(int value) const {
    const auto known = known_.find(value);
    return known != known_.end() ? known->second : fmt::format("v{}_{}", number_, value);
  }
  std::string operand_array(int r) const { return fmt::format("r{}_{}", number_, r); }
  std::string output_array(int o) const { return fmt::format("y{}_{}", number_, o); }
  std::string source(int o) const {
    return is_converted_output(o) ? output_array(o) : array(output(o).value);
  }
  // Pointwise layouts have outputs first, those of reductions last.
  std::size_t output_operand(int o) const {
    return static_cast<std::size_t>(o) + (body_.reduces() ? body_.reads() : 0);
  }
  std::size_t input_operand(std::size_t i) const {
    return i + (body_.reduces() ? 0 : body_.outputs.size());
  }

  // Values of rows that this pass reads, where a tile has several rows.
  std::vector<int> of_rows() const {
    std::vector<int> list;
    if (!walked_.has_lines) return list;
    const auto add = [&](int value) {
      if (!is_of_elements(value) && body_.value(value).kind != Kind::scalar &&
          std::find(list.begin(), list.end(), value) == list.end())
        list.push_back(value);
    };
    for (const int value : pass_.elements) {
      if (is_known(value)) continue;
      for (const int operand : body_.value(value).operands) add(operand);
    }
    for (const int r : pass_.reductions) add(body_.value(r).operands[0]);
    for (const int o : pass_.outputs) add(output(o).value);
    return list;
  }
  std::string spread_array(int value) const { return fmt::format("w{}_{}", number_, value); }
  DType type_of_row_value(int value) const { return type_of_result(body_.value(value)); }
  // Within a line, and from line to line.
  std::string strides_of_lines(std::size_t operand) const {
    return fmt::format("{}.inner_stride({}), {}[{}]", walked_.space, operand, walked_.step,
                       operand);
  }

  // Coordinates need their base, values of rows and scalars have no array.
  bool has_own_array(int value) const {
    return is_of_elements(value) && body_.value(value).kind != Kind::index && !is_shared(value);
  }
  bool is_of_elements(int value) const { return stages_.contains(value); }
  bool is_read(int value) const {
    const Kind kind = body_.value(value).kind;
    return kind == Kind::input || kind == Kind::index || kind == Kind::draw || is_known(value);
  }
  bool converts(int value, DType type) const {
    return register_dtype(body_.value(value).dtype) != register_dtype(type);
  }
  bool is_converted(int r) const {
    const BodyValue& value = body_.value(r);
    return converts(value.operands[0], value.type) || !has_own_array(value.operands[0]);
  }
  bool is_converted_output(int o) const {
    return converts(output(o).value, output(o).dtype) || !has_own_array(output(o).value);
  }

  bool needs_array(int value) const {
    if (is_read(value)) return true;
    if (walked_.linear && is_kept(value)) return true;
    for (const int reader : pass_.elements) {
      const std::vector<int>& operands = body_.value(reader).operands;
      if (stages_.at(reader) != stages_.at(value) &&
          std::find(operands.begin(), operands.end(), value) != operands.end())
        return true;
    }
    return std::any_of(pass_.reductions.begin(), pass_.reductions.end(),
                       [&](int r) { return body_.value(r).operands[0] == value; }) ||
           std::any_of(pass_.outputs.begin(), pass_.outputs.end(),
                       [&](int o) { return output(o).value == value; });
  }
  // Inputs that elements of this pass read through their addresses.
  std::vector<std::size_t> addressed() const {
    std::vector<std::size_t> list;
    for (const int value : pass_.elements) {
      const BodyValue& v = body_.value(value);
      const auto input = static_cast<std::size_t>(v.number);
      if (v.kind == Kind::gathered && !is_known(value) &&
          std::find(list.begin(), list.end(), input) == list.end())
        list.push_back(input);
    }
    return list;
  }

  // A pointer to an operand at the tile's base. Those of bool are read and written as `bytes`.
  std::string pointer(std::string_view name, DType dtype, std::string_view bytes,
                      std::size_t operand) const {
    const std::string at = fmt::format("{} + {}", name, walked_.offset(operand));
    return dtype == boolean ? fmt::format("reinterpret_cast<{}*>({})", bytes, at) : at;
  }
  std::string output_pointer(int o) const {
    return pointer(fmt::format("out{}", o), output(o).dtype, "u8", output_operand(o));
  }

  std::size_t index_operand(int index) const {
    return input_operand(body_.inputs.size() + static_cast<std::size_t>(index));
  }
  // ", {{index, base, low, high}, ...}" of an input with bounds.
  std::string bounds_of(std::size_t input) const {
    std::string text;
    for (const Body::Bound& bound : body_.inputs[input].bounds) {
      const std::size_t operand = index_operand(bound.index);
      text += fmt::format("{}{{{}, {}, s{}, s{}}}", text.empty() ? ", {" : ", ", operand,
                          walked_.offset(operand), bound.low, bound.high);
    }
    return text.empty() ? text : text + "}";
  }

  std::string reads() const {
    std::string text;
    for (const int value : pass_.elements) {
      const BodyValue& v = body_.value(value);
      const std::string name = array(value);
      const auto at = static_cast<std::size_t>(v.number);
      if (is_known(value) && walked_.in_chunks) {
        text += fmt::format("  const {}* a_{} = {};\n",
                            v.kind == Kind::index ? "i64" : array_name(v.dtype), name,
                            buffer_of(value));
      }
      if (is_known(value) || is_shared(value)) continue;
      if (v.kind == Kind::input) {
        const std::string bounds = bounds_of(at);
        const std::string from =
            pointer(fmt::format("in{}", at), v.dtype, "const u8", input_operand(at));
        const std::string call = bounds.empty()
                                     ? read_call(input_operand(at), from, outlives_chunk(value))
                                     : fmt::format("read_within({}, {}, {}, {}", walked_.space,
                                                   input_operand(at), walked_.place, from);
        text += fmt::format("  const {}* a_{} = {}, n, {}{});\n", array_name(v.dtype), name, call,
                            buffer_of(value), bounds);
      } else if (v.kind == Kind::index) {
        text += offsets_of(name, input_operand(body_.inputs.size() + at), buffer_of(value));
      } else if (v.kind == Kind::draw) {
        text += draw(value);
      } else if (needs_array(value)) {
        text += fmt::format("  {0}* a_{1} = {2};\n", array_name(v.dtype), name, place_of(value));
      }
    }
    for (const std::size_t input : addressed())
      text += offsets_of(fmt::format("g{0}_{1}", number_, input), input_operand(input),
                         fmt::format("b_g{}_{}", number_, input));
    return text;
  }
  // The elements of a draw in the tile. The generator is the same for all of them.
  std::string draw(int number) const {
    const BodyValue& v = body_.value(number);
    const bool uniform = v.draw == Algebra::uniform_draw,
               has_threshold = v.draw == Algebra::bernoulli_draw;
    std::string kind = uniform ? "UniformDouble" : "NormalDouble";
    if (v.dtype != f64) {
      const int bits = v.dtype == f32 ? 24 : v.dtype == f16 ? 11 : 8;
      kind = uniform ? fmt::format("UniformFloat<brrr_uniform_{}>", bits) : "NormalFloat";
    }
    if (has_threshold) kind = "Bernoulli";
    const auto coordinate = static_cast<std::size_t>(body_.value(v.operands[1]).number);
    return fmt::format(
        "  {0}* a_{1} = draw_tile<{2}>(in{3}, {4}, {5}, a_{6}, {7} + {8}, n, {10});\n{9}",
        array_name(v.dtype), array(number), kind, v.number, name_of_value(body_, v.operands[0]),
        has_threshold ? fmt::format("u32({})", name_of_value(body_, v.operands[3])) : "0",
        array(v.operands[1]), walked_.offset(input_operand(body_.inputs.size() + coordinate)),
        name_of_value(body_, v.operands[2]),
        is_rounded(body_, number)
            ? fmt::format("  BRRR_INDEPENDENT_ITERATIONS\n  for (i64 e = 0; e < m; ++e) a_{0}[e] = "
                          "rounded<{1}>(a_{0}[e]);\n",
                          array(number), c_name(v.dtype))
            : "",
        buffer_of(number));
  }
  // The start of a call, before its last arguments.
  std::string read_call(std::size_t operand, const std::string& from, bool copies) const {
    if (walked_.is_direct(operand))
      return fmt::format("{}({}", copies ? "read_copy" : "read_direct", from);
    if (walked_.has_lines) {
      return fmt::format("read_lines<kWidth>({}, {}, lines", from, strides_of_lines(operand));
    }
    if (walked_.linear)
      return fmt::format("read_strided({}, {}.inner_stride({})", from, walked_.space, operand);
    return fmt::format("read({}, {}, {}, {}", walked_.space, operand, walked_.place, from);
  }
  std::string offsets_of(const std::string& name, std::size_t operand,
                         const std::string& buffer) const {
    const std::string call =
        walked_.has_lines
            ? fmt::format("offsets_lines<kWidth>({}, lines", strides_of_lines(operand))
        : walked_.linear
            ? fmt::format("offsets_strided({}.inner_stride({})", walked_.space, operand)
            : fmt::format("offsets({}, {}, {}", walked_.space, operand, walked_.place);
    return fmt::format("  const i64* a_{} = {}, n, {});\n", name, call, buffer);
  }
  // Whether an input's own memory is read after the last stage.
  bool is_read_late(int value) const {
    return is_of_elements(value) && body_.value(value).kind == Kind::input && !is_shared(value);
  }
  bool has_late_reads() const {
    return std::any_of(pass_.outputs.begin(), pass_.outputs.end(),
                       [&](int o) { return is_read_late(output(o).value); }) ||
           std::any_of(pass_.reductions.begin(), pass_.reductions.end(),
                       [&](int r) { return is_read_late(body_.value(r).operands[0]); });
  }
  // A value of the last stage that is written as it is goes straight to memory: inputs, which may
  // be the same memory, have been read by then, those of this stage before any store. A stage of
  // Lanes of two types, which is two loops, would read some after stores of the first.
  std::string place_of(int value) const {
    if (has_late_reads() || is_two_loops(last_) || outlives_chunk(value)) return buffer_of(value);
    for (const int o : pass_.outputs) {
      if (output(o).value != value || is_converted_output(o) || stages_.at(value) != last_)
        continue;
      const std::size_t operand = output_operand(o);
      const std::string to = output_pointer(o);
      if (walked_.is_direct(operand))
        return fmt::format("destination_direct({}, n, b_{})", to, array(value));
      if (walked_.linear) break;
      return fmt::format("destination({}, {}, {}, {}, n, b_{})", walked_.space, operand,
                         walked_.place, to, array(value));
    }
    return buffer_of(value);
  }

  bool is_two_loops(int stage) const {
    std::set<DType> types;
    for (const int value : values_in(stage)) types.insert(register_dtype(body_.value(value).type));
    return stage % 2 == 1 && types.size() > 1;
  }

  std::vector<int> values_in(int stage) const {
    std::vector<int> list;
    for (const int value : pass_.elements) {
      if (stages_.at(value) == stage) list.push_back(value);
    }
    return list;
  }

  // Declares the inputs of `values` that are in arrays, under the names of statements.
  std::string loaded(const std::vector<int>& operands) const {
    std::string text;
    if (walked_.has_lines) {
      std::string fields;
      for (const int operand : operands) {
        if (is_of_elements(operand) || body_.value(operand).kind == Kind::scalar) continue;
        fields += fmt::format("    {} = a_{}[e];\n", name_of_value(body_, operand),
                              spread_array(operand));
      }
      if (!fields.empty()) text += "    Row row;\n" + fields;
    } else if (body_.reduces() && walked_.by_columns) {
      text += "    const Row& row = rows[e];\n";
    }
    std::vector<int> known;
    for (const int operand : operands) {
      if (!is_of_elements(operand) || is_shared(operand) ||
          std::find(known.begin(), known.end(), operand) != known.end())
        continue;
      known.push_back(operand);
      const BodyValue& v = body_.value(operand);
      const std::string base =
          v.kind == Kind::index
              ? " + " + walked_.offset(
                            input_operand(body_.inputs.size() + static_cast<std::size_t>(v.number)))
              : "";
      text += fmt::format("    const {} {} = a_{}[e]{};\n", register_name(v.dtype),
                          name_of_value(body_, operand), array(operand), base);
    }
    return text;
  }

  std::string loop(int stage) const {
    const std::vector<int> values = values_in(stage);
    if (values.empty()) return "";
    std::vector<int> operands;
    std::set<std::size_t> known;  // addressed inputs
    std::string text, stores;
    bool is_plain = true;
    for (const int value : values) {
      const BodyValue& v = body_.value(value);
      for (const int operand : v.operands) {
        if (!is_of_elements(operand) || stages_.at(operand) != stage) operands.push_back(operand);
      }
      const auto input = static_cast<std::size_t>(v.number);
      if (v.kind == Kind::gathered && known.insert(input).second) {
        text += fmt::format("    const {}* g{} = in{} + {} + a_g{}_{}[e];\n",
                            c_name(body_.inputs[input].dtype), input, input,
                            walked_.offset(input_operand(input)), number_, input);
      }
      is_plain &= v.kind == Kind::expression;
      if (needs_array(value)) {
        stores += fmt::format("    a_{}[e] = {};\n", array(value), name_of_value(body_, value));
      }
    }
    return fmt::format("{}  for (i64 e = 0; e < m; ++e) {{\n{}{}{}{}  }}\n",
                       is_plain ? "  BRRR_INDEPENDENT_ITERATIONS\n" : "", loaded(operands), text,
                       statements(body_, values, number_), stores);
  }

  // All operands are loaded before the first result is stored, which may be in the memory of one.
  std::string lanes(int stage) const {
    std::string text;
    for (const DType type : {f32, f64}) {
      std::set<int> known;  // operands
      std::string loads, statements, rounding;
      for (const int value : values_in(stage)) {
        const BodyValue& v = body_.value(value);
        if (register_dtype(v.type) != type) continue;
        std::string arguments;
        for (const int operand : v.operands) {
          if (!is_computed(operand, stage) && known.insert(operand).second) {
            loads += fmt::format("    const Lanes<{}> l{} = {};\n", c_name(type), operand,
                                 lane_operand(operand, type));
          }
          arguments += fmt::format("{}l{}", arguments.empty() ? "" : ", ", operand);
        }
        std::string call =
            fmt::format("{}<Lanes<{}>>({})", function_name(body_, value), c_name(type), arguments);
        const bool apart =
            v.dtype == bf16 && is_rounded(body_, value) && v.expression.functions() > 0;
        if (apart)
          rounding += fmt::format("  round_tile<{}>(a_{}, m);\n", c_name(v.dtype), array(value));
        if (is_rounded(body_, value) && !apart)
          call = fmt::format("rounded<{}>({})", c_name(v.dtype), call);
        statements += fmt::format("    const Lanes<{}> l{} = {};\n", c_name(type), value, call);
        if (needs_array(value))
          statements += fmt::format("    l{}.store(a_{} + e);\n", value, array(value));
      }
      if (!statements.empty()) {
        text += fmt::format("  for (i64 e = 0; e < m; e += Lanes<{}>::count) {{\n{}{}{}  }}\n",
                            c_name(type), loads, statements, prefetches());
      }
      text += rounding;
    }
    return text;
  }
  // Of the next row, while functions leave memory idle. The processor's own prefetches stop at the
  // end of a page.
  std::string prefetches() const {
    std::string text;
    if (walked_.step.empty() || walked_.has_lines) return text;
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      const std::size_t operand = input_operand(i);
      if (walked_.is_direct(operand)) {
        text += fmt::format("    __builtin_prefetch(in{} + {} + {}[{}] + e);\n", i,
                            walked_.offset(operand), walked_.step, operand);
      }
    }
    return text;
  }
  bool is_computed(int operand, int stage) const {
    return is_of_elements(operand) && !is_shared(operand) && stages_.at(operand) == stage;
  }
  std::string lane_operand(int operand, DType type) const {
    const BodyValue& v = body_.value(operand);
    if (walked_.has_lines && !is_of_elements(operand) && v.kind != Kind::scalar)
      return fmt::format("lanes_of<{}>(a_{} + e)", c_name(type), spread_array(operand));
    if (!is_of_elements(operand) || is_shared(operand)) {
      const std::string value = converted(body_, operand, type);
      if (!walked_.by_columns || v.kind == Kind::scalar || is_shared(operand))
        return fmt::format("Lanes<{}>::all({})", c_name(type), value);
      return fmt::format("lanes_by<{}>([&](i64 i) {{ const Row& row = rows[e + i]; return {}; }})",
                         c_name(type), value);
    }
    const std::string name = fmt::format("a_{}", array(operand));
    if (v.kind != Kind::index) return fmt::format("lanes_of<{}>({} + e)", c_name(type), name);
    return fmt::format(
        "lanes_by<{0}>([&](i64 i) {{ return narrow<{0}>({1}[e + i] + {2}); }})", c_name(type), name,
        walked_.offset(input_operand(body_.inputs.size() + static_cast<std::size_t>(v.number))));
  }

  // Of values that are reduced or written in another type than they have.
  std::string conversions() const {
    std::string text, arrays;
    std::vector<int> operands;
    const auto convert = [&](const std::string& name, int value, DType type, bool of_tile) {
      operands.push_back(value);
      arrays += fmt::format("  {}* a_{} = {};\n", array_name(type), name, buffer_of(name, of_tile));
      text += fmt::format("    a_{}[e] = {};\n", name, converted(body_, value, type));
    };
    for (const int r : pass_.reductions) {
      const BodyValue& value = body_.value(r);
      if (is_converted(r)) convert(operand_array(r), value.operands[0], value.type, true);
    }
    for (const int o : pass_.outputs) {
      if (is_converted_output(o)) convert(output_array(o), output(o).value, output(o).dtype, false);
    }
    if (text.empty()) return "";
    return fmt::format(
        "{}  BRRR_INDEPENDENT_ITERATIONS\n  for (i64 e = 0; e < m; ++e) {{\n{}{}  }}\n", arrays,
        loaded(operands), text);
  }

  const Body& body_;
  RowPass pass_;
  int number_;
  bool is_last_;
  Walked walked_;
  const KeptValues& known_;
  std::map<int, int> stages_;
  int last_ = -1;
};

}  // namespace

TileSource tile_source(const Body& body, const RowPass& pass, std::size_t number,
                       const Walked& walked, const KeptValues& known) {
  const Tile tile(body, pass, number, walked, known);
  TileSource text{
      tile.constants(), tile.buffers(), tile.spread(), tile.statements_of_tile(), tile.writes(), {},
      tile.kept()};
  for (const int r : pass.reductions) text.reduced[r] = tile.reduced(r);
  return text;
}

}  // namespace brrr::jit
