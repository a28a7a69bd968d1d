// A coefficient of a transformation (a rate, a decay): a number of the program, or a 0-d tensor on
// the device, which can change between steps without the host.
#pragma once

#include <optional>

#include <brrr/ops/operand.h>
#include <brrr/tensor/tensor.h>

namespace brrr::optim {

class Coefficient {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number> Coefficient(Number number)
      : number_(static_cast<double>(number)) {}
  Coefficient(const Tensor& value);  // 0-d, floating

  // The number; none if it is a tensor.
  std::optional<double> number() const {
    return tensor_.defined() ? std::nullopt : std::optional(number_);
  }
  // As an operand of pointwise ops; refers to this coefficient.
  operator core::Operand() const {
    return tensor_.defined() ? core::Operand(tensor_) : core::Operand(number_);
  }

 private:
  double number_ = 0;
  Tensor tensor_;
};

Coefficient one_minus(const Coefficient& c);

// Throws "[function] expected name in ..., got ..." for a number out of range, with the outermost
// CompositeScope's name if there is one; tensors are not checked.
void require_decay(const char* function, const char* name, const Coefficient& c);  // in [0, 1)
void require_not_negative(const char* function, const char* name, const Coefficient& c);

}  // namespace brrr::optim
