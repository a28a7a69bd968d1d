// A number written in the user's code. It knows its category, so that `x * 2` keeps x's type, and
// `n * 0.5` makes integers floating.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <brrr/tensor/dtype.h>
#include <brrr/tensor/error.h>

namespace brrr::core {

class Scalar {
 public:
  template <std::integral I>
  Scalar(I value)
      : category_(std::same_as<I, bool> ? Category::boolean : Category::integer),
        integer_(static_cast<std::int64_t>(value)) {
    if constexpr (std::is_unsigned_v<I> && sizeof(I) >= sizeof(integer_)) {
      if (integer_ < 0) [[unlikely]]
        fail("[number] expected an integer below 2^63, got " + std::to_string(value));
    }
  }
  template <std::floating_point F>
  Scalar(F value) : category_(Category::floating), floating_(static_cast<double>(value)) {}

  Category category() const { return category_; }
  double to_double() const {
    return category_ == Category::floating ? floating_ : static_cast<double>(integer_);
  }
  // Towards zero. As in `cast`, values out of range give the nearest integer, and NaN gives 0.
  std::int64_t to_int() const {
    if (category_ != Category::floating) return integer_;
    if (!(floating_ >= -0x1p63))
      return floating_ < 0 ? std::numeric_limits<std::int64_t>::min() : 0;
    if (floating_ >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(floating_);
  }

 private:
  Category category_;
  union {
    std::int64_t integer_;
    double floating_;
  };
};

}  // namespace brrr::core
