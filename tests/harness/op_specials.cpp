// The harness's cells of special values: NaN, ±Inf, ±0, denormals and the largest numbers through
// every op. Masks and signs must be those of the references, which std:: math defines. The tables
// below list the exceptions.
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "brrr/ops/functions.h"
#include "tests/harness/op_harness.h"

namespace brrr::test {

namespace {

Values special_values(DType dtype) {
  double largest = 0, smallest = 0, denormal = 0;
  switch (dtype) {
    case DType::f32:
      largest = 3.4028234663852886e38, smallest = 0x1p-126, denormal = 0x1p-149;
      break;
    case DType::f64:
      largest = std::numeric_limits<double>::max(), smallest = 0x1p-1022, denormal = 0x1p-1074;
      break;
    case DType::f16: largest = 65504, smallest = 0x1p-14, denormal = 0x1p-24; break;
    default: largest = 0x1.fep127, smallest = 0x1p-126, denormal = 0x1p-133; break;
  }
  const double inf = std::numeric_limits<double>::infinity();
  return {std::nan(""), inf,      -inf,      0.0,      -0.0, denormal, -denormal,
          5 * denormal, smallest, largest,   -largest, 1,    -1,       0.5,
          -0.5,         2,        -smallest, 1.5,      -2.5, 100,      -100};
}

// Results that are one rounding of an exact value, so that no tolerance is needed and a flushed
// denormal shows.
const std::set<std::string> kExact = {
    "neg", "abs", "sign",    "square",  "relu",  "floor", "ceil", "round", "trunc",   "add",
    "sub", "mul", "maximum", "minimum", "where", "clamp", "sqrt", "isnan", "isfinite"};

struct Exception {
  const char* reason;
  bool (*excused)(const double* operands);
};

bool both_zero(const double* x) { return x[0] == 0 && x[1] == 0; }

// The whole list of what may differ from the references.
const std::map<std::string, Exception> kExceptions = {
    {"maximum", {"which of +0 and -0 is larger is not fixed", both_zero}},
    {"minimum", {"which of +0 and -0 is smaller is not fixed", both_zero}},
    {"clamp",
     {"which of +0 and -0 is larger is not fixed",
      [](const double* x) { return (x[0] == 0) + (x[1] == 0) + (x[2] == 0) >= 2; }}},
};

Values tile(const Values& values, std::size_t count) {
  Values tiled(count);
  for (std::size_t i = 0; i < count; ++i) tiled[i] = values[i % values.size()];
  return tiled;
}

void run_special(Report& report, const Pointwise& row, DType dtype, std::vector<Values> values,
                 Layout layout, Device device) {
  const std::string op = op_info(row.op).name;
  const bool select = op_info(row.op).rule == DTypeRule::select;
  Cell cell{&row, {}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const DType type = select && i == 0 ? boolean : dtype;
    cell.slots.push_back({type, Dims{static_cast<std::int64_t>(values[i].size())}, layout});
  }
  if (select) {
    for (std::size_t i = 0; i < values[0].size(); ++i) values[0][i] = i % 2;
  }
  cell.values = std::move(values);
  cell.signs = true;
  cell.exact = kExact.count(op);
  const auto exception = kExceptions.find(op);
  if (exception != kExceptions.end()) cell.excused = exception->second.excused;
  run(report, cell, device);
  if (!select) {
    cell.in_place = true;
    run(report, cell, device);
  }
}

}  // namespace

void check_special_values(Report& report, Device device) {
  for (const Pointwise& row : pointwise_ops()) {
    for (DType dtype : kFloatDTypes) {
      if (!in_this_part(op_info(row.op).name, dtype)) continue;
      if (!contains(op_info(row.op).types, dtype)) continue;
      const Values specials = special_values(dtype);
      const std::size_t n = specials.size();
      std::vector<Values> operands;
      if (row.arity == 1) {
        operands = {tile(specials, 7 * n)};
      } else {
        const std::size_t count = row.arity == 2 ? n * n : n * n * n;
        operands.assign(static_cast<std::size_t>(row.arity), Values(count));
        for (std::size_t i = 0; i < count; ++i) {
          std::size_t rest = i;
          for (Values& operand : operands) {
            operand[i] = specials[rest % n];
            rest /= n;
          }
        }
      }
      for (Layout layout : {Layout::contiguous, Layout::strided}) {
        run_special(report, row, dtype, operands, layout, device);
      }
    }
  }
}

// Accumulators are f32 or wider: what overflows f32 on the way may or may not be infinite.
static double special_result(const std::string& op, const Values& pair,
                             const Computing& computing) {
  const double result = reduction_reference(op)(pair);
  return op == "sum" || op == "prod" ? computing(result) : result;
}

// Whether several results of two special values are right.
static bool is_loose(const std::string& op, double x, double y, double result, double most) {
  const bool finite = std::isfinite(x) && std::isfinite(y);
  bool loose = op == "mean" && finite && std::fabs(x + y) > most;
  if (op == "norm") {
    const double limit = std::sqrt(most) / 2;
    loose = finite && (std::fabs(x) > limit || std::fabs(y) > limit);
    loose = loose || (result != 0 && result < 0x1p-60);  // squares of denormals vanish
  }
  // Zeros: the sum starts from +0; which zero is larger is not fixed.
  const bool any_zero = op == "sum" || op == "mean" || op == "max" || op == "min";
  return loose || (any_zero && result == 0);
}

void check_special_reductions(Report& report, Device device) {
  for (const Reduction& row : reduction_ops()) {
    const OpInfo& info = op_info(row.op);
    const std::string op = info.name;
    for (DType dtype : kFloatDTypes) {
      if (!in_this_part(op_info(row.op).name, dtype)) continue;
      const Values specials = special_values(dtype);
      const Computing computing{dtype};
      const double most = dtype == f64 ? std::numeric_limits<double>::max() : 3.4028234663852886e38;
      const std::size_t n = specials.size();
      for (int ones : {0, 1, 6, 30}) {  // neutral elements around the two
        const double neutral = op == "sum" || op == "mean" || op == "norm" || op == "any" ? 0 : 1;
        const bool filled = op != "max" && op != "min" && op != "mean" && op != "norm";
        const std::size_t width = 2 + (filled ? static_cast<std::size_t>(ones) : 0);
        Values values;
        Values expected;
        std::vector<bool> excused;
        for (double x : specials) {
          for (double y : specials) {
            const Values pair = {x, y};
            const double result = special_result(op, pair, computing);
            const bool loose = is_loose(op, x, y, result, most);
            const std::size_t at = values.size() + width / 2;
            values.insert(values.end(), width, neutral);
            values[at - 1] = x;
            values[at] = y;
            expected.push_back(result);
            excused.push_back(loose);
          }
        }
        const auto rows = static_cast<std::int64_t>(n * n);
        const Dims shape{rows, static_cast<std::int64_t>(width)};
        const Typed typed{dtype, Rank::dimensions};
        for (Layout layout : {Layout::contiguous, Layout::transposed}) {
          const Sample sample = make_sample(values, shape, dtype, layout, device);
          const std::string cell =
              op + "(" + sample.tensor.describe() + " " + name_of(layout) + ", [1]) of specials";
          std::string problem;
          try {
            problem = difference(row.over(sample.tensor, {1}, false),
                                 types_of(info, std::span(&typed, 1)).output, Dims{rows}, expected,
                                 {0, true, false, &excused});
          } catch (const std::exception& error) {
            problem = error.what();
          }
          report.count(cell, problem);
        }
      }
    }
  }
}

}  // namespace brrr::test
