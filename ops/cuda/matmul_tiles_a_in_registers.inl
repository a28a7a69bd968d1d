// The products of a tile with A in registers, for TF32 with lines adjacent along m: wgmma reads
// TF32 from shared memory along k only.

// The line of a row of the accumulators, of the 16 of a warp: an order in which loads of A have no
// bank conflicts.
BRRR_FN u32 line_of_row(u32 row) { return (row & 3) | (row >> 3 & 1) << 2 | (row >> 2 & 1) << 3; }

// Lane 4 r + t holds the elements of rows r and r + 8 at k = t and t + 4 of a step. The low bits of
// k, the swizzled vector and the position in it select the bank: all 32 differ.
struct RegistersOfA {
  u32 of[kSteps][kBlocksM][4];
  u32 from[4];  // offsets in a stage, by register, of this lane's elements of the first step

  BRRR_SCALAR_FN RegistersOfA(int block) {
    const u32 lane = threadIdx.x % 32, row = lane / 4, k = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 line = line_of_row(row + i % 2 * 8), deep = k + i / 2 * 4;
      from[i] = (block * 4 + threadIdx.x % 128 / 32) * TileA::kColumnBytes +
                deep * TileA::kColumnRowBytes + ((line / 4 ^ deep / 2 % 4) * 16 + line % 4 * 4);
      asm volatile("" : "+r"(from[i]));  // else each slice computes it again
    }
  }
  BRRR_SCALAR_FN void load(u32 stage, int step, int block) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("ld.shared.u32 %0, [%1];"
                   : "=r"(of[step][block][i])
                   : "r"(stage + from[i] +
                         (block * 4 * TileA::kColumnBytes + step * 8 * TileA::kColumnRowBytes))
                   : "memory");
  }
  // To TF32, to nearest, ties away from zero: wgmma ignores the lower bits. NaNs stay. Where loads
  // alone define A, ptxas serializes the products.
  BRRR_SCALAR_FN void round(int step, int block) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile(
          "{ .reg .pred number; .reg .f32 x; mov.b32 x, %0; setp.num.f32 number, x, x; "
          "@number add.u32 %0, %0, 0x1000; }"
          : "+r"(of[step][block][i]));
  }
};

// Starts all products of a tile; at the end those of the last stage are still in flight. A product
// with A in registers waits at issue until the one before it has begun, so the loads and the
// rounding of each lie between two products, a step ahead of it: all at once they would take longer
// than the last product of a step. A wait for products before each load keeps the compiler from
// serializing them.
BRRR_FN void multiply_tile(const Shared& shared, const Role& role, i32 slices, int block,
                           Ring& ring, Sums& sums) {
  int last = 0;
  RegistersOfA a(block);
  if (slices > 0) {
    barrier_wait(shared.full + 8 * ring.stage, ring.parity);
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) a.load(shared.a(ring.stage), 0, i);
  }
#pragma unroll 1
  for (i32 slice = 0; slice < slices; ++slice) {
    const int now = ring.stage;
    const u64 b = TileB::descriptor(shared.b(now));
    ring.advance();
    const bool is_last = slice + 1 == slices;
    const u32 next = shared.a(is_last ? now : ring.stage);  // not read after the last slice
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 == kSteps && !is_last) barrier_wait(shared.full + 8 * ring.stage, ring.parity);
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i) {
        products_wait<(kSteps - 1) * kBlocksM - 1>();
        a.load(step + 1 < kSteps ? shared.a(now) : next, (step + 1) % kSteps, i);
        if (step == kSteps - 2 && i == kBlocksM - 1 && slice > 0) release(shared, last, role);
        a.round(step, i);
        products_fence();
        multiply_add(sums[i], a.of[step][i], b + TileB::offset(0, step), step > 0 || slice > 0);
        products_commit();
      }
    }
    last = now;
  }
}
