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
    }
  }
  BRRR_SCALAR_FN void load(u32 stage, int step) {
#pragma unroll
    for (int block = 0; block < kBlocksM; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(of[step][block][i])
                     : "r"(stage + from[i] +
                           (block * 4 * TileA::kColumnBytes + step * 8 * TileA::kColumnRowBytes))
                     : "memory");
    }
  }
  // To TF32, to nearest, ties away from zero: wgmma ignores the lower bits.
  BRRR_SCALAR_FN void round(int step) {
#pragma unroll
    for (int i = 0; i < 4 * kBlocksM; ++i) {
      u32& x = of[step][i / 4][i % 4];
      const bool is_nan = __uint_as_float(x) != __uint_as_float(x);
      x += is_nan ? 0u : 0x1000u;
    }
  }
};

// Starts all products of a tile; at the end those of the last stage are still in flight. Loads are
// a step ahead of the products, since they are served in order with these: loads that follow
// products wait until the products have begun. A wait for products before each load keeps the
// compiler from serializing them.
BRRR_FN void multiply_tile(const Shared& shared, const Role& role, i32 slices, int block,
                           Ring& ring, Sums& sums) {
  int last = 0;
  RegistersOfA a(block);
  if (slices > 0) {
    barrier_wait(shared.full + 8 * ring.stage, ring.parity);
    a.load(shared.a(ring.stage), 0);
  }
#pragma unroll 1
  for (i32 slice = 0; slice < slices; ++slice) {
    const int now = ring.stage;
    const u64 b = TileB::descriptor(shared.b(now));
    ring.advance();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) {
        products_wait<kSteps - 2>();
        a.load(shared.a(now), step + 1);
      }
      if (step == kSteps - 2 && slice > 0) release(shared, last, role);
      a.round(step);
      products_fence();
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
        multiply_add(sums[i], a.of[step][i], b + TileB::offset(0, step), step > 0 || slice > 0);
      products_commit();
    }
    if (slice + 1 < slices) {
      barrier_wait(shared.full + 8 * ring.stage, ring.parity);
      products_wait<kSteps - 1>();
      a.load(shared.a(ring.stage), 0);
    }
    last = now;
  }
}
