// Settings of matrix products on CUDA: the precision of f32, and the choice of algorithms.
#pragma once

#include <cstdint>

namespace brrr {

// The rounding of the factors of f32 matrix products. TF32 keeps 10 bits of mantissa.
enum class Precision : std::uint8_t { full, tf32 };

// For the whole process; `full` unless set.
void set_matmul_precision(Precision precision);
// The current precision of this thread.
Precision matmul_precision();

// For this thread, while the guard lives.
class MatmulPrecisionGuard {
 public:
  explicit MatmulPrecisionGuard(Precision precision);
  ~MatmulPrecisionGuard();
  MatmulPrecisionGuard(const MatmulPrecisionGuard&) = delete;
  MatmulPrecisionGuard& operator=(const MatmulPrecisionGuard&) = delete;

 private:
  std::int8_t before_;
};

// How cuBLASLt's algorithms are chosen. `first`: the first one that the library offers. `measured`:
// times the offered algorithms on the first operands of each shape, once per shape, GPU and library
// version (the result is kept on disk), and takes the fastest; during a capture it takes an
// existing plan, or the first offer. Either way a shape keeps its algorithm for the life of the
// process.
enum class MatmulChoice : std::uint8_t { first, measured };

void set_matmul_choice(MatmulChoice choice);
MatmulChoice matmul_choice();

class MatmulChoiceGuard {
 public:
  explicit MatmulChoiceGuard(MatmulChoice choice);
  ~MatmulChoiceGuard();
  MatmulChoiceGuard(const MatmulChoiceGuard&) = delete;
  MatmulChoiceGuard& operator=(const MatmulChoiceGuard&) = delete;

 private:
  std::int8_t before_;
};

}  // namespace brrr
