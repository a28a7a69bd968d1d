#include "tests/harness/op_structured.h"

#include <exception>

#include "brrr/ops/functions.h"

namespace brrr::test {

const std::map<std::string, CellsOf>& structured_cells() {
  static const std::map<std::string, CellsOf> table = {{"argmax", check_reductions},
                                                       {"argmin", check_reductions},
                                                       {"view", check_view_cells},
                                                       {"permute", check_view_cells},
                                                       {"expand", check_view_cells},
                                                       {"slice", check_view_cells},
                                                       {"softmax_of", check_composite_cells},
                                                       {"copy", check_copy_cells},
                                                       {"empty", check_creation_cells},
                                                       {"full", check_creation_cells},
                                                       {"arange", check_creation_cells},
                                                       {"matmul", check_matmul_cells},
                                                       {"cat", check_join_cells},
                                                       {"cumsum", check_scan_cells},
                                                       {"gather", check_index_cells},
                                                       {"index_select", check_index_cells},
                                                       {"scatter_add", check_index_cells},
                                                       {"triangle", check_scan_cells},
                                                       {"unslice", check_index_cells},
                                                       {"checked", check_checked_cells},
                                                       {"affine", check_matmul_cells},
                                                       {"uniform", check_random_cells},
                                                       {"normal", check_random_cells},
                                                       {"bernoulli", check_random_cells},
                                                       {"cast", check_copy_cells}};
  return table;
}

void check_structured_coverage(Report& report) {
  for (const std::string& name : structured_ops()) {
    report.count(name, structured_cells().count(name) ? "" : "has no cells in op_structured.cpp");
  }
}

Index index_of(std::int64_t number, std::span<const std::int64_t> shape) {
  Index index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = number % shape[d];
    number /= shape[d];
  }
  return index;
}

std::int64_t number_of(const Index& index, std::span<const std::int64_t> shape) {
  std::int64_t number = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) number = number * shape[d] + index[d];
  return number;
}

void expect(Report& report, const std::string& cell, const TensorCall& call,
            const std::vector<Sample>& inputs, DType dtype, const Dims& shape,
            const Values& expected, const Match& match) {
  std::string name = cell + " of";
  std::vector<Tensor> tensors;
  for (const Sample& input : inputs) {
    tensors.push_back(input.tensor);
    name += " " + input.tensor.describe() + (input.tensor.is_contiguous() ? "" : " strided");
  }
  std::string problem;
  try {
    const Tensor got = run_with_meta(call, tensors, problem);
    if (inputs.empty()) problem.clear();  // made from nothing: there is no meta form
    if (problem.empty()) problem = difference(got, dtype, shape, expected, match);
    for (const Sample& input : inputs) {
      if (!problem.empty()) break;
      const auto size = static_cast<std::int64_t>(input.base_values.size());
      problem =
          difference(input.base, input.base.dtype(), Dims{size}, input.base_values, {0, true});
      if (!problem.empty()) problem = "an input changed: " + problem;
    }
  } catch (const std::exception& error) {
    problem = std::string("threw ") + error.what();
  }
  report.count(name, problem);
}

void expect_at(Report& report, const std::string& cell, const TensorCall& call,
               const std::vector<Sample>& inputs, DType dtype, const Dims& shape,
               const std::function<double(const Index&)>& value, const Match& match) {
  Values expected;
  for (std::int64_t i = 0; i < numel_of(shape); ++i) expected.push_back(value(index_of(i, shape)));
  expect(report, cell, call, inputs, dtype, shape, expected, match);
}

void expect_true(Report& report, const std::string& cell, bool holds, const std::string& problem) {
  report.count(cell, holds ? "" : problem);
}

Sample sample_of(const std::string& key, const Dims& shape, DType dtype, Layout layout,
                 Device device) {
  Random random(hash_text(key + to_string(shape)));
  return make_sample(draw_many(random, dtype, numel_of(shape), -2, 2), shape, dtype, layout,
                     device);
}

Sample indices_of(const std::string& key, const Dims& shape, std::int64_t below, Layout layout,
                  Device device) {
  Random random(hash_text(key + to_string(shape)));
  Values values(static_cast<std::size_t>(numel_of(shape)));
  for (double& v : values) v = static_cast<double>(random.below(below));
  return make_sample(values, shape, i64, layout, device);
}

}  // namespace brrr::test
