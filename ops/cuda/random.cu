// Random draws: a thread computes one Philox block and the elements drawn from it, as on the CPU.
// Expects the typedef Element, the constant kWidth (elements of a block) and DRAW, the call of
// philox.inl's function that fills them. `state` is {seed, step, base}: read here, so that a
// replayed graph draws new numbers.

extern "C" __global__ void __launch_bounds__(256)
    draw(Element* out, const i64* state, u32 place, u32 threshold, i64 count) {
  wait_for_previous_kernel();
  const u64 seed = state[0], step = state[1];
  place += u32(state[2]);
  const i64 blocks = (count + kWidth - 1) / kWidth;
  const bool aligned = u64(out) % sizeof(Pack<Element, kWidth>) == 0;
  for (i64 block = i64(blockIdx.x) * blockDim.x + threadIdx.x; block < blocks;
       block += i64(gridDim.x) * blockDim.x) {
    Register<Element> values[kWidth];
    DRAW;
    Pack<Element, kWidth> pack;
    narrow_all(values, pack);
    const i64 first = block * kWidth;
    if (aligned && first + kWidth <= count) {
      store<kWidth>(out + first, pack);
    } else {
      for (int i = 0; i < kWidth && first + i < count; ++i) out[first + i] = pack.at[i];
    }
  }
}
