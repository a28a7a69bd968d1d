// Element types: their names, sizes and how they promote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <brrr/tensor/half.h>

namespace brrr {

// BRRR_X(enumerator, C++ type, name): the one list of element types.
#define BRRR_DTYPES(X)        \
  X(f32, float, "f32")        \
  X(f64, double, "f64")       \
  X(f16, Float16, "f16")      \
  X(bf16, BFloat16, "bf16")   \
  X(i32, std::int32_t, "i32") \
  X(i64, std::int64_t, "i64") \
  X(boolean, bool, "bool")

enum class DType : std::uint8_t {
#define BRRR_X(e, type, name) e,
  BRRR_DTYPES(BRRR_X)
#undef BRRR_X
};

#define BRRR_X(e, type, name) inline constexpr DType e = DType::e;
BRRR_DTYPES(BRRR_X)
#undef BRRR_X

namespace core {
inline constexpr int kDTypes = 0
#define BRRR_X(e, type, name) +1
    BRRR_DTYPES(BRRR_X)
#undef BRRR_X
    ;
}  // namespace core

constexpr std::size_t size_of(DType dtype) {
  constexpr std::uint8_t sizes[] = {
#define BRRR_X(e, type, name) sizeof(type),
      BRRR_DTYPES(BRRR_X)
#undef BRRR_X
  };
  return sizes[static_cast<int>(dtype)];
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {
#define BRRR_X(e, type, name) name,
      BRRR_DTYPES(BRRR_X)
#undef BRRR_X
  };
  return names[static_cast<int>(dtype)];
}

namespace core {

template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type of brrr");
  return DType::f32;
}();
#define BRRR_X(e, type, name) \
  template <>                 \
  inline constexpr DType dtype_of<type> = DType::e;
BRRR_DTYPES(BRRR_X)
#undef BRRR_X

// bool < integer < floating: what decides promotion between operands of different rank.
enum class Category : std::uint8_t { boolean, integer, floating };

constexpr Category category_of(DType dtype) {
  switch (dtype) {
    case DType::boolean: return Category::boolean;
    case DType::i32:
    case DType::i64: return Category::integer;
    default: return Category::floating;
  }
}

}  // namespace core

constexpr bool is_floating(DType dtype) {
  return core::category_of(dtype) == core::Category::floating;
}
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

namespace core {

// The smallest type that holds both, by PyTorch's table: f16 with bf16 is f32; integer with
// floating is floating.
constexpr DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category_of(a) != category_of(b)) return category_of(a) > category_of(b) ? a : b;
  if (a == DType::f64 || b == DType::f64) return DType::f64;
  return is_floating(a) ? DType::f32 : DType::i64;
}

// Calls f with a value of the C++ type of `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
#define BRRR_X(e, type, name) \
  case DType::e: return f(type{});
    BRRR_DTYPES(BRRR_X)
#undef BRRR_X
  }
  __builtin_unreachable();
}

}  // namespace core

}  // namespace brrr
