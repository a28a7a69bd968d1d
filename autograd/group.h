// Leaves whose gradients are collected in one flat tensor.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

class Group {
 public:
  explicit Group(std::vector<Tensor> members);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  struct Filled {
    Tensor flat;
    std::vector<Tensor> views;  // a leaf each
  };
  // The pieces, undefined where a leaf got none, side by side, added to what was there.
  Filled filled_with(std::span<const Tensor> pieces) const;
  Filled cut(Tensor gradients) const;
  void set(Filled gradients) noexcept;

  const std::uint64_t id;  // no other group's, at any time
  std::vector<Tensor> leaves;
  Tensor flat;
  mutable std::atomic<bool> lent{false};  // a handle to a leaf's view was given out, and may live
};

}  // namespace brrr::autograd
