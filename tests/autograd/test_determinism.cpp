// Gradients have the same bits in 20 runs, and with 1, 2 and 4 threads.
#include <brrr/brrr.h>

#include <algorithm>
#include <cstring>

#include "brrr/tensor/thread_pool.h"
#include "tests/harness/catch.h"

using namespace brrr;

namespace {

using Bits = std::vector<std::vector<unsigned char>>;

std::vector<unsigned char> bits_of(const Tensor& x) {
  const Tensor plain = contiguous(x);
  std::vector<unsigned char> bytes(plain.bytes());
  std::memcpy(bytes.data(), plain.data(), bytes.size());
  return bytes;
}

// Sizes that are cut into chunks for several threads, and that no power of two divides.
struct Model {
  Tensor table, w1, b1, w2, scale;
  Tensor ids, x;

  Model() {
    manual_seed(17);
    table = requires_grad_(randn({301, 129}));
    w1 = requires_grad_(randn({257, 129}) * 0.1);
    b1 = requires_grad_(randn({257}));
    w2 = requires_grad_(randn({129, 257}) * 0.1);
    scale = requires_grad_(randn({129}));
    ids = randint(0, 301, {1021});
    x = randn({1021, 129});
  }
  std::vector<Tensor> leaves() const { return {table, w1, b1, w2, scale}; }

  Tensor loss() const {
    const Tensor words = embedding(table, ids) + x;
    const auto block = [this](const Tensor& v) {
      return linear(dropout(gelu(linear(layer_norm(v, 1, scale), w1, b1)), 0.2), w2);
    };
    const Tensor y = words + checkpoint(block, words);
    const Tensor scores = matmul(narrow(y, 0, 0, 255), transpose(narrow(y, 0, 300, 255), 0, 1));
    return mean(square(softmax(scores * 0.05, 1))) + logsumexp(y) + norm(max(y, {0})) +
           mean(cumsum(y, 0)) + sum(var(cat({y, words}, 1), {0}));
  }
};

Bits gradients(const Model& model) {
  manual_seed(23);
  for (const Tensor& leaf : model.leaves()) zero_grad(leaf);
  const Tensor loss = model.loss();
  backward(loss);
  Bits bits = {bits_of(loss)};
  for (const Tensor& leaf : model.leaves()) bits.push_back(bits_of(grad(leaf)));
  // Second order: along the gradient itself.
  const Tensor small = sum(tanh(matmul(narrow(model.x, 0, 0, 63), transpose(model.w1, 0, 1))));
  const Tensor first = grad(small, model.w1, {.create_graph = true});
  bits.push_back(bits_of(grad(sum(square(first)), model.w1)));
  return bits;
}

}  // namespace

TEST_CASE("gradients have the same bits in every run and with any number of threads",
          "[autograd][determinism]") {
  const Model model;
  const int before = num_threads();
  set_num_threads(1);
  const Bits expected = gradients(model);
  for (const auto& bytes : expected) {
    const bool any = std::any_of(bytes.begin(), bytes.end(), [](auto byte) { return byte != 0; });
    CHECK(any);
  }
  for (int run = 0; run < 20; ++run) {
    set_num_threads(run % 3 == 0 ? 1 : run % 3 == 1 ? 2 : 4);
    INFO("run " << run);
    CHECK(gradients(model) == expected);
  }
  set_num_threads(before);
}
