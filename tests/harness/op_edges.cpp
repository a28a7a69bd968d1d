// Cells of extreme shapes, compared with PyTorch: 0-d tensors with dimension 0 or -1, empty
// dimensions, empty lists of dimensions.
#include <cmath>
#include <limits>

#include "brrr/ops/functions.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Every function with a dimension that takes a 0-d tensor: the value 1.5, or 3 as an integer.
double zero_d_value(DType dtype) { return is_floating(dtype) ? 1.5 : dtype == boolean ? 1 : 3; }

void zero_d_alone(Report& report, DType dtype, int dim, Device device) {
  const double v = zero_d_value(dtype);
  const Sample x = make_sample({v}, {}, dtype, Layout::contiguous, device);
  const DType floating = is_floating(dtype) ? dtype : f32, wide = is_floating(dtype) ? dtype : i64;
  const auto gives = [&](const char* name, const TensorCall& call, DType type, double expected,
                         const Dims& shape = {}) {
    expect(report, std::string(name) + " 0-d", call, {x}, type, shape, {expected});
  };
  for (const bool keepdim : {false, true}) {
    gives(
        "sum", [&](In in) { return sum(in[0], {dim}, keepdim); }, wide, v);
    gives(
        "mean", [&](In in) { return mean(in[0], {dim}, keepdim); }, floating, v);
    gives(
        "prod", [&](In in) { return prod(in[0], {dim}, keepdim); }, wide, v);
    gives(
        "max", [&](In in) { return max(in[0], {dim}, keepdim); }, dtype, v);
    gives(
        "min", [&](In in) { return min(in[0], {dim}, keepdim); }, dtype, v);
    gives(
        "any", [&](In in) { return any(in[0], {dim}, keepdim); }, boolean, 1);
    gives(
        "all", [&](In in) { return all(in[0], {dim}, keepdim); }, boolean, 1);
    gives(
        "norm", [&](In in) { return norm(in[0], {dim}, keepdim); }, floating, v);
    gives(
        "argmax", [&](In in) { return argmax(in[0], dim, keepdim); }, i64, 0);
    gives(
        "argmin", [&](In in) { return argmin(in[0], dim, keepdim); }, i64, 0);
    gives(
        "var", [&](In in) { return var(in[0], {dim}, keepdim, 0); }, floating, 0);
    gives(
        "std", [&](In in) { return std(in[0], {dim}, keepdim, 0); }, floating, 0);
    gives(
        "logsumexp", [&](In in) { return logsumexp(in[0], {dim}, keepdim); }, floating, v);
  }
  gives(
      "var of one", [&](In in) { return var(in[0], {dim}); }, floating, std::nan(""));
  gives(
      "softmax", [&](In in) { return softmax(in[0], dim); }, floating, 1);
  gives(
      "log_softmax", [&](In in) { return log_softmax(in[0], dim); }, floating, 0);
  gives(
      "cumsum", [&](In in) { return cumsum(in[0], dim); }, wide, v);
  gives(
      "squeeze", [&](In in) { return squeeze(in[0], dim); }, dtype, v);
  gives(
      "transpose", [&](In in) { return transpose(in[0], dim, 0); }, dtype, v);
  gives(
      "movedim", [&](In in) { return movedim(in[0], 0, dim); }, dtype, v);
  gives(
      "permute", [&](In in) { return permute(in[0], {}); }, dtype, v);
  gives(
      "roll", [&](In in) { return roll(in[0], 3, dim); }, dtype, v);
  gives("flatten", [&](In in) { return flatten(in[0], dim, dim); }, dtype, v, {1});
  gives("unsqueeze", [&](In in) { return unsqueeze(in[0], dim); }, dtype, v, {1});
  gives("stack", [&](In in) { return stack({in[0]}, dim); }, dtype, v, {1});
}

void zero_d_indexed(Report& report, DType dtype, int dim, Device device) {
  const double v = zero_d_value(dtype);
  const Sample x = make_sample({v}, {}, dtype, Layout::contiguous, device);
  const Sample at = make_sample({0}, {}, i64, Layout::contiguous, device);
  const Sample list = make_sample({0}, {1}, i64, Layout::contiguous, device);
  const Sample vector = make_sample({v}, {1}, dtype, Layout::contiguous, device);
  const auto picks = [&](const char* name, const TensorCall& call,
                         const std::vector<Sample>& inputs, const Dims& shape, double expected) {
    expect(report, std::string(name) + " 0-d", call, inputs, dtype, shape, {expected});
  };
  const auto gathered = [&](In in) { return gather(in[0], dim, in[1]); };
  picks("gather", gathered, {x, at}, {}, v);
  picks("gather by a list", gathered, {x, list}, {1}, v);
  picks("gather of a list", gathered, {vector, at}, {}, v);
  const auto selected = [&](In in) { return index_select(in[0], dim, in[1]); };
  picks("index_select", selected, {x, at}, {}, v);
  picks("index_select by a list", selected, {x, list}, {}, v);
  picks("index_select of a list", selected, {vector, at}, {1}, v);
  picks(
      "scatter_add", [&](In in) { return scatter_add(in[0], dim, in[1], in[2]); }, {x, at, x}, {},
      dtype == boolean ? 1 : 2 * v);
}

void zero_d(Report& report, DType dtype, int dim, Device device) {
  zero_d_alone(report, dtype, dim, device);
  zero_d_indexed(report, dtype, dim, device);
}

void empty_dimensions(Report& report, DType dtype, Device device) {
  const Sample x = make_sample({}, {2, 0}, dtype, Layout::contiguous, device);
  const DType floating = is_floating(dtype) ? dtype : f32;
  for (const int dim : {0, 1, -1}) {
    expect(report, "softmax of nothing", [&](In in) { return softmax(in[0], dim); }, {x}, floating,
           {2, 0}, {});
    expect(report, "log_softmax of nothing", [&](In in) { return log_softmax(in[0], dim); }, {x},
           floating, {2, 0}, {});
  }
  expect(report, "logsumexp of nothing", [](In in) { return logsumexp(in[0], {1}); }, {x}, floating,
         {2}, {-kInf, -kInf});
  expect(report, "logsumexp of nothing, keepdim", [](In in) { return logsumexp(in[0], {1}, true); },
         {x}, floating, {2, 1}, {-kInf, -kInf});
  expect(report, "logsumexp along others", [](In in) { return logsumexp(in[0], {0}); }, {x},
         floating, {0}, {});
  expect(report, "logsumexp of all of nothing", [](In in) { return logsumexp(in[0]); }, {x},
         floating, {}, {-kInf});
}

// torch.sum(x, dim=()) reduces all, and so do all that take such a list but any and all.
void empty_lists(Report& report, Device device) {
  const Sample x = make_sample({1, -2, 3, 4, 0, 6}, {2, 3}, f32, Layout::transposed, device);
  const Match close{1e-5};
  for (const bool keepdim : {false, true}) {
    const Dims shape = keepdim ? Dims{1, 1} : Dims{};
    const auto gives = [&](const char* name, const TensorCall& call, double expected) {
      expect(report, std::string(name) + " {}", call, {x}, f32, shape, {expected}, close);
    };
    gives(
        "sum", [&](In in) { return sum(in[0], {}, keepdim); }, 12);
    gives(
        "mean", [&](In in) { return mean(in[0], {}, keepdim); }, 2);
    gives(
        "prod", [&](In in) { return prod(in[0], {}, keepdim); }, 0);
    gives(
        "max", [&](In in) { return max(in[0], {}, keepdim); }, 6);
    gives(
        "min", [&](In in) { return min(in[0], {}, keepdim); }, -2);
    gives(
        "norm", [&](In in) { return norm(in[0], {}, keepdim); }, std::sqrt(66.0));
    gives(
        "var", [&](In in) { return var(in[0], {}, keepdim); }, 42.0 / 5);
    gives(
        "std", [&](In in) { return std(in[0], {}, keepdim); }, std::sqrt(42.0 / 5));
    gives(
        "logsumexp", [&](In in) { return logsumexp(in[0], {}, keepdim); },
        std::log(std::exp(1) + std::exp(-2) + std::exp(3) + std::exp(4) + 1 + std::exp(6)));
    expect(report, "any {}", [&](In in) { return any(in[0], {}, keepdim); }, {x}, boolean, {2, 3},
           {1, 1, 1, 1, 0, 1});
    expect(report, "all {}", [&](In in) { return all(in[0], {}, keepdim); }, {x}, boolean, {2, 3},
           {1, 1, 1, 1, 0, 1});
  }
}

}  // namespace

void check_edge_cells(Report& report, Device device) {
  for (DType dtype : kAllDTypes) {
    for (const int dim : {0, -1}) zero_d(report, dtype, dim, device);
    empty_dimensions(report, dtype, device);
  }
  empty_lists(report, device);
}

}  // namespace brrr::test
