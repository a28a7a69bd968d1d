#include "tests/harness/attention_programs.h"

#include <cmath>
#include <limits>

#include "tests/harness/compile_check.h"

namespace brrr::test {
namespace {

Tensor draw(const Dims& shape, std::uint64_t seed, double scale) {
  return noise(shape, seed) * (2 * scale);
}

}  // namespace

std::string AttentionCase::name() const {
  constexpr const char* kMaskings[] = {"no mask", "causal", "mask per batch", "mask per key"};
  return std::string(name_of(dtype)) + " " + to_string(query) + ", " + std::to_string(keys) +
         " keys, " + kMaskings[static_cast<int>(masking)] + ", scales " + std::to_string(scale) +
         " and " + std::to_string(query_scale) + (heads_last ? ", heads last" : "") +
         (has_gradient ? "" : ", forward only") +
         (packing == Packing::stacked   ? ", stacked"
          : packing == Packing::columns ? ", columns of one tensor"
                                        : "");
}

std::vector<Tensor> AttentionCase::arguments(Device device) const {
  Dims key = query;
  key[key.size() - 2] = keys;
  const std::int64_t rows = query[query.size() - 2];
  Tensor mask;
  const Tensor column = arange(0, keys, 1, {.dtype = i64});
  if (masking == Masking::causal)
    mask = view(arange(0, rows, 1, {.dtype = i64}), {rows, 1}) >= column;
  if (masking == Masking::per_batch) {
    Dims shape = query;
    shape[shape.size() - 1] = keys;
    // The first key is seen by every query, and whole tiles by none.
    mask = logical_or(logical_and(draw(shape, 5, 1) > 0.0, column < 64), column == 0);
  }
  if (masking == Masking::per_key) {
    Dims shape = query;
    shape[shape.size() - 2] = 1;
    shape[shape.size() - 1] = keys;
    for (int d = 1; d < shape.size() - 2; ++d) shape[d] = 1;
    mask = logical_or(draw(shape, 6, 1) > 0.0, column == 0);
  }
  const auto made = [&](const Dims& shape, std::uint64_t seed, double by) {
    return to(cast(draw(shape, seed, by), dtype), device);
  };
  const double spread = 1 / std::sqrt(static_cast<double>(query.back()) * scale * query_scale);
  std::vector<Tensor> all = {made(query, 1, spread), made(key, 2, 1), made(key, 3, 1),
                             made(query, 4, 1)};
  if (mask.defined()) all.push_back(to(mask, device));
  return all;
}

namespace {

// [outer, rows, inner, width] of each operand, next to one another.
Tensor pack(const AttentionCase& c, const std::vector<Tensor>& a) {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < 3; ++i) parts.push_back(permute(a[i], {0, 2, 1, 3}));
  if (c.packing == Packing::stacked) return stack(parts, 2);
  const std::int64_t columns = parts[0].size(2) * parts[0].size(3);
  for (Tensor& each : parts) each = reshape(each, {each.size(0), each.size(1), columns});
  return cat(parts, 2);
}
Tensor part(const AttentionCase& c, const Tensor& packed, std::size_t i) {
  const auto number = static_cast<std::int64_t>(i);
  if (c.packing == Packing::stacked) return select(permute(packed, {2, 0, 3, 1, 4}), 0, number);
  const std::int64_t columns = packed.size(2) / 3;
  const Tensor one = narrow(packed, 2, number * columns, columns);
  return permute(reshape(one, {one.size(0), one.size(1), c.query[1], c.query[3]}), {0, 2, 1, 3});
}

}  // namespace

std::vector<Tensor> attend(const AttentionCase& c, const std::vector<Tensor>& a) {
  const auto leaf = [&](std::size_t i) {
    return c.has_gradient ? requires_grad_(detach(a[i])) : a[i];
  };
  const bool packs = c.packing != Packing::none;
  const Tensor packed = packs ? requires_grad_(detach(pack(c, a))) : Tensor();
  const auto operand = [&](std::size_t i) { return packs ? part(c, packed, i) : leaf(i); };
  const Tensor query = operand(0), key = operand(1), value = operand(2);
  const Tensor multiple = c.query_scale == 1 ? query : query * c.query_scale;
  Tensor scores = matmul(multiple, transpose(key, -2, -1));
  if (c.scale != 1) scores = scores * c.scale;
  if (c.masking != Masking::none)
    scores = where(a[4], scores, -std::numeric_limits<double>::infinity());
  const Tensor out = matmul(softmax(scores, -1), value);
  if (!c.has_gradient) return {out};
  Tensor result = out, d_result = a[3];
  if (c.heads_last) {
    result = contiguous(permute(out, {0, 2, 1, 3}));
    d_result = permute(d_result, {0, 2, 1, 3});
  }
  const Tensor total = sum(result * d_result);
  std::vector<Tensor> all = packs ? grad(total, {packed}) : grad(total, {query, key, value});
  all.insert(all.begin(), detach(result));
  return all;
}

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  for (const DType dtype : {bf16, f16, f32}) {
    for (const Masking masking :
         {Masking::none, Masking::causal, Masking::per_batch, Masking::per_key}) {
      cases.push_back({.dtype = dtype, .masking = masking});
      cases.push_back({.dtype = dtype,
                       .query = {1, 2, 200, 64},
                       .keys = 200,
                       .masking = masking,
                       .scale = 0.25,
                       .heads_last = true});
    }
    for (const std::int64_t width : {16, 32, 48})
      cases.push_back({.dtype = dtype, .query = {2, 2, 65, width}, .keys = 129});
    cases.push_back({.dtype = dtype, .query = {5, 33, 32}, .keys = 70});
    cases.push_back({.dtype = dtype, .query = {2, 70, 64}, .keys = 70, .query_scale = 0.3});
    cases.push_back(
        {.dtype = dtype, .query = {70, 64}, .keys = 70, .scale = 0.7, .query_scale = 2});
    cases.push_back({.dtype = dtype, .query = {100, 16}, .keys = 300, .scale = 2});
    cases.push_back({.dtype = dtype, .query = {2, 2, 300, 64}, .keys = 77, .has_gradient = false});
    for (const Packing packing : {Packing::stacked, Packing::columns}) {
      cases.push_back({.dtype = dtype, .packing = packing});
      cases.push_back({.dtype = dtype,
                       .query = {2, 3, 100, 32},
                       .keys = 100,
                       .masking = Masking::causal,
                       .scale = 0.3,
                       .query_scale = 0.7,
                       .heads_last = true,
                       .packing = packing});
    }
  }
  cases.push_back({.query = {2, 2, 130, 128}, .keys = 260, .masking = Masking::causal});
  return cases;
}

}  // namespace brrr::test
