// The functions of BLAS that brrr calls, as every library with a C interface and 32-bit integers
// exports them. No cblas.h is included: where several are installed, it may be another library's.
#pragma once

enum BlasLayout : int { kBlasRowMajor = 101 };
enum BlasTranspose : int { kBlasAsIs = 111, kBlasTransposed = 112 };

extern "C" {
void cblas_sgemm(BlasLayout layout, BlasTranspose a_is, BlasTranspose b_is, int m, int n, int k,
                 float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                 float* c, int ldc);
void cblas_dgemm(BlasLayout layout, BlasTranspose a_is, BlasTranspose b_is, int m, int n, int k,
                 double alpha, const double* a, int lda, const double* b, int ldb, double beta,
                 double* c, int ldc);
void cblas_sgemv(BlasLayout layout, BlasTranspose a_is, int m, int n, float alpha, const float* a,
                 int lda, const float* x, int step_of_x, float beta, float* y, int step_of_y);
void cblas_dgemv(BlasLayout layout, BlasTranspose a_is, int m, int n, double alpha, const double* a,
                 int lda, const double* x, int step_of_x, double beta, double* y, int step_of_y);

// Only OpenBLAS has these. Where the build chose another BLAS they are null, unless its name
// resolves to OpenBLAS when the program runs (Debian's alternatives of libblas.so.3).
#if BRRR_OPENBLAS
#define BRRR_OF_OPENBLAS
#else
#define BRRR_OF_OPENBLAS __attribute__((weak))
#endif
BRRR_OF_OPENBLAS void openblas_set_num_threads(int count);
BRRR_OF_OPENBLAS int openblas_get_num_threads();
BRRR_OF_OPENBLAS char* openblas_get_config();  // "OpenBLAS 0.3.21 DYNAMIC_ARCH Zen MAX_THREADS=64"
#undef BRRR_OF_OPENBLAS
}

namespace brrr {

inline bool blas_is_openblas() {
#if BRRR_OPENBLAS
  return true;
#else
  return openblas_get_config;
#endif
}

}  // namespace brrr
