// The parameters of a module side by side: one flat tensor a type and device, and one of their
// gradients. What an optimizer does, it does to a few tensors, however many layers there are.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <brrr/autograd/autograd.h>
#include <brrr/nn/module.h>

namespace brrr::nn {

// The module's tensors become views into the flat ones and keep their values: writing to either is
// writing to both. They collect their gradients together, one op a backward. Parameters that
// require no gradient stay where they are. A module is packed once at a time.
class Parameters {
 public:
  explicit Parameters(Module& module);

  // In the order in which a type and device first appears.
  std::span<const Tensor> values() const { return values_; }
  // Of the same shapes; undefined before a backward has reached one of its parameters.
  std::vector<Tensor> gradients() const;
  void zero_grad();

  // Where each parameter lies. Those whose sizes are multiples of higher powers of two come first,
  // so that each begins at a multiple of its own, up to 256 bytes.
  struct Slice {
    std::string name;
    std::size_t buffer;  // which of values()
    std::int64_t start, length;
  };
  std::span<const Slice> slices() const { return slices_; }
  // The parameter that an element of a flat tensor belongs to.
  const Slice& slice_at(std::size_t buffer, std::int64_t element) const;

  std::int64_t numel() const;

 private:
  std::vector<Tensor> values_;
  std::vector<Slice> slices_;  // by buffer, then by start
  std::vector<std::unique_ptr<GradientGroup>> groups_;
};

}  // namespace brrr::nn
