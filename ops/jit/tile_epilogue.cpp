#include "brrr/ops/jit/tile_epilogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>

#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/render.h"

namespace brrr::jit {
namespace {

using std::int64_t;
using namespace pieces;

// How the epilogue reaches an operand.
enum class Way : std::uint8_t {
  none,     // a factor
  staged,   // through shared memory, by the copy engine
  columns,  // an input of columns alone, read once for all rows of a thread
  lines,    // an output that reduces the lines of A
  matrix,   // element by element, by a stride of rows and one of columns
  direct,   // element by element, by its index in the results
};

bool has_pointer(Way way) { return way != Way::none && way != Way::staged; }
bool has_stride(Way way) { return way == Way::columns || way == Way::lines; }

struct Operands {
  std::vector<Way> ways;    // inputs, then outputs
  std::vector<int> staged;  // the operands of tile.inputs, then of tile.outputs
  TileEpilogue tile;
};

// A tensor of the results' shape as the copy engine takes it; none where its rows, its columns or a
// batch do not have one stride.
std::optional<MatrixStrides> matrix_of(const BodySpec& spec, const Roles& roles,
                                       const Dims& strides) {
  MatrixStrides matrix;
  const auto row = joint_stride(spec, strides, roles.rows),
             column = joint_stride(spec, strides, roles.columns);
  if (!row || !column) return {};
  matrix.row = *row, matrix.col = *column;
  for (const std::vector<int>& dims : roles.batches) {
    const auto batch = joint_stride(spec, strides, dims);
    if (!batch) return {};
    matrix.batch.push_back(*batch);
  }
  return matrix;
}

// The reduction of A's lines that an output stores; -1: it stores another value.
int line_reduction_of(const BodySpec& spec, const Contraction& c, std::size_t output) {
  using Kind = BodyValue::Kind;
  const Body& body = spec.body;
  const int number = body.outputs[output].value;
  const BodyValue& value = body.value(number);
  if (value.kind != Kind::reduction || value.type != f32) return -1;
  const BodyValue& reduced = body.value(value.operands[0]);
  return reduced.kind == Kind::input && reduced.number == c.a.first() ? number : -1;
}

bool moves(const Dims& strides, const std::vector<int>& dims) {
  return std::ranges::any_of(dims, [&](int d) { return strides[d] != 0; });
}

Operands operands_of(const BodyStrides& of, const Contraction& c, std::uint32_t aligned) {
  const BodySpec& spec = of.spec;
  const std::span<const Dims> strides = of.strides;
  const Body& body = spec.body;
  Operands operands;
  operands.tile.staged = body.outputs[0].dtype;
  for (std::size_t k = 0; k < strides.size(); ++k) {
    const bool is_input = k < body.inputs.size();
    const DType dtype =
        is_input ? body.inputs[k].dtype : body.outputs[k - body.inputs.size()].dtype;
    std::vector<MatrixStrides>& staged = is_input ? operands.tile.inputs : operands.tile.outputs;
    Way way = Way::direct;
    if (is_input && (c.a.reads(static_cast<int>(k)) || c.b.reads(static_cast<int>(k)))) {
      way = Way::none;
    } else if (!is_input && line_reduction_of(spec, c, k - body.inputs.size()) >= 0 &&
               can_reduce(c.product, c.dtype) && joint_stride(spec, strides[k], c.roles.rows)) {
      way = Way::lines;
      operands.tile.reduces = true;
    } else if (is_input && !moves(strides[k], c.roles.rows) &&
               std::ranges::none_of(c.roles.batches,
                                    [&](const auto& dims) { return moves(strides[k], dims); }) &&
               joint_stride(spec, strides[k], c.roles.columns)) {
      way = Way::columns;
    } else if (const auto matrix = matrix_of(spec, c.roles, strides[k]);
               matrix && dtype == operands.tile.staged &&
               staged.size() < (is_input ? kMostStagedInputs : kMostStagedOutputs) &&
               can_stage(c.product, dtype, *matrix, aligned >> k & 1)) {
      way = Way::staged;
      staged.push_back(*matrix);
      operands.staged.push_back(static_cast<int>(k));
    } else if (matrix && c.roles.batches.empty()) {
      way = Way::matrix;
    }
    operands.ways.push_back(way);
  }
  return operands;
}

// The source of struct Epilogue, in the order in which body_epilogue() fills it.
class EpilogueSource {
 public:
  EpilogueSource(const BodySpec& spec, const Contraction& c, const Operands& operands)
      : body_(spec.body), c_(c), operands_(operands) {}

  std::string text() const {
    const int product = body_.contraction();
    const BodyValue& value = body_.value(product);
    const std::string sum = is_rounded(body_, product)
                                ? fmt::format("rounded<{}>(sums[i])", c_name(value.dtype))
                                : "sums[i]";
    const bool locates = std::ranges::find(operands_.ways, Way::direct) != operands_.ways.end();
    return functions(body_) + row_struct(body_) +
           fmt::format(
               "struct Epilogue {{\n  typedef {} Staged;\n  static constexpr int kInputs = {}, "
               "kOutputs = {};\n  static constexpr u32 kTransposedInputs = {}, kTransposedOutputs "
               "= {};\n{}  i64 matrix, width;\n  Geometry<{}> results;\n{}{}"
               "  struct Columns {{\n{}  }};\n"
               "  BRRR_SCALAR_FN Columns columns(i32 batch, i32 col, i32 count) const {{\n"
               "    Columns columns = {{}};\n{}    return columns;\n  }}\n"
               "  BRRR_SCALAR_FN void apply(i32 batch, i32 line, i32 col, i32 count, const "
               "Columns& "
               "columns, const float (&sums)[2], const float (*inputs)[2], float (*outputs)[2]) "
               "const {{\n"
               "#pragma unroll\n    for (int i = 0; i < 2; ++i) {{\n      Row row;\n{}{}"
               "    {}  {} = {};\n{}{}    }}\n  }}\n}};\n",
               c_name(operands_.tile.staged), operands_.tile.inputs.size(),
               operands_.tile.outputs.size(), transposed(operands_.tile.inputs),
               transposed(operands_.tile.outputs), pointers(), body_.operands(), numbers(),
               reductions(), fields(), column_loads(),
               locates ? locate("i64(line) * width + ", "i < count") : "", loads(),
               statements(body_, values_of_rows(body_)), name_of_value(body_, product), sum,
               statements(body_, passes_of(body_).front().results), stores());
  }

 private:
  template <class F>
  void for_each(Way way, F f) const {
    for (std::size_t k = 0; k < operands_.ways.size(); ++k) {
      if (operands_.ways[k] == way) f(k);
    }
  }
  static std::uint32_t transposed(std::span<const MatrixStrides> staged) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < staged.size(); ++i)
      bits |= std::uint32_t{is_staged_transposed(staged[i])} << i;
    return bits;
  }
  bool is_input(std::size_t k) const { return k < body_.inputs.size(); }
  std::size_t output(std::size_t k) const { return k - body_.inputs.size(); }

  std::string pointers() const {
    std::string text;
    for (std::size_t k = 0; k < operands_.ways.size(); ++k) {
      if (!has_pointer(operands_.ways[k])) continue;
      text += is_input(k) ? fmt::format("  const {}* in{};\n", c_name(body_.inputs[k].dtype), k)
                          : fmt::format("  {}* out{};\n", c_name(body_.outputs[output(k)].dtype),
                                        output(k));
      if (has_stride(operands_.ways[k])) text += fmt::format("  i64 stride{};\n", k);
      if (operands_.ways[k] == Way::matrix) text += fmt::format("  i64 row{0}, col{0};\n", k);
    }
    return text;
  }
  std::string numbers() const {
    std::string text;
    for (std::size_t i = 0; i < body_.scalars.size(); ++i)
      text += fmt::format("  alignas(8) {} s{};\n", c_name(body_.scalars[i]), i);
    return text;
  }
  std::string fields() const {
    std::string text;
    for_each(Way::columns, [&](std::size_t k) {
      text += fmt::format("    {} x{}[2];\n", register_name(body_.inputs[k].dtype), k);
    });
    return text;
  }
  std::string locate(std::string_view row, std::string_view exists) const {
    return fmt::format(
        "      i64 offset[{0}];\n"
        "      locate<{1}, {2}>(results, {4} ? i64(batch) * matrix + {3}col + i : 0, offset);\n",
        body_.operands(), c_.results.rank, !is_narrow(c_.results), row, exists);
  }
  std::string column_loads() const {
    std::string loads;
    for_each(Way::columns, [&](std::size_t k) {
      loads += fmt::format(
          "      if (i < count) columns.x{0}[i] = widen(in{0}[(col + i) * stride{0}]);\n", k);
    });
    return loads.empty()
               ? ""
               : "#pragma unroll\n    for (int i = 0; i < 2; ++i) {\n" + loads + "    }\n";
  }
  // What reduces the lines of A, and stores the results of one.
  std::string reductions() const {
    std::string text;
    for_each(Way::lines, [&](std::size_t k) {
      const Body::TensorOperand& out = body_.outputs[output(k)];
      const int r = out.value;
      const std::string finished = fmt::format("finish{}<float>(joined, float(depth))", r);
      text += fmt::format(
          "  typedef float Sum;\n"
          "  static BRRR_SCALAR_FN Sum identity() {{ return identity{0}<float>(); }}\n"
          "  static BRRR_SCALAR_FN Sum map(float x) {{ return map{0}<float>(x); }}\n"
          "  static BRRR_SCALAR_FN Sum combine(Sum a, Sum b) {{ return combine{0}<float>(a, b); "
          "}}\n"
          "  BRRR_SCALAR_FN void store_line(i32 line, Sum joined, i32 depth) const {{\n"
          "    out{1}[line * stride{2}] = narrow<{3}>({4});\n  }}\n",
          r, output(k), k, c_name(out.dtype),
          is_rounded(body_, r)
              ? fmt::format("rounded<{}>({})", c_name(body_.value(r).dtype), finished)
              : finished);
    });
    return text;
  }
  // The subscript of an element that the epilogue reaches itself.
  std::string subscript(std::size_t k) const {
    return operands_.ways[k] == Way::direct ? fmt::format("offset[{}]", k)
                                            : fmt::format("line * row{0} + (col + i) * col{0}", k);
  }
  std::string loads() const {
    std::string text;
    int staged = 0;
    for (std::size_t k = 0; k < body_.inputs.size(); ++k) {
      switch (operands_.ways[k]) {
        case Way::staged:
          text += fmt::format("      row.x{} = inputs[{}][i];\n", k, staged++);
          break;
        case Way::columns: text += fmt::format("      row.x{0} = columns.x{0}[i];\n", k); break;
        case Way::matrix:
        case Way::direct:
          text += fmt::format("      row.x{0} = i < count ? widen(in{0}[{2}]) : {1}(0);\n", k,
                              register_name(body_.inputs[k].dtype), subscript(k));
          break;
        case Way::lines:
        case Way::none: break;
      }
    }
    return text;
  }
  std::string stores() const {
    std::string text;
    int staged = 0;
    for (std::size_t k = body_.inputs.size(); k < operands_.ways.size(); ++k) {
      if (operands_.ways[k] == Way::lines) continue;
      const Body::TensorOperand& out = body_.outputs[output(k)];
      const std::string value = converted(body_, out.value, out.dtype);
      text += operands_.ways[k] == Way::staged
                  ? fmt::format("      outputs[{}][i] = {};\n", staged++, value)
                  : fmt::format("      if (i < count) out{}[{}] = narrow<{}>({});\n", output(k),
                                subscript(k), c_name(out.dtype), value);
    }
    return text;
  }

  const Body& body_;
  const Contraction& c_;
  const Operands& operands_;
};

// Whether the copy engine would take a tensor of the results' shape if its rows or columns began,
// and ended, at multiples of 16 bytes: no other kernel has a better way to it.
bool has_unaligned_lines(const BodyStrides& of, const Contraction& c, std::size_t operand) {
  const Body& body = of.spec.body;
  const bool is_input = operand < body.inputs.size();
  const DType dtype =
      is_input ? body.inputs[operand].dtype : body.outputs[operand - body.inputs.size()].dtype;
  const auto matrix = matrix_of(of.spec, c.roles, of.strides[operand]);
  const auto size = static_cast<int64_t>(size_of(dtype));
  if (!matrix || dtype != body.outputs[0].dtype) return false;
  const auto ends = [size](int64_t count, int64_t stride) {
    return count * size % 16 != 0 || stride * size % 16 != 0;
  };
  return matrix->col == 1 ? ends(c.product.n, matrix->row)
                          : dtype == f32 && matrix->row == 1 && ends(c.product.m, matrix->col);
}

}  // namespace

bool tiles_support(const BodyStrides& of, const Contraction& c, bool aligned) {
  const Body& body = of.spec.body;
  if (!tiles_support(c.product, c.dtype, aligned)) return false;
  const std::vector<Way> ways = operands_of(of, c, ~0u).ways;
  for (std::size_t k = 0; k < ways.size(); ++k) {
    if ((ways[k] == Way::direct || ways[k] == Way::matrix) && !has_unaligned_lines(of, c, k))
      return false;
  }
  // A reduction is of the lines of A, at most one, and all else is stored for each result.
  std::uint32_t of_lines = 0;
  for (std::size_t o = 0; o < body.outputs.size(); ++o)
    of_lines |= std::uint32_t{ways[body.inputs.size() + o] == Way::lines} << o;
  const auto reductions =
      std::ranges::count(body.values, BodyValue::Kind::reduction, &BodyValue::kind);
  return c.first_row == 0 && c.first_column == of_lines && reductions == std::popcount(of_lines) &&
         reductions <= 1;
}

BodyEpilogue body_epilogue(const BodyStrides& of, const Contraction& c, std::uint32_t aligned) {
  const BodySpec& spec = of.spec;
  const std::span<const Dims> strides = of.strides;
  Operands operands = operands_of(of, c, aligned);
  BodyEpilogue epilogue;
  std::vector<std::uint64_t>& words = epilogue.words;
  for (std::size_t k = 0; k < operands.ways.size(); ++k) {
    if (!has_pointer(operands.ways[k])) continue;
    epilogue.addresses.push_back({words.size(), static_cast<int>(k)});
    words.push_back(0);
    const auto add_stride = [&](const std::vector<int>& dims) {
      words.push_back(static_cast<std::uint64_t>(*joint_stride(spec, strides[k], dims)));
    };
    const Way way = operands.ways[k];
    if (way == Way::lines || way == Way::matrix) add_stride(c.roles.rows);
    if (way == Way::columns || way == Way::matrix) add_stride(c.roles.columns);
  }
  words.push_back(static_cast<std::uint64_t>(c.product.m * c.product.n));
  words.push_back(static_cast<std::uint64_t>(c.product.n));
  Geometry results{};
  fill(results, c.results, 1);
  const std::size_t of_geometry =
      (offsetof(Geometry, stride) + strides.size() * sizeof(results.stride[0])) / 8;
  const std::size_t first = words.size();
  words.resize(first + of_geometry);
  std::memcpy(words.data() + first, &results, of_geometry * 8);
  words.insert(words.end(), spec.scalars.begin(), spec.scalars.end());
  operands.tile.text = EpilogueSource(spec, c, operands).text();
  epilogue.tile = std::move(operands.tile);
  epilogue.staged = std::move(operands.staged);
  return epilogue;
}

}  // namespace brrr::jit
