// Multiply-adds in registers, in independent chains: measures the peak rate without tensor cores.
// The host defines `Real` before this source.

extern "C" __global__ void __launch_bounds__(256) multiply_add(Real* result, i64 rounds) {
  constexpr int kChains = 8;
  Real x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = Real(threadIdx.x + i);
#pragma unroll 16
  for (i64 round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * Real(0.75) + Real(0.25);
  }
  Real sum = 0;
  for (int i = 0; i < kChains; ++i) sum += x[i];
  if (sum == Real(-1)) *result = sum;  // never: the chains must be computed
}
