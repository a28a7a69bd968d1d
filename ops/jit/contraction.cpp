#include "brrr/ops/jit/contraction.h"

#include <algorithm>

namespace brrr::jit {
namespace {

using std::int64_t;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::optional<Roles> roles_of(const BodySpec& spec, const Dims& a, const Dims& b) {
  Roles roles;
  for (int d = 0; d < spec.dims.size(); ++d) {
    const bool in_a = a[d] != 0, in_b = b[d] != 0;
    if (spec.reduced >> d & 1) {
      if (!in_a || !in_b) return {};
      roles.summed.push_back(d);
    } else if (in_a && in_b) {
      roles.batches.push_back({d});
    } else if (in_a) {
      roles.rows.push_back(d);
    } else if (in_b) {
      roles.columns.push_back(d);
    } else if (spec.dims[d] != 1) {
      return {};
    }
  }
  return roles;
}

// Orders dimensions by an operand's strides, largest first, and gives the stride of their joint
// index.
std::optional<int64_t> join(const BodySpec& spec, const Dims& strides, std::vector<int>& dims) {
  std::ranges::sort(dims, [&](int p, int q) { return strides[p] > strides[q]; });
  return joint_stride(spec, strides, dims);
}

// Batches that both factors pass through as one become one.
void join_batches(const BodySpec& spec, const Dims& a, const Dims& b, Roles& roles) {
  for (std::size_t i = 0; i + 1 < roles.batches.size();) {
    std::vector<int> both = roles.batches[i];
    both.insert(both.end(), roles.batches[i + 1].begin(), roles.batches[i + 1].end());
    if (!joint_stride(spec, a, both) || !joint_stride(spec, b, both)) {
      ++i;
      continue;
    }
    roles.batches[i] = std::move(both);
    roles.batches.erase(roles.batches.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

// Outputs that do not vary along any of `dims`, as bits; none if one varies along some of them, or
// does not vary along some of `batch`.
std::optional<std::uint32_t> constant_outputs(const BodySpec& spec, std::span<const Dims> strides,
                                              const std::vector<int>& dims,
                                              const std::vector<int>& batch) {
  std::uint32_t constant = 0;
  const std::size_t inputs = spec.body.inputs.size();
  for (std::size_t k = inputs; k < strides.size(); ++k) {
    const auto moves = [&](int d) { return strides[k][d] != 0; };
    if (!std::ranges::all_of(batch, moves)) return {};
    if (dims.empty() || std::ranges::all_of(dims, moves)) continue;
    if (std::ranges::any_of(dims, moves)) return {};
    constant |= 1u << (k - inputs);
  }
  return constant;
}

int64_t count_of(const BodySpec& spec, const std::vector<int>& dims) {
  int64_t count = 1;
  for (const int d : dims) count *= spec.dims[d];
  return count;
}

}  // namespace

std::optional<int64_t> joint_stride(const BodySpec& spec, const Dims& strides,
                                    const std::vector<int>& dims) {
  for (std::size_t i = 0; i + 1 < dims.size(); ++i) {
    if (strides[dims[i]] != strides[dims[i + 1]] * spec.dims[dims[i + 1]]) return {};
  }
  return dims.empty() ? 0 : strides[dims.back()];
}

namespace {

// A factor with its inputs, the first of which varies along all dimensions that one varies along.
std::optional<ContractionFactor> factor_of(const Body& body, std::span<const Dims> strides,
                                           int value) {
  ContractionFactor factor{value, {}};
  const auto dims_of = [&](int input) {
    std::uint32_t dims = 0;
    for (int d = 0; d < strides[at(input)].size(); ++d)
      dims |= static_cast<std::uint32_t>(strides[at(input)][d] != 0) << d;
    return dims;
  };
  std::uint32_t all = 0;
  for (const int i : values_of_factor(body, value)) {
    if (body.value(i).kind != BodyValue::Kind::input) continue;
    factor.inputs.push_back({body.value(i).number, 0, 0, {}});
    all |= dims_of(body.value(i).number);
  }
  const auto first = std::ranges::find_if(
      factor.inputs, [&](const auto& input) { return dims_of(input.number) == all; });
  if (first == factor.inputs.end()) return {};
  std::rotate(factor.inputs.begin(), first, first + 1);
  return factor;
}

// Sets the strides of a factor's inputs; false where one does not have them.
bool set_strides(const BodyStrides& of, const std::vector<int>& lines,
                 const std::vector<int>& summed, const std::vector<std::vector<int>>& batches,
                 ContractionFactor& factor) {
  for (ContractionFactor::Input& input : factor.inputs) {
    const Dims& strides = of.strides[at(input.number)];
    const auto line = joint_stride(of.spec, strides, lines),
               depth = joint_stride(of.spec, strides, summed);
    if (!line || !depth) return false;
    input.line_stride = *line, input.depth_stride = *depth;
    for (const std::vector<int>& dims : batches) {
      if (!joint_stride(of.spec, strides, dims)) return false;
      input.batch_strides.push_back(strides[dims.back()]);
    }
  }
  return true;
}

}  // namespace

std::vector<int> values_of_factor(const Body& body, int factor) {
  std::vector<bool> needed(body.values.size(), false);
  needed[at(factor)] = true;
  for (int i = factor; i >= 0; --i) {
    if (!needed[at(i)]) continue;
    for (const int operand : body.value(i).operands) needed[at(operand)] = true;
  }
  std::vector<int> values;
  for (int i = 0; i <= factor; ++i) {
    if (needed[at(i)]) values.push_back(i);
  }
  return values;
}

bool has_computed_factor(const Body& body) {
  const int product = body.contraction();
  return product >= 0 && std::ranges::any_of(body.value(product).operands, [&](int factor) {
           return body.value(factor).kind != BodyValue::Kind::input;
         });
}

void load_factors_per_element(Body& body) {
  for (const int factor : body.value(body.contraction()).operands) {
    for (const int i : values_of_factor(body, factor)) {
      if (body.value(i).kind == BodyValue::Kind::input)
        body.inputs[at(body.value(i).number)].scope = Body::Scope::element;
    }
  }
}

bool has_separate_factors(const Body& body) {
  using Kind = BodyValue::Kind;
  const BodyValue& product = body.value(body.contraction());
  std::vector<int> part_of(body.values.size(), -1);  // the factor that a value is a part of
  for (const int factor : product.operands) {
    for (const int i : values_of_factor(body, factor)) {
      const Kind kind = body.value(i).kind;
      if (kind == Kind::scalar) continue;
      const bool is_other = part_of[at(i)] >= 0 && product.operands[0] != product.operands[1];
      const bool is_wide = kind == Kind::input && size_of(body.value(i).dtype) > kWidestOfFactor;
      if ((kind != Kind::input && kind != Kind::expression) || is_other || is_wide) return false;
      part_of[at(i)] = factor;
    }
  }
  const auto is_part_of_factor = [&](const Body::TensorOperand& output) {
    return part_of[at(output.value)] >= 0;
  };
  if (std::ranges::any_of(body.outputs, is_part_of_factor)) return false;
  const std::vector<Level> levels = levels_of(body);
  for (int i = 0; i < static_cast<int>(body.values.size()); ++i) {
    const Kind kind = body.value(i).kind;
    const bool is_part = part_of[at(i)] >= 0;
    if (kind == Kind::arg || levels[at(i)].per_element() != is_part) return false;
    if (kind == Kind::reduction) {
      const int reduced = body.value(i).operands[0];
      if (std::ranges::find(product.operands, reduced) == product.operands.end()) return false;
    }
  }
  return true;
}

std::optional<Contraction> contraction_of(const BodyStrides& of, bool swapped) {
  const BodySpec& spec = of.spec;
  const std::span<const Dims> strides = of.strides;
  const Body& body = spec.body;
  const BodyValue& value = body.value(body.contraction());
  std::optional<ContractionFactor> factor_a =
                                       factor_of(body, strides, value.operands[swapped ? 1 : 0]),
                                   factor_b =
                                       factor_of(body, strides, value.operands[swapped ? 0 : 1]);
  if (!factor_a || !factor_b) return {};
  Contraction c;
  c.a = std::move(*factor_a), c.b = std::move(*factor_b);
  c.dtype = body.value(c.a.value).dtype;
  const Dims &a = strides[at(c.a.first())], &b = strides[at(c.b.first())];
  std::optional<Roles> roles = roles_of(spec, a, b);
  if (!roles) return {};
  const auto a_row = join(spec, a, roles->rows), b_col = join(spec, b, roles->columns),
             a_col = join(spec, a, roles->summed), b_row = join(spec, b, roles->summed);
  if (!a_row || !b_col || !a_col || !b_row) return {};
  // Both factors must pass through the summed dimensions in one order.
  std::vector<int> summed = roles->summed;
  if (join(spec, a, summed) != a_col || summed != roles->summed) return {};
  join_batches(spec, a, b, *roles);
  std::vector<int> batch;
  for (const std::vector<int>& dims : roles->batches)
    batch.insert(batch.end(), dims.begin(), dims.end());
  const auto first_row = constant_outputs(spec, strides, roles->rows, batch),
             first_column = constant_outputs(spec, strides, roles->columns, batch);
  if (!first_row || !first_column) return {};
  c.first_row = *first_row, c.first_column = *first_column;
  if (!set_strides(of, roles->rows, roles->summed, roles->batches, c.a) ||
      !set_strides(of, roles->columns, roles->summed, roles->batches, c.b))
    return {};
  MatrixProduct& p = c.product;
  p.m = count_of(spec, roles->rows);
  p.n = count_of(spec, roles->columns);
  p.k = count_of(spec, roles->summed);
  p.a.row = *a_row, p.a.col = *a_col, p.b.row = *b_row, p.b.col = *b_col;
  Dims sizes;
  std::vector<int> order = batch;
  for (const std::vector<int>& dims : roles->batches) {
    p.batch.push_back(count_of(spec, dims));
    p.a.batch.push_back(a[dims.back()]);
    p.b.batch.push_back(b[dims.back()]);
  }
  order.insert(order.end(), roles->rows.begin(), roles->rows.end());
  order.insert(order.end(), roles->columns.begin(), roles->columns.end());
  for (const int d : order) sizes.push_back(spec.dims[d]);
  if (sizes.empty()) sizes.push_back(1);
  c.results = space_of(sizes);
  for (const Dims& operand : strides) {
    Dims of;
    for (const int d : order) of.push_back(operand[d]);
    if (of.empty()) of.push_back(0);
    add_operand(c.results, sizes, of);
  }
  coalesce(c.results);
  c.roles = std::move(*roles);
  return c;
}

}  // namespace brrr::jit
