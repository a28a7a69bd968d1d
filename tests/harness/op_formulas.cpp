// Cells of the formula rows against double precision: pairs of dtypes, layouts, coefficients as
// numbers and as tensors, out of place and in place.
#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <numbers>
#include <span>

#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {
namespace {

// Operands and numbers of a row in its order. Results replace the operands that are written.
using Doubles = double*;
using Reference = void (*)(Doubles x, const double* n);

double moved(double average, double value, double weight) {
  return average + weight * (value - average);
}
double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
double direction(double mean, double square, const double* n, double eps) {
  return mean / n[0] / (std::sqrt(square / n[1]) + eps);
}
double clamped(double x) { return std::min(std::max(x, 0.0), 1.0); }

const std::map<std::string, Reference>& references() {
  static const std::map<std::string, Reference> table = {
      {"adam_step",
       [](Doubles x, const double* n) {
         x[1] = moved(x[1], x[3], n[3]);
         x[2] = moved(x[2], x[3] * x[3], n[4]);
         x[0] -= n[2] * (direction(x[1], x[2], n, n[5]) + n[6] * x[0]);
       }},
      {"average_ones",
       [](Doubles x, const double* n) {
         for (int k : {0, 1}) x[k] = moved(x[k], 1, n[k]);
       }},
      {"adam_averages",
       [](Doubles x, const double* n) {
         x[0] = moved(x[0], x[2], n[0]);
         x[1] = moved(x[1], x[2] * x[2], n[1]);
       }},
      {"adam_direction", [](Doubles x, const double* n) { x[0] = direction(x[0], x[1], n, n[2]); }},
      {"momentum", [](Doubles x, const double* n) { x[0] = n[0] * x[0] + x[1]; }},
      {"momentum_step",
       [](Doubles x, const double* n) {
         x[1] = n[0] * x[1] + x[2];
         x[0] -= n[1] * x[1];
       }},
      {"nesterov_step",
       [](Doubles x, const double* n) {
         x[1] = n[0] * x[1] + x[2];
         x[0] -= n[1] * (n[0] * x[1] + x[2]);
       }},
      {"lion_direction",
       [](Doubles x, const double* n) { x[0] = sign_of(moved(x[1], x[0], n[0])); }},
      {"lion_step",
       [](Doubles x, const double* n) {
         x[0] -= n[0] * (sign_of(moved(x[2], x[1], n[1])) + n[3] * x[0]);
         x[1] = moved(x[1], x[2], n[2]);
       }},
      {"descend", [](Doubles x, const double* n) { x[0] -= x[1] * n[0]; }},
      {"descent", [](Doubles x, const double* n) { x[0] = -x[0] * n[0]; }},
      {"joined_norm", [](Doubles x, const double*) { x[0] = std::hypot(x[0], x[1]); }},
      {"clip_factor", [](Doubles x, const double* n) { x[0] = n[0] / std::max(x[0], n[0]); }},
      {"linear_rate",
       [](Doubles x, const double* n) {
         const double t = clamped((x[0] - n[0] - n[3]) / n[4]);
         x[0] = x[0] < n[0] ? x[1] : n[1] + (n[2] - n[1]) * t;
       }},
      {"warmup_cosine_rate",
       [](Doubles x, const double* n) {
         const double t = std::min((x[0] - n[2]) / n[3], 1.0);
         const double part = 0.5 * (1 + std::cos(std::numbers::pi * t));
         x[0] = x[0] < n[2] ? n[0] + (n[1] - n[0]) * clamped(x[0] / n[2])
                            : n[1] * ((1 - n[4]) * part + n[4]);
       }},
      {"cosine_rate", [](Doubles x, const double* n) {
         const double t = std::min((x[0] - n[0]) / n[2], 1.0);
         const double part = 0.5 * (1 + std::cos(std::numbers::pi * t));
         x[0] = x[0] < n[0] ? x[1] : n[1] * ((1 - n[3]) * part + n[3]);
       }}};
  return table;
}

constexpr double kNumbers[] = {0.5, 0.25, 0.125, 0.25, 0.0625, 0.5, 0.375};

struct Case {
  DType first, other;  // of the first operand and those read only, of the others written
  unsigned tensors;    // bits: which numbers are tensors
  bool last_is_zero;   // of the numbers
};

std::string buffer_difference(const Sample& x, const Values& expected) {
  Values after = x.base_values;
  for (std::size_t i = 0; i < expected.size(); ++i)
    after[static_cast<std::size_t>(x.places[i])] = expected[i];
  return difference(x.base, x.tensor.dtype(), Dims{static_cast<std::int64_t>(after.size())}, after);
}

struct FilledRow {
  const FormulaRow& row;
  const Formula& body = op_info(row.op).formula;
  std::vector<Sample> in = {};
  std::vector<Tensor> number_tensors = {};
  std::vector<brrr::Operand> numbers = {};
  std::vector<double> values = {};

  void add_numbers(const Case& c, Device device) {
    const auto count = static_cast<std::size_t>(body.numbers());
    number_tensors.resize(count);
    for (std::size_t k = 0; k < count; ++k) {
      values.push_back(c.last_is_zero && k + 1 == count ? 0 : kNumbers[k]);
      if (c.tensors >> k & 1) {
        const DType dtype = k == 2 ? f32 : c.other;
        number_tensors[k] = full({}, values.back(), {.dtype = dtype, .device = device});
        numbers.emplace_back(number_tensors[k]);
      } else {
        numbers.emplace_back(values.back());
      }
    }
  }
  std::vector<Tensor> operands() const {
    std::vector<Tensor> all;
    for (const Sample& x : in) all.push_back(x.tensor);
    return all;
  }
  // By operand; those only read stay.
  std::vector<Values> wanted() const {
    std::vector<Values> expected;
    for (const Sample& x : in) expected.push_back(x.values);
    for (std::size_t i = 0; i < expected[0].size(); ++i) {
      double x[4];
      for (std::size_t k = 0; k < expected.size(); ++k) x[k] = expected[k][i];
      references().at(op_info(row.op).name)(x, values.data());
      for (std::size_t k = 0; k < static_cast<std::size_t>(body.written); ++k)
        expected[k][i] = x[k];
    }
    return expected;
  }
};

std::string problem_of(const FilledRow& cell, const Dims& shape, bool in_place_too) {
  const std::vector<Values> expected = cell.wanted();
  const std::vector<Tensor> operands = cell.operands();
  const std::vector<Tensor> made = cell.row.call(operands, cell.numbers);
  std::vector<Tensor> metas = operands;
  metas[0] = meta(shape, {.dtype = metas[0].dtype(), .device = metas[0].device()});
  const std::vector<Tensor> inferred = cell.row.call(metas, cell.numbers);
  for (std::size_t k = 0; k < made.size(); ++k) {
    const DType dtype = operands[k].dtype();
    std::string problem = difference(made[k], dtype, shape, expected[k]);
    if (problem.empty() && (!inferred[k].is_meta() || inferred[k].dtype() != dtype ||
                            Dims(inferred[k].shape()) != shape)) {
      problem = "meta gives " + inferred[k].describe();
    }
    if (!problem.empty()) return "output " + std::to_string(k) + ": " + problem;
  }
  for (const Sample& x : cell.in) {
    if (const std::string problem = buffer_difference(x, x.values); !problem.empty())
      return "an input changed: " + problem;
  }
  if (!in_place_too) return "";
  cell.row.call_in_place(operands, cell.numbers);
  for (std::size_t k = 0; k < cell.in.size(); ++k) {
    if (const std::string problem = buffer_difference(cell.in[k], expected[k]); !problem.empty())
      return "in place, operand " + std::to_string(k) + ": " + problem;
  }
  return "";
}

std::string run_cell(const FormulaRow& row, const Case& c, const Dims& shape, Layout layout,
                     Layout other, Device device) {
  const OpInfo& info = op_info(row.op);
  Random random(hash_text(info.name + to_string(shape)));
  FilledRow cell{row};
  for (int k = 0; k < cell.body.elements; ++k) {
    const DType dtype = k > 0 && k < cell.body.written ? c.other : c.first;
    const std::string& name = cell.body.operands[static_cast<std::size_t>(k)];
    const double low = name == "square" || name == "norm" ? 0.25 : -2;
    cell.in.push_back(make_sample(draw_many(random, dtype, numel_of(shape), low, 2), shape, dtype,
                                  k % 2 ? other : layout, device));
  }
  cell.add_numbers(c, device);
  return problem_of(cell, shape, layout != Layout::expanded && other != Layout::expanded);
}

void check_shapes(Report& report, const FormulaRow& row, const Case& c, bool every, Device device) {
  const auto check = [&](const Dims& shape, Layout layout, Layout of_others) {
    if (!applies(layout, shape)) return;
    std::string problem;
    try {
      problem = run_cell(row, c, shape, layout, of_others, device);
    } catch (const std::exception& error) {
      problem = std::string("threw ") + error.what();
    }
    report.count(op_info(row.op).name + (" of " + std::string(name_of(c.first))) +
                     to_string(shape) + " and " + name_of(c.other).data() + ", " + name_of(layout) +
                     " and " + name_of(of_others),
                 problem);
  };
  for (const Dims& shape :
       {Dims{}, Dims{0}, Dims{1}, Dims{7}, Dims{16, 64}, Dims{1025}, Dims{33, 17}, Dims{2, 3, 4}}) {
    for (const Layout layout : kLayouts) {
      if (!every && layout != Layout::contiguous && layout != Layout::transposed) continue;
      check(shape, layout, Layout::contiguous);
      if (every) check(shape, layout, layout);
    }
  }
}

}  // namespace

void check_formula_cells(Report& report, Device device) {
  for (const FormulaRow& row : formula_rows()) {
    const std::string name = op_info(row.op).name;
    if (!references().count(name)) report.count(name, "has no reference");
    for (const auto& [first, other] :
         {std::pair{f32, f32}, std::pair{f64, f64}, std::pair{f16, f32}, std::pair{bf16, f32},
          std::pair{f16, f16}, std::pair{bf16, bf16}}) {
      const Case cases[] = {{first, other, 0u, false},
                            {first, other, ~0u, true},
                            {first, other, 0u, true},
                            {first, other, 0b1000101u, false}};
      // On CUDA nearly each cell is a kernel to compile: adam_step, the row of most operands, has
      // every one in f32, the others two cases of two layouts.
      const bool every = device.is_cpu() || (name == "adam_step" && first == f32);
      for (const Case& c : std::span(cases, every ? 4 : 2))
        check_shapes(report, row, c, every, device);
    }
  }
}

}  // namespace brrr::test
