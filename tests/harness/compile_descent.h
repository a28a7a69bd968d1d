// A training step of one leaf, for tests of what compiled steps do with an optimizer's numbers.
#pragma once

#include <utility>

#include <brrr/brrr.h>

namespace brrr::test {

// A leaf that a step moves down a gradient of ones.
struct Descent {
  explicit Descent(const optim::Transformation& transformation)
      : leaf(requires_grad_(zeros({4}))), optimizer({leaf}, transformation) {}
  auto step(CompileOptions options = {}) {
    return compile(
        [this] {
          optimizer.zero_grad();
          backward(sum(leaf));
          optimizer.step();
        },
        std::move(options));
  }

  Tensor leaf;
  optim::Optimizer optimizer;
};

}  // namespace brrr::test
