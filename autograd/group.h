// Leaves whose gradients are collected in one flat tensor.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

class LeafGroup {
 public:
  explicit LeafGroup(std::vector<Tensor> members);
  ~LeafGroup();
  LeafGroup(const LeafGroup&) = delete;
  LeafGroup& operator=(const LeafGroup&) = delete;

  struct Filled {
    Tensor flat;
    std::vector<Tensor> views;  // one for each leaf
  };
  // Concatenates the pieces (undefined: zeros) and adds them to `flat`.
  Filled filled_with(std::span<const Tensor> pieces) const;
  Filled cut(Tensor gradients) const;
  void set(Filled gradients) noexcept;

  const std::uint64_t id;  // unique in the process
  std::vector<Tensor> leaves;
  Tensor flat;
  mutable std::atomic<bool> lent{false};  // whether callers may hold views of leaves' gradients
};

}  // namespace brrr::autograd
