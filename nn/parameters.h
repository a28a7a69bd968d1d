// The parameters of a module packed into flat tensors: one for each dtype and device, and one for
// their gradients. An optimizer then updates a few tensors, whatever the number of layers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <brrr/autograd/autograd.h>
#include <brrr/nn/module.h>

namespace brrr::nn {

// The module's tensors become views of the flat ones and keep their values. A backward joins their
// gradients with one op. Parameters that require no gradient are not packed. Only one Parameters
// may pack a module at a time.
class Parameters {
 public:
  explicit Parameters(Module& module);

  // Flat tensors, in the order in which their dtype and device first appear in the module.
  std::span<const Tensor> values() const { return values_; }
  // One for each of values(); undefined until a backward has reached one of its parameters.
  // Members of the module that were assigned other tensors are named once on stderr, at the
  // first, second, fourth, ... call.
  std::vector<Tensor> gradients() const;
  void zero_grad();

  // The range of each parameter. Parameters are sorted by the largest power of two that divides
  // their size in bytes, so each offset is a multiple of it, up to 256.
  struct ParameterRange {
    std::string name;
    std::size_t buffer;  // which of values()
    std::int64_t start, length;
  };
  std::span<const ParameterRange> ranges() const { return ranges_; }
  // The range that contains an element of a flat tensor.
  const ParameterRange& range_at(std::size_t buffer, std::int64_t element) const;

  std::int64_t numel() const;

 private:
  void report_assigned() const;

  const Module* module_;  // may be gone
  mutable std::uint64_t reads_ = 0;
  mutable bool reported_ = false;
  std::vector<Tensor> values_;
  std::vector<ParameterRange> ranges_;  // by buffer, then by start
  std::vector<std::unique_ptr<core::GradientGroup>> groups_;
};

}  // namespace brrr::nn
