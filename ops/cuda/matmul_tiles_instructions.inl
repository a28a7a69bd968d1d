// The instructions of Hopper that matmul_tiles.cu is made of: clusters, mbarriers, tensor copies
// (TMA), wgmma's groups. Addresses of shared memory are 32 bits.

struct alignas(64) TensorMap {
  u64 words[16];
};

BRRR_FN u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }
BRRR_FN u32 block_of_cluster() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
BRRR_FN void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Orders nothing, so it waits for no stores.
BRRR_FN void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
BRRR_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
BRRR_FN u32 address_in(u32 address, u32 block) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

BRRR_FN void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
BRRR_FN void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
BRRR_FN void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the default scope: release at that of the cluster would be a fence, half a microsecond a
// stage.
BRRR_FN void barrier_arrive_in(u32 barrier, u32 block) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(barrier, block))
               : "memory");
}
// Waits until the phase of that parity is over.
BRRR_FN void barrier_wait(u32 barrier, u32 parity) {
  u32 over;
  do {
    asm volatile(
        "{ .reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; "
        "selp.u32 %0, 1, 0, over; }"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!over);
}

// One box of an operand, from memory to `to` in each block of `mask`.
template <bool kMulticast>
BRRR_FN void load_box(const TensorMap& map, u32 to, u32 barrier, i32 x, i32 y, i32 inner, i32 outer,
                      u32 mask) {
  if constexpr (kMulticast) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(inner), "r"(outer), "h"(u16(mask))
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(inner), "r"(outer)
        : "memory");
  }
}

BRRR_FN void store_box(const TensorMap& map, u32 from, i32 x, i32 y, i32 inner, i32 outer) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
          "l"(&map),
      "r"(from), "r"(x), "r"(y), "r"(inner), "r"(outer)
      : "memory");
}
BRRR_FN void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last kPending groups of stores have read shared memory.
template <int kPending>
BRRR_FN void stores_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

BRRR_FN void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
BRRR_FN void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
BRRR_FN void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
