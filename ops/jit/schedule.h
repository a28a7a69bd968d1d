// How a kernel walks through the elements of a body on CUDA, chosen from layouts alone: dimensions,
// strides, sizes of elements, alignment, and how many multiprocessors there are. It does
// not depend on what is computed, so eager and fused kernels are scheduled by the same code. No
// CUDA here; nothing allocates.
#pragma once

#include <cstdint>

#include <brrr/ops/jit/geometry.h>

namespace brrr::jit {

enum class Walk : std::uint8_t {
  flat,     // everything contiguous: only the number of elements counts
  strided,  // `rank` dimensions, any strides; vectors along the last one
  tiled,    // the last two dimensions in tiles that shared memory transposes
  rows,     // reduction, vectors and threads along the reduced elements
  columns,  // reduction, vectors along the results, threads along both
};

struct Schedule {
  Walk walk = Walk::flat;
  bool wide = false;     // counts or offsets pass 2^31
  bool keeps = false;    // reductions: a thread keeps its elements in registers between passes
  bool exact = false;    // and all threads of a row have the same number of loads: no bounds checks
  int rank = 1;          // of the space; reductions: of the results' space
  int reduced_rank = 1;  // reductions: of the space of what one result combines
  int width = 1;         // elements of one access
  int unroll = 1;        // accesses that a thread has in flight at a time
  int threads = 256;     // of a block
  int lanes = 32;        // rows: threads of one row; columns: threads side by side. A power of two
  int tile = 32;         // tiled: the side of a tile
  int join_lanes = 0;    // reductions in parts: threads of a second kernel that join those of one
                         // result; 0: there is no such kernel
  int cluster = 1;  // columns: blocks of a cluster, one for each part; the first one joins them
  // How an operand is reached from its place, as bits by operand (outputs, then inputs): one
  // element for all of a vector, or (tiled) neighbours along the other side of the tile. Without
  // either bit: `width` neighbours at once.
  std::uint32_t broadcast = 0, transposed = 0;
  // Rows: inputs, as bits, that all rows share and that a thread does not keep. Each pass that
  // reads one loads it again, from a cache; with `reduces_columns` a thread loads them once.
  std::uint32_t shared = 0;
  // Rows: each block takes many of them, and reduces columns over these. A second kernel combines
  // the results of the blocks.
  bool reduces_columns = false;
  // Every vector is whole Philox blocks of each draw, in order, or a part of one.
  bool whole_blocks = false;

  bool reduces() const { return walk == Walk::rows || walk == Walk::columns; }
};

// Coordinates that bound inputs: by operand, the two bounds joined by |; 0: none. Vectors do not
// cross them.
struct BoundOperands {
  std::int64_t bounds[StridedSpace::kMaxOperands] = {};
};

// The layout of a pointwise kernel's operands, outputs first.
struct PointwiseLayout {
  StridedSpace space;
  int outputs = 1;
  const void* data[StridedSpace::kMaxOperands] = {};  // null: aligned
  std::uint8_t sizes[StridedSpace::kMaxOperands];  // of an element; 0: a coordinate, without memory
  BoundOperands bound = {};
};

// All operands contiguous and of one size but for those of a single element (`single`, bits by
// operand); addresses are multiples of `aligned` elements.
Schedule flat_schedule(const std::uint8_t* sizes, int outputs, int operands, std::uint32_t single,
                       int aligned, std::int64_t count);
// Any other layout. Brings the space to the form that the kernel walks through.
Schedule pointwise_schedule(PointwiseLayout& layout);
// The blocks that a strided or tiled kernel takes.
std::int64_t blocks_of(const Schedule& schedule, const StridedSpace& space);

// The same of a kernel with reductions, inputs first: `kept` has the dimensions of the results,
// `reduced` those that one result combines.
struct ReductionLayout {
  StridedSpace kept, reduced;
  int inputs = 1;
  const void* data[StridedSpace::kMaxOperands] = {};
  std::uint8_t sizes[StridedSpace::kMaxOperands];
  BoundOperands bound = {};
  bool ordered = false;      // the order of reduced dimensions counts, as it does for an index
  int passes = 1;            // over the elements of a row
  std::int64_t partial = 8;  // bytes of the accumulators of one result in a pass, at most
  bool reduces_columns = false;
};

// Whether the threads of a row can keep what they load of it, and accumulators of all columns.
// `bytes`: of a column's elements in all inputs that vary along rows and along columns.
bool keeps_columns(std::int64_t columns, std::int64_t bytes);
constexpr int kJoinedColumns = 4;  // that a block of the second kernel combines

// Shared memory of a block on every device, in bytes, without asking the driver for more.
constexpr std::int64_t kSharedBytes = 48 * 1024;
// Of one operand's tile of side `tile`. A row's length is an odd number of banks, so that a column
// read touches each bank once.
constexpr std::int64_t tile_padding(std::int64_t size) { return size >= 4 ? 1 : 4 / size; }
constexpr std::int64_t tile_bytes(std::int64_t tile, std::int64_t size) {
  return tile * (tile + tile_padding(size)) * size;
}

struct ReductionSchedule : Schedule {
  std::int64_t blocks = 1;
  // A row is cut into so many parts of `part` reduced elements (rows: vectors) each, which a
  // cluster or a second kernel joins.
  std::int64_t parts = 1, part = 0;
};

// The properties of a device that schedules depend on.
struct DeviceShape {
  int multiprocessors = 1;
  int cluster = 1;  // the largest cluster, in blocks; 1: clusters are not supported
};

ReductionSchedule reduction_schedule(ReductionLayout& layout, DeviceShape device);

}  // namespace brrr::jit
