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

std::optional<Contraction> contraction_of(const BodyStrides& of, bool swapped) {
  const BodySpec& spec = of.spec;
  const std::span<const Dims> strides = of.strides;
  const Body& body = spec.body;
  const BodyValue& value = body.value(body.contraction());
  Contraction c;
  c.a = body.value(value.operands[swapped ? 1 : 0]).number;
  c.b = body.value(value.operands[swapped ? 0 : 1]).number;
  c.dtype = body.inputs[at(c.a)].dtype;
  const Dims &a = strides[at(c.a)], &b = strides[at(c.b)];
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
