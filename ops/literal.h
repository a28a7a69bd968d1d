// Numbers in nested braces, as tensor({{1, 2}, {3, 4}}) takes them.
#pragma once

#include <initializer_list>
#include <type_traits>

#include <brrr/dispatch/scalar.h>
#include <brrr/tensor/half.h>

namespace brrr::core {

// A number, or a list of literals. Refers to the initializer lists that it was made from, which
// live until the end of the full expression.
class TensorLiteral {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number> TensorLiteral(Number number) : number_(number) {}
  TensorLiteral(Float16 number) : number_(static_cast<float>(number)) {}
  TensorLiteral(BFloat16 number) : number_(static_cast<float>(number)) {}
  TensorLiteral(std::initializer_list<TensorLiteral> parts) : parts_(parts), is_list_(true) {}

  bool is_list() const { return is_list_; }
  Scalar number() const { return number_; }
  std::initializer_list<TensorLiteral> parts() const { return parts_; }

 private:
  Scalar number_ = 0;
  std::initializer_list<TensorLiteral> parts_;
  bool is_list_ = false;
};

}  // namespace brrr::core
