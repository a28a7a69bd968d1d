// Small f64 tensors from literals, and their values.
#pragma once

#include <vector>

#include <brrr/autograd/autograd.h>
#include <brrr/ops/functions.h>

namespace brrr::test {

using Numbers = std::vector<double>;

inline Tensor wide(const Numbers& values) {
  return tensor<double>(values, {static_cast<std::int64_t>(values.size())});
}
inline Tensor leaf(const Numbers& values) { return requires_grad_(wide(values)); }
inline Numbers numbers(const Tensor& x) { return to_vector<double>(x); }

}  // namespace brrr::test
