// tensor({{1, 2}, {3, 4}}): the shape that nested braces have, and their numbers in order.
#include "brrr/ops/literal.h"

#include <fmt/format.h>

#include <memory>

#include "brrr/ops/functions.h"
#include "brrr/ops/scalar_attr.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

std::string described(const TensorLiteral& literal) {
  return literal.is_list() ? fmt::format("a list of {}", literal.parts().size()) : "a number";
}

// Of the first element of each list; lists of another length are refused by LiteralReader.
Dims shape_of(std::initializer_list<TensorLiteral> values) {
  Dims shape(values.size());
  const TensorLiteral* first = values.begin();
  while (shape.back() > 0 && first->is_list()) {
    shape.push_back(static_cast<std::int64_t>(first->parts().size()));
    first = first->parts().begin();
  }
  return shape;
}

template <class T>
T converted(Scalar number) {
  require_representable("tensor", dtype_of<T>, number);
  if constexpr (!is_floating(dtype_of<T>))
    return static_cast<T>(number.to_int());
  else if constexpr (is_half(dtype_of<T>))
    return T(static_cast<float>(number.to_double()));
  else
    return static_cast<T>(number.to_double());
}

template <class T>
class LiteralReader {
 public:
  LiteralReader(const Dims& shape, T* to) : shape_(shape), next_(to) {}

  void read(std::initializer_list<TensorLiteral> list) {
    const int depth = place_.size();
    place_.push_back(0);
    for (const TensorLiteral& part : list) {
      check(part, depth + 1);
      if (part.is_list())
        read(part.parts());
      else
        *next_++ = converted<T>(part.number());
      ++place_[depth];
    }
    place_.resize(depth);
  }

 private:
  void check(const TensorLiteral& part, int depth) const {
    const bool list = depth < shape_.size();
    if (part.is_list() == list &&
        (!list || static_cast<std::int64_t>(part.parts().size()) == shape_[depth]))
      return;
    fail("[tensor] expected {} at {}, as in the places before it, got {}",
         list ? fmt::format("a list of {}", shape_[depth]) : "a number", to_string(place_),
         described(part));
  }

  const Dims& shape_;
  Dims place_;
  T* next_;
};

}  // namespace

template <class T>
Tensor tensor(std::initializer_list<TensorLiteral> values, Device device) {
  const Dims shape = shape_of(values);
  const auto count = static_cast<std::size_t>(checked_numel(shape, sizeof(T), "tensor"));
  const auto numbers = std::make_unique<T[]>(count);
  LiteralReader<T>(shape, numbers.get()).read(values);
  return tensor<T>(std::span<const T>(numbers.get(), count), shape, device);
}

Tensor tensor(std::initializer_list<TensorLiteral> values, Device device) {
  return tensor<float>(values, device);
}

#define X(e, type, name) template Tensor tensor<type>(std::initializer_list<TensorLiteral>, Device);
BRRR_DTYPES(X)
#undef X

}  // namespace brrr
