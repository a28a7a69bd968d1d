// Samples for the op tests: tensors of known values in many layouts, built without any op, and the
// comparison of results with references. Values are doubles, which represent every dtype's samples
// exactly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <brrr/tensor/dims.h>
#include <brrr/tensor/tensor.h>

namespace brrr::test {

using Values = std::vector<double>;

// Repeatable on every machine (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double uniform(double low, double high);
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

std::uint64_t hash_text(const std::string& text);

// All element types, and those that a test of special values cares for.
inline constexpr DType kAllDTypes[] = {f32, f64, f16, bf16, i32, i64, boolean};
inline constexpr DType kFloatDTypes[] = {f32, f64, f16, bf16};

enum class Layout { contiguous, transposed, strided, offset, expanded };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::strided,
                                      Layout::offset, Layout::expanded};
const char* name_of(Layout layout);
// False where the layout would be the same as a simpler one.
bool applies(Layout layout, const Dims& shape);

struct Sample {
  Tensor tensor;                     // what the op is given
  Tensor base;                       // its whole buffer, as one dimension
  Values values;                     // of `tensor`, row-major
  Values base_values;                // of `base`
  std::vector<std::int64_t> places;  // the index of each of `values` in the buffer
};

// `values` are rounded to the dtype; in an expanded layout the first row is repeated.
Sample make_sample(Values values, const Dims& shape, DType dtype,
                   Layout layout = Layout::contiguous, Device device = cpu);

// A value in [low, high] that the dtype holds; a quarter of them are multiples of a half, so that
// ties and equal operands occur.
double draw(Random& random, DType dtype, double low, double high);
Values draw_many(Random& random, DType dtype, std::int64_t count, double low, double high);

// What the dtype makes of a value.
double round_to(DType dtype, double value);

std::int64_t numel_of(std::span<const std::int64_t> shape);

// The elements of a tensor on any device, row-major, by its strides.
Values read(const Tensor& tensor);

struct Tolerance {
  double relative, absolute;
};
Tolerance tolerance_of(DType dtype);

// How two values are compared: `extra` is added to the dtype's absolute tolerance, `signs` compares
// the sign of zeros.
struct Match {
  double extra = 0;
  bool signs = false;
  bool exact = false;                          // no tolerance
  const std::vector<bool>* excused = nullptr;  // by element: not compared
};
bool matches(double got, double expected, DType dtype, const Match& match = {});

// "" if the tensor has the shape, dtype and values, else one line with the difference.
std::string difference(const Tensor& got, DType dtype, const Dims& shape, const Values& expected,
                       const Match& match = {});

// The number of cells that ran, and the texts of the first failures.
struct Report {
  long cells = 0;
  long failed = 0;
  std::vector<std::string> failures;

  void count(const std::string& cell, const std::string& problem);
  std::string text() const;
};

}  // namespace brrr::test
