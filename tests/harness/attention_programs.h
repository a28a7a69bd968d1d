// Attention as users write it: a product, a softmax, a product; with masks, factors and gradients.
#pragma once

#include <string>
#include <vector>

#include <brrr/brrr.h>

namespace brrr::test {

enum class Masking { none, causal, per_batch, per_key };
// How queries, keys and values are parts of one tensor: not at all; of [outer, rows, 3, inner,
// width]; of [outer, rows, 3 * inner * width].
enum class Packing { none, stacked, columns };

struct AttentionCase {
  DType dtype = bf16;
  Dims query = {2, 3, 40, 64};
  std::int64_t keys = 40;
  Masking masking = Masking::none;
  double scale = 1;         // of the scores
  double query_scale = 1;   // of the query, before
  bool heads_last = false;  // the result is permuted to [outer, rows, inner, width] and copied
  bool has_gradient = true;
  Packing packing = Packing::none;

  std::string name() const;
  // Query, key, value, the result's gradient, mask; the same values in each type.
  std::vector<Tensor> arguments(Device device) const;
};

// The result, and the gradients of query, key and value, or of the tensor that they are parts of.
std::vector<Tensor> attend(const AttentionCase& c, const std::vector<Tensor>& arguments);

// Cases that become one call forward and one backward.
std::vector<AttentionCase> attention_cases();

}  // namespace brrr::test
