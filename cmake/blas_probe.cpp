// Probes a BLAS: that it links, runs and multiplies, and with BRRR_OPENBLAS that it is OpenBLAS.
// CMake and ./dev compile and run this, and show its output.
#include <cstdio>
#include <cstring>

#include "../ops/cpu/blas.h"

int main() {
  const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
  float c[] = {0, 0, 0, 0};
  cblas_sgemm(kBlasRowMajor, kBlasAsIs, kBlasTransposed, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2);
  if (c[0] != 17 || c[1] != 23 || c[2] != 39 || c[3] != 53) {
    std::printf("[1 2; 3 4] [5 7; 6 8] is [17 23; 39 53], got [%g %g; %g %g]\n", c[0], c[1], c[2],
                c[3]);
    return 1;
  }
#if BRRR_OPENBLAS
  const char* config = openblas_get_config();
  if (std::strstr(config, "USE64BITINT")) {
    std::printf("expected an OpenBLAS with 32-bit integers, got %s\n", config);
    return 1;
  }
  std::printf("%s\n", config);
#else
  std::printf("%s\n", BRRR_BLAS);
#endif
}
