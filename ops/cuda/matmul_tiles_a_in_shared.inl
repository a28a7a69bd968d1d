// The products of a tile with both factors in shared memory.

BRRR_FN u32 line_of_row(u32 row) { return row; }

// Starts all products of a tile; at the end those of the last stage are still in flight.
BRRR_FN void multiply_tile(const Shared& shared, const Role& role, i32 slices, int block,
                           Ring& ring, Sums& sums) {
  int last = 0;
#pragma unroll 1
  for (i32 slice = 0; slice < slices; ++slice) {
    barrier_wait(shared.full + 8 * ring.stage, ring.parity);
    const u64 a = TileA::descriptor(shared.a(ring.stage)) + TileA::offset(block, 0),
              b = TileB::descriptor(shared.b(ring.stage));
    products_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kBlocksM; ++i)
        multiply_add(sums[i], a + TileA::offset(i, step), b + TileB::offset(0, step),
                     step > 0 || slice > 0);
    }
    products_commit();
    products_wait<1>();
    if (slice > 0) release(shared, last, role);
    last = ring.stage;
    ring.advance();
  }
}
