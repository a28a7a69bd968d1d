// The numbers that decide how generated kernels are launched: found by measuring, the same for
// every op. Any of them can be set for an experiment:
// BRRR_TUNE="pointwise_threads=128,row_unroll=8".
#pragma once

#include <cstdint>

namespace brrr::jit {

// X(name, value)
#define BRRR_TUNING(X)                                                                         \
  X(pointwise_threads, 128)                                                                    \
  X(pointwise_bytes, 16)      /* loaded by a thread before it computes, over all operands */   \
  X(pointwise_large, 1 << 21) /* elements from which a thread takes more than one vector */    \
  X(strided_unroll, 2)                                                                         \
  X(tile, 64) /* side of a transposed tile of elements of up to 4 bytes */                     \
  X(tile_threads, 256)                                                                         \
  X(row_threads, 256)                                                                          \
  X(row_unroll, 4)                                                                             \
  X(row_warp_vectors, 2048) /* rows of up to so many vectors go to one warp, or less of one */ \
  X(column_threads, 256)                                                                       \
  X(column_least, 2)   /* elements of a column that a thread has, at least */                  \
  X(column_lanes, 32)  /* at most, side by side */                                             \
  X(column_strips, 32) /* MiB of input up to which fewer do, where that fills the device */    \
  X(cluster_blocks, 4) /* blocks per multiprocessor that clusters split columns into */        \
  X(cluster_least, 2)  /* loads of a thread that a block of a cluster must be worth */         \
  X(reduce_blocks, 6)  /* blocks per multiprocessor that a reduction is split into */          \
  X(reduce_whole, 64)  /* loads of a thread up to which a reduction is not split */            \
  X(reduce_least, 4)   /* loads of a thread that a part must be worth */

struct Tuning {
#define X(name, value) int name = value;
  BRRR_TUNING(X)
#undef X
};

// Read from the environment once.
const Tuning& tuning();

}  // namespace brrr::jit
