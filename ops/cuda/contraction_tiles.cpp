#include "brrr/ops/cuda/contraction_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/fail.h"

namespace brrr::on_cuda {
namespace {

using std::int64_t;
using namespace jit::pieces;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// How the epilogue reaches an operand.
enum class Way : std::uint8_t {
  none,     // a factor
  staged,   // through shared memory, by the copy engine
  columns,  // an input of columns alone, read once for all rows of a thread
  direct,   // element by element
};

struct Operands {
  std::vector<Way> ways;  // inputs, then outputs
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

bool moves(const Dims& strides, const std::vector<int>& dims) {
  return std::ranges::any_of(dims, [&](int d) { return strides[d] != 0; });
}

Operands operands_of(const BodySpec& spec, const Contraction& c, std::span<const Dims> strides,
                     std::span<void* const> data) {
  constexpr std::size_t kMostStaged = 2;
  const jit::Body& body = spec.body;
  Operands operands;
  operands.tile.staged = body.outputs[0].dtype;
  for (std::size_t k = 0; k < strides.size(); ++k) {
    const bool is_input = k < body.inputs.size();
    const DType dtype =
        is_input ? body.inputs[k].dtype : body.outputs[k - body.inputs.size()].dtype;
    std::vector<StagedTensor>& staged = is_input ? operands.tile.inputs : operands.tile.outputs;
    Way way = Way::direct;
    if (is_input && (static_cast<int>(k) == c.a || static_cast<int>(k) == c.b)) {
      way = Way::none;
    } else if (is_input && !moves(strides[k], c.roles.rows) &&
               std::ranges::none_of(c.roles.batches,
                                    [&](const auto& dims) { return moves(strides[k], dims); })) {
      way = Way::columns;
    } else if (const auto matrix = matrix_of(spec, c.roles, strides[k]);
               matrix && dtype == operands.tile.staged && staged.size() < kMostStaged &&
               can_stage(c.product, dtype, {data[k], *matrix})) {
      way = Way::staged;
      staged.push_back({data[k], *matrix});
    }
    operands.ways.push_back(way);
  }
  return operands;
}

// The text of struct Epilogue, in the order in which body_epilogue() fills it.
class EpilogueText {
 public:
  EpilogueText(const BodySpec& spec, const Contraction& c, const Operands& operands)
      : body_(spec.body), c_(c), operands_(operands) {}

  std::string text() const {
    const int product = body_.contraction();
    const jit::Body::Value& value = body_.value(product);
    const std::string sum = jit::is_rounded(body_, product)
                                ? fmt::format("rounded<{}>(sums[i])", c_name(value.dtype))
                                : "sums[i]";
    const bool locates = std::ranges::find(operands_.ways, Way::direct) != operands_.ways.end();
    return functions(body_) + row_struct(body_) +
           fmt::format(
               "struct Epilogue {{\n  typedef {} Staged;\n  static constexpr int kInputs = {}, "
               "kOutputs = {};\n{}  i64 matrix, width;\n  Geometry<{}> results;\n{}"
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
               operands_.tile.outputs.size(), pointers(), body_.operands(), numbers(), fields(),
               column_loads(), locates ? locate("i64(line) * width + ", "i < count") : "", loads(),
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
  bool is_input(std::size_t k) const { return k < body_.inputs.size(); }
  std::size_t output(std::size_t k) const { return k - body_.inputs.size(); }

  std::string pointers() const {
    std::string text;
    for (std::size_t k = 0; k < operands_.ways.size(); ++k) {
      if (operands_.ways[k] != Way::columns && operands_.ways[k] != Way::direct) continue;
      text += is_input(k) ? fmt::format("  const {}* in{};\n", c_name(body_.inputs[k].dtype), k)
                          : fmt::format("  {}* out{};\n", c_name(body_.outputs[output(k)].dtype),
                                        output(k));
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
      loads +=
          fmt::format("      if (i < count) columns.x{0}[i] = widen(in{0}[offset[{0}]]);\n", k);
    });
    return loads.empty() ? ""
                         : "#pragma unroll\n    for (int i = 0; i < 2; ++i) {\n" +
                               locate("", "i < count") + loads + "    }\n";
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
        case Way::direct:
          text += fmt::format("      row.x{0} = i < count ? widen(in{0}[offset[{0}]]) : {1}(0);\n",
                              k, register_name(body_.inputs[k].dtype));
          break;
        case Way::none: break;
      }
    }
    return text;
  }
  std::string stores() const {
    std::string text;
    int staged = 0;
    for (std::size_t k = body_.inputs.size(); k < operands_.ways.size(); ++k) {
      const jit::Body::Operand& out = body_.outputs[output(k)];
      const std::string value = converted(body_, out.value, out.dtype);
      text += operands_.ways[k] == Way::staged
                  ? fmt::format("      outputs[{}][i] = {};\n", staged++, value)
                  : fmt::format("      if (i < count) out{}[offset[{}]] = narrow<{}>({});\n",
                                output(k), k, c_name(out.dtype), value);
    }
    return text;
  }

  const jit::Body& body_;
  const Contraction& c_;
  const Operands& operands_;
};

}  // namespace

bool tiles_support(const BodySpec& spec, const Contraction& c, std::span<const Dims> strides,
                   bool aligned) {
  const bool stored = c.first_row == 0 && c.first_column == 0;
  const auto reduces = [](const jit::Body::Value& value) {
    return value.kind == jit::Body::Value::Kind::reduction;
  };
  return stored && aligned && std::ranges::none_of(spec.body.values, reduces) &&
         supports(c.product, spec.body.inputs[at(c.a)].dtype, nullptr, nullptr) &&
         std::ranges::count(
             operands_of(spec, c, strides, std::vector<void*>(strides.size(), nullptr)).ways,
             Way::direct) == 0;
}

BodyEpilogue body_epilogue(const BodySpec& spec, const Contraction& c,
                           std::span<const Dims> strides, std::span<void* const> data) {
  Operands operands = operands_of(spec, c, strides, data);
  BodyEpilogue epilogue;
  std::vector<std::uint64_t>& arguments = epilogue.arguments;
  for (std::size_t k = 0; k < operands.ways.size(); ++k) {
    if (operands.ways[k] == Way::columns || operands.ways[k] == Way::direct)
      arguments.push_back(reinterpret_cast<std::uintptr_t>(data[k]));
  }
  arguments.push_back(static_cast<std::uint64_t>(c.product.m * c.product.n));
  arguments.push_back(static_cast<std::uint64_t>(c.product.n));
  jit::Geometry results{};
  jit::fill(results, c.results, 1);
  const std::size_t words =
      (offsetof(jit::Geometry, stride) + strides.size() * sizeof(results.stride[0])) / 8;
  const std::size_t first = arguments.size();
  arguments.resize(first + words);
  std::memcpy(arguments.data() + first, &results, words * 8);
  arguments.insert(arguments.end(), spec.scalars.begin(), spec.scalars.end());
  operands.tile.text = EpilogueText(spec, c, operands).text();
  epilogue.tile = std::move(operands.tile);
  return epilogue;
}

void run_tiles(const BodySpec& spec, const Contraction& c, std::span<const Dims> strides,
               std::span<void* const> data, cu::CudaStream& stream) {
  const DType dtype = spec.body.inputs[at(c.a)].dtype;
  const void *a = data[at(c.a)], *b = data[at(c.b)];
  if (!supports(c.product, dtype, a, b))
    fail("[{}] expected factors whose rows begin at multiples of 16 bytes", spec.body.name);
  const BodyEpilogue epilogue = body_epilogue(spec, c, strides, data);
  TileConfig config = choose_tiles(c.product, dtype, jit::multiprocessors_of(stream.device));
  if (stages_of(config, epilogue.tile) < 2) {
    const auto fits = std::ranges::find_if(tile_choices(), [&](const TileConfig& choice) {
      return choice.splits == 1 && stages_of(choice, epilogue.tile) >= 2;
    });
    if (fits != tile_choices().end()) config = *fits;
  }
  const TileLaunch tiles = plan_tiles(c.product, dtype, a, b, config, epilogue.tile, stream.device);
  launch(tiles, epilogue.arguments.data(), stream);
}

}  // namespace brrr::on_cuda
