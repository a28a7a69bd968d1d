// The entries between the brackets of x[...].
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

namespace brrr {

// The elements from start up to, not including, end; negative numbers count from the end, and both
// are cut to the dimension, as in Python: Slice{1} is 1:, Slice{.end = -1} is :-1, Slice{} is all.
struct Slice {
  std::int64_t start = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  std::int64_t step = 1;  // at least 1
};

// One entry: an integer drops its dimension, a Slice keeps it, `newaxis` adds one of size 1, and
// `ellipsis`: all dimensions that no other entry names.
struct TensorIndex {
  enum class Kind : std::uint8_t { element, slice, newaxis, ellipsis };

  template <std::integral I>
  requires(!std::same_as<I, bool>) constexpr TensorIndex(I element)
      : kind(Kind::element), range{.start = static_cast<std::int64_t>(element)} {}
  constexpr TensorIndex(Slice slice) : kind(Kind::slice), range(slice) {}
  constexpr explicit TensorIndex(Kind k) : kind(k) {}

  Kind kind;
  Slice range;  // of an element, its place is `start`
};

inline constexpr TensorIndex newaxis{TensorIndex::Kind::newaxis};
inline constexpr TensorIndex ellipsis{TensorIndex::Kind::ellipsis};

}  // namespace brrr
