// Arithmetic that takes denormal operands and results as 0, on x86-64: on denormal numbers Intel
// CPUs take some 100 times as long.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace brrr::on_cpu {

// For this thread, while the object lives. The compiler may move arithmetic past it: only calls
// that are not inlined are in its scope.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kZeroOperands); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kFlushResults = 0x8000, kZeroOperands = 0x0040;
  unsigned before_;

 public:
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

}  // namespace brrr::on_cpu
