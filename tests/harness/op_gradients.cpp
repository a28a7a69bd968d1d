#include "tests/harness/op_gradients.h"

#include <cmath>
#include <numeric>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/gradcheck.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

const std::vector<Dims> kGradientShapes = {{},     {1},       {7},      {0, 3},
                                           {2, 3}, {3, 1, 4}, {11, 13}, {2, 1, 2, 3}};

Tensor leaf_of(const Values& values, const Dims& shape, Layout layout) {
  return requires_grad_(make_sample(values, shape, f64, layout).tensor);
}

Tensor smooth_leaf(const std::string& key, const Dims& shape, Layout layout, double low,
                   double high, int place) {
  Random random(hash_text(key + to_string(shape) + std::to_string(place)));
  // Tenths, moved by the operand's place: 0.013, 0.043 or 0.073, give or take 0.005.
  const double offset = 0.013 + 0.03 * place;
  const auto first = static_cast<std::int64_t>(std::ceil(low * 10)),
             last = static_cast<std::int64_t>(std::floor(high * 10)) - 1;
  Values values(static_cast<std::size_t>(numel_of(shape)));
  for (double& value : values) {
    value = static_cast<double>(first + random.below(last - first + 1)) / 10 + offset +
            random.uniform(-0.005, 0.005);
  }
  return leaf_of(values, shape, layout);
}

Tensor distinct_leaf(const std::string& key, const Dims& shape, Layout layout, double low,
                     double high) {
  Random random(hash_text(key + to_string(shape)));
  const std::int64_t n = numel_of(shape);
  std::vector<std::int64_t> places(static_cast<std::size_t>(n));
  std::iota(places.begin(), places.end(), 0);
  for (std::int64_t i = n - 1; i > 0; --i)
    std::swap(places[static_cast<std::size_t>(i)],
              places[static_cast<std::size_t>(random.below(i + 1))]);
  Values values;
  for (const std::int64_t place : places) {
    values.push_back(low + (high - low) * (static_cast<double>(place) + random.uniform(0.3, 0.7)) /
                               static_cast<double>(n));
  }
  return leaf_of(values, shape, layout);
}

void expect_gradient(Report& report, const std::string& cell, const ManyToMany& fn,
                     const std::vector<Tensor>& inputs) {
  std::string name = cell + " of";
  std::int64_t count = 0;
  for (const Tensor& input : inputs) {
    if (!input.defined()) continue;
    name += " " + input.describe() + (input.is_contiguous() ? "" : " strided");
    if (requires_grad(input)) count += input.numel();
  }
  std::string problem;
  try {
    const GradcheckResult result =
        gradcheck(fn, inputs, {.second_order = true, .directional = count > 64});
    if (!result) problem = result.message;
  } catch (const std::exception& error) {
    problem = std::string("threw ") + error.what();
  }
  report.count(name, problem);
}

void expect_gradient(Report& report, const std::string& cell,
                     const std::function<Tensor(std::span<const Tensor>)>& fn,
                     const std::vector<Tensor>& inputs) {
  expect_gradient(report, cell,
                  ManyToMany([&](std::span<const Tensor> in) { return std::vector{fn(in)}; }),
                  inputs);
}

namespace {

using In = std::span<const Tensor>;

// Results are real numbers, and so are operands: there is something to differentiate.
bool has_real_gradient(const OpInfo& info) {
  return contains(info.types, f64) && info.rule != DTypeRule::predicate;
}
bool is_select(const OpInfo& info) { return info.rule == DTypeRule::select; }

// One call of a pointwise row: operands that are tensors, in order, or numbers.
struct PointwiseCell {
  std::vector<Tensor> tensors;
  std::vector<Operand> operands;
  std::string name;

  void add(Tensor tensor) {
    operands.push_back({tensor, {}});
    tensors.push_back(std::move(tensor));
  }
  void add(Scalar number) {
    operands.push_back({{}, number});
    name += " number " + std::to_string(operands.size() - 1);
  }
};

void check_cell(Report& report, const Pointwise& row, const PointwiseCell& cell) {
  const auto fn = [&](In in) {
    std::vector<Operand> operands = cell.operands;
    std::size_t next = 0;
    for (Operand& operand : operands) {
      if (!operand.number) operand.tensor = in[next++];
    }
    return row.call(operands);
  };
  expect_gradient(report, op_info(row.op).name + cell.name, fn, cell.tensors);
}

double number_in(const OpInfo& info, int place) {
  return info.low + 0.37 * (info.high - info.low) + 0.03 * place;
}

Tensor operand_of(const OpInfo& info, const Dims& shape, Layout layout, int place) {
  if (is_select(info) && place == 0) {
    const Sample mask = sample_of("mask", shape, boolean, layout, cpu);
    return mask.tensor;
  }
  return smooth_leaf(info.name, shape, layout, info.low, info.high, place);
}

void check_unary_row(Report& report, const Pointwise& row) {
  const OpInfo& info = op_info(row.op);
  for (const Dims& shape : kGradientShapes) {
    for (const Layout layout : kLeafLayouts) {
      if (!applies(layout, shape)) continue;
      PointwiseCell cell;
      cell.add(operand_of(info, shape, layout, 0));
      check_cell(report, row, cell);
    }
  }
}

const std::vector<std::vector<Dims>> kOperandShapes = {{{}, {}, {}},
                                                       {{1}, {5}, {1}},
                                                       {{7}, {7}, {7}},
                                                       {{2, 3}, {2, 3}, {2, 3}},
                                                       {{3, 1}, {1, 4}, {4}},
                                                       {{2, 3}, {}, {3}},
                                                       {{5, 7}, {7}, {5, 1}},
                                                       {{0, 3}, {3}, {1, 3}},
                                                       {{2, 1, 3}, {4, 1}, {}},
                                                       {{}, {2, 2}, {2, 1}},
                                                       {{11, 13}, {11, 13}, {}}};
const std::vector<std::vector<Layout>> kOperandLayouts = {
    {Layout::contiguous, Layout::contiguous, Layout::contiguous},
    {Layout::transposed, Layout::strided, Layout::offset},
    {Layout::strided, Layout::offset, Layout::transposed},
    {Layout::offset, Layout::transposed, Layout::strided}};

// Tensors and numbers at each place; every row but `where` takes tensors alone differentiated, and
// each of them alone.
void check_many_row(Report& report, const Pointwise& row) {
  const OpInfo& info = op_info(row.op);
  for (const auto& shapes : kOperandShapes) {
    for (const auto& layouts : kOperandLayouts) {
      // Bits: which operands are numbers. A ternary row's first is a tensor.
      for (int numbers = 0; numbers + 1 < 1 << row.arity; ++numbers) {
        if (row.arity == 3 && numbers & 1) continue;
        PointwiseCell cell;
        for (int i = 0; i < row.arity; ++i) {
          const auto at = static_cast<std::size_t>(i);
          if (numbers >> i & 1) {
            cell.add(Scalar(number_in(info, i)));
          } else {
            cell.add(operand_of(info, shapes[at], layouts[at], i));
          }
        }
        bool any = false;
        for (const Tensor& tensor : cell.tensors) any |= requires_grad(tensor);
        if (any) check_cell(report, row, cell);
      }
    }
  }
  // One operand wanted, the others constant: what is kept then differs.
  for (int wanted = 0; wanted < row.arity; ++wanted) {
    if (is_select(info) && wanted == 0) continue;
    PointwiseCell cell;
    cell.name = " by operand " + std::to_string(wanted) + " alone";
    for (int i = 0; i < row.arity; ++i) {
      const Tensor operand = operand_of(info, {2, 3}, Layout::contiguous, i);
      cell.add(i == wanted ? operand : detach(operand));
    }
    check_cell(report, row, cell);
  }
}

}  // namespace

void check_pointwise_gradients(Report& report) {
  for (const Pointwise& row : pointwise_ops()) {
    if (!has_real_gradient(op_info(row.op))) continue;
    row.arity == 1 ? check_unary_row(report, row) : check_many_row(report, row);
  }
}

// An in-place form on a tensor that was computed, with every kind of further operand, the tensor
// itself among them: its gradient is that of the form that makes a new tensor, or it is refused.
void check_in_place_gradients(Report& report) {
  for (const Pointwise& row : pointwise_ops()) {
    const OpInfo& info = op_info(row.op);
    if (!has_real_gradient(info) || is_select(info)) continue;
    const auto fixed = [&](int place) {
      return detach(operand_of(info, {2, 3}, Layout::contiguous, place));
    };
    const Tensor x = operand_of(info, {2, 3}, Layout::contiguous, 0),
                 u = operand_of(info, {2, 3}, Layout::contiguous, 1),
                 v = operand_of(info, {2, 3}, Layout::contiguous, 2);
    const auto number = [&](int place) { return Operand{{}, Scalar(number_in(info, place))}; };
    // What stands for each further operand: a leaf, a constant, a number, or the tensor itself.
    enum Kind { leaf, constant, a_number, itself, kinds };
    const int cells = row.arity == 1 ? 1 : row.arity == 2 ? kinds : kinds * kinds;
    for (int cell = 0; cell < cells; ++cell) {
      const int choice[] = {cell % kinds, cell / kinds};
      const auto operands_for = [&](In in, const Tensor& y) {
        std::vector<Operand> rest;
        for (int i = 1; i < row.arity; ++i) {
          switch (choice[i - 1]) {
            case leaf: rest.push_back({in[static_cast<std::size_t>(i)], {}}); break;
            case constant: rest.push_back({fixed(i), {}}); break;
            case a_number: rest.push_back(number(i)); break;
            default: rest.push_back({y, {}});
          }
        }
        return rest;
      };
      const auto in_place = [&](In in) {
        Tensor y = clone(in[0]);
        const Tensor same = y;  // a second handle, which must not matter
        row.call_in_place(y, operands_for(in, same));
        return y;
      };
      const std::vector<Tensor> inputs = {x, u, v};
      std::string problem;
      bool refused = false;
      try {
        const Tensor y = in_place(inputs);
        grad(sum(y), x, {.allow_unused = true});
      } catch (const Error& error) {
        refused = std::string(error.what()).find("expected not to overwrite") != std::string::npos;
        if (!refused) problem = std::string("threw ") + error.what();
      }
      const std::string name = std::string(info.name) + "_ cell " + std::to_string(cell);
      if (refused || !problem.empty()) {
        report.count(name, problem);
      } else {
        expect_gradient(report, name, in_place, inputs);
      }
    }
  }
}

void check_reduction_gradients(Report& report) {
  for (const Reduction& row : reduction_ops()) {
    const OpInfo& info = op_info(row.op);
    if (!has_real_gradient(info)) continue;
    for (const Dims& shape : kGradientShapes) {
      for (const Layout layout : kLeafLayouts) {
        if (!applies(layout, shape)) continue;
        const Tensor x = distinct_leaf(info.name, shape, layout, 0.4, 1.7);
        const std::string name = info.name;
        const bool empty_extreme = numel_of(shape) == 0 && (name == "max" || name == "min");
        if (!empty_extreme)
          expect_gradient(report, name + " over all", [&](In in) { return row.all(in[0]); }, {x});
        // Every set of dimensions.
        for (int mask = 1; mask < 1 << shape.size(); ++mask) {
          Dims dims;
          bool over_nothing = false;
          for (int d = 0; d < shape.size(); ++d) {
            if (!(mask >> d & 1)) continue;
            dims.push_back(d % 2 ? d - shape.size() : d);
            over_nothing |= shape[d] == 0;
          }
          if (over_nothing && (name == "max" || name == "min")) continue;
          for (const bool keepdim : {false, true}) {
            expect_gradient(report, name + " over " + to_string(dims) + (keepdim ? " kept" : ""),
                            [&](In in) { return row.over(in[0], dims, keepdim); }, {x});
          }
        }
      }
    }
  }
}

void check_reduction_special_gradients(Report& report) {
  // The product's derivatives exist at zeros too.
  const std::vector<Values> zeros = {{0, 2, 3, 0.5, -1, 4}, {0, 2, 0, 0.5, -1, 4},
                                     {0, 0, 0, 0.5, -1, 4}, {0, 0, 0, 0, 0, 0},
                                     {1, 2, 3, 0.5, -1, 0}, {1, 0, 3, 0.5, 0, 4}};
  for (const Values& values : zeros) {
    for (const Layout layout : {Layout::contiguous, Layout::transposed}) {
      const Tensor x = leaf_of(values, {2, 3}, layout);
      expect_gradient(report, "prod with zeros", [](In in) { return prod(in[0]); }, {x});
      for (const int d : {0, 1}) {
        expect_gradient(report, "prod with zeros", [d](In in) { return prod(in[0], {d}, true); },
                        {x});
      }
    }
  }
  const auto holds = [&](const std::string& name, const Tensor& got, const Values& expected) {
    report.count(name, difference(got, f64, Dims(got.shape()), expected));
  };
  // Elements that tie share the gradient, as PyTorch's amax and amin.
  const Tensor tied = leaf_of({1, 3, 3, 2, 3, 1}, {2, 3});
  holds("max with ties", grad(max(tied) * 6, tied), {0, 2, 2, 0, 2, 0});
  holds("max with ties, by rows", grad(sum(max(tied, {1}) * 6), tied), {0, 3, 3, 0, 6, 0});
  holds("min with ties", grad(min(tied) * 6, tied), {3, 0, 0, 0, 0, 3});
  const Tensor other = leaf_of({1, 2, 3, 2, 4, 0}, {2, 3});
  holds("maximum with ties", grad(sum(maximum(tied, other)), tied), {0.5, 1, 0.5, 0.5, 0, 1});
  holds("maximum with ties, the other", grad(sum(maximum(tied, other)), other),
        {0.5, 0, 0.5, 0.5, 1, 0});
  holds("minimum with ties", grad(sum(minimum(tied, other)), tied), {0.5, 0, 0.5, 0.5, 1, 0});
  // At zero the norm's gradient is taken as zero, a whole subgradient, and so is abs's.
  const Tensor nothing = leaf_of({0, 0, 0, 0}, {2, 2});
  holds("norm of zeros", grad(norm(nothing), nothing), {0, 0, 0, 0});
  const Tensor half = leaf_of({0, 0, 3, 4}, {2, 2});
  holds("norm of a row of zeros", grad(sum(norm(half, {1})), half), {0, 0, 0.6, 0.8});
  holds("abs of zeros", grad(sum(abs(nothing)), nothing), {0, 0, 0, 0});
  holds("relu of zeros", grad(sum(relu(nothing)), nothing), {0, 0, 0, 0});
  // A clamp's bounds belong to what passes.
  const Tensor edge = leaf_of({-1, 0, 1, 2}, {4});
  holds("clamp at its bounds", grad(sum(clamp(edge, 0.0, 1.0)), edge), {0, 1, 1, 0});
  // pow at zero.
  const Tensor base = leaf_of({0, 0, 2}, {3}), exponent = leaf_of({0, 2, 3}, {3});
  holds("pow at zero by base", grad(sum(pow(base, exponent)), base), {0, 0, 12});
  holds("pow at zero by exponent", grad(sum(pow(base, exponent)), exponent),
        {0, 0, 8 * std::log(2.0)});
  holds("pow by a number at zero", grad(sum(pow(base, 2.0)), base), {0, 0, 4});
  holds("pow to the zeroth", grad(sum(pow(base, 0.0)), base), {0, 0, 0});
  holds("pow of zero to a tensor", grad(sum(pow(0.0, exponent)), exponent), {0, 0, 0});
}

}  // namespace brrr::test
