// A list of at most eight integers, stored inline: shapes, strides, lists of dimensions.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace brrr {

namespace core {
inline constexpr int kMaxDims = 8;

// An integer that may be a size. bool is excluded, so that sum(x, true) does not compile.
template <class I>
concept Size = std::integral<I> && !std::same_as<I, bool>;
}  // namespace core

class Dims {
 public:
  using value_type = std::int64_t;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span(values.begin(), values.size())) {}
  // A list of one: sum(x, 1), zeros(3).
  template <core::Size I>
  Dims(I value) : size_(1) {
    values_[0] = static_cast<std::int64_t>(value);
  }
  Dims(std::span<const std::int64_t> values) {
    if (values.size() > core::kMaxDims) too_long(values.size());
    size_ = static_cast<int>(values.size());
    for (int i = 0; i < size_; ++i) {
      asm("" : "+r"(i));  // keeps the compiler from calling memcpy for two elements
      values_[i] = values[i];
    }
  }
  static Dims filled(int size, std::int64_t value) {
    Dims dims;
    for (int i = 0; i < size; ++i) dims.push_back(value);
    return dims;
  }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](int i) const { return values_[i]; }
  std::int64_t& operator[](int i) { return values_[i]; }
  std::int64_t back() const { return values_[size_ - 1]; }
  const std::int64_t* data() const { return values_; }
  const std::int64_t* begin() const { return values_; }
  const std::int64_t* end() const { return values_ + size_; }
  std::int64_t* begin() { return values_; }
  std::int64_t* end() { return values_ + size_; }
  operator std::span<const std::int64_t>() const {
    return {values_, static_cast<std::size_t>(size_)};
  }

  void push_back(std::int64_t value) {
    if (size_ == core::kMaxDims) too_long(core::kMaxDims + 1);
    values_[size_++] = value;
  }
  void insert(int at, std::int64_t value) {
    push_back(value);
    std::rotate(values_ + at, values_ + size_ - 1, values_ + size_);
  }
  void erase(int at) {
    std::copy(values_ + at + 1, values_ + size_, values_ + at);
    --size_;
  }
  void resize(int size) { size_ = size; }  // entries past the old size hold no value yet

  friend bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  [[noreturn]] static void too_long(std::size_t size);

  int size_ = 0;
  std::int64_t values_[core::kMaxDims];
};

namespace core {

// A view of a tensor's sizes or strides. Two of them are equal if their integers are.
class Sizes : public std::span<const std::int64_t> {
 public:
  constexpr Sizes(const std::int64_t* values, int size)
      : std::span<const std::int64_t>(values, static_cast<std::size_t>(size)) {}
  friend bool operator==(const Sizes& a, const Sizes& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
};

// The number of elements. Throws if it, or its product with `element_size`, overflows, or if a
// dimension is negative.
std::int64_t checked_numel(std::span<const std::int64_t> shape, std::size_t element_size,
                           const char* op);

Dims contiguous_strides(std::span<const std::int64_t> shape);

// A contiguous tensor as three dimensions: the product of those before `dim`, `dim` itself, and the
// product of those after it. A tensor without dimensions has one element.
struct AroundDim {
  std::int64_t outer = 1, n = 1, inner = 1;
  AroundDim(std::span<const std::int64_t> shape, int dim);
};

}  // namespace core

// "[2, 3]"
std::string to_string(std::span<const std::int64_t> dims);
inline std::string to_string(const Dims& dims) {
  return to_string(std::span<const std::int64_t>(dims));
}

}  // namespace brrr
