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
  // The pieces (undefined: zeros) concatenated, and added to `flat`.
  Filled filled_with(std::span<const Tensor> pieces) const;
  Filled cut(Tensor gradients) const;
  void set(Filled gradients) noexcept;

  const std::uint64_t id;  // never used again
  std::vector<Tensor> leaves;
  Tensor flat;
  mutable std::atomic<bool> lent{false};  // callers may have handles to views of leaves
};

}  // namespace brrr::autograd
