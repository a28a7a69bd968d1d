// Owns the choice among walks, and of widths and block sizes: the numbers are in tuning.h.
#include "brrr/ops/jit/schedule.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "brrr/ops/jit/cpu_kernel.h"
#include "brrr/ops/jit/tuning.h"

namespace brrr::jit {
namespace {

using std::int64_t;

constexpr int power_of_two_from(int64_t n) {
  return n <= 1 ? 1 : 1 << std::bit_width(static_cast<std::uint64_t>(n - 1));
}

constexpr bool has(std::uint32_t bits, int operand) { return bits >> operand & 1; }

constexpr int kSmallTile = 32;

// A dimension along which operands that do not run along the last one do: the other side of a tile.
// -1: none. The first output runs along the last one. Operands beyond those whose tiles fit into
// shared memory are reached element by element.
int transposed_dim(const PointwiseLayout& layout, std::uint32_t& transposed) {
  constexpr int64_t kLeast = 8;
  const StridedSpace& space = layout.space;
  const int inner = space.rank - 1;
  int side = -1;
  int64_t bytes = 0;
  if (space.stride[0][inner] != 1 || space.size[inner] < kLeast) return -1;
  for (int k = 1; k < space.operands; ++k) {
    if (space.stride[k][inner] == 0 || space.stride[k][inner] == 1 || layout.sizes[k] == 0)
      continue;
    for (int d = 0; d < inner; ++d) {
      if (space.stride[k][d] != 1 || space.size[d] < kLeast || (side >= 0 && side != d)) continue;
      const int64_t more = tile_bytes(kSmallTile, layout.sizes[k]);
      if (has(transposed, k) || bytes + more > kSharedBytes) continue;
      bytes += more;
      side = d;
      transposed |= 1u << k;
    }
  }
  return side;
}

// The width in which no vector crosses a bound: along the vectors a coordinate is constant, or
// counts elements and its other terms are multiples of the width.
int within_bounds(int width, const BoundOperands& bound, const StridedSpace& along,
                  const StridedSpace* across) {
  const int inner = along.rank - 1;
  for (int k = 0; k < along.operands; ++k) {
    if (bound.bounds[k] == 0 || along.stride[k][inner] == 0) continue;
    if (along.stride[k][inner] != 1) return 1;
    int64_t bits = bound.bounds[k];
    for (int d = 0; d < inner; ++d) bits |= along.stride[k][d];
    for (int d = 0; across && d < across->rank; ++d) bits |= across->stride[k][d];
    while (bits % width != 0) width /= 2;
  }
  return width;
}

}  // namespace

Schedule flat_schedule(const std::uint8_t* sizes, int outputs, int operands, std::uint32_t single,
                       int aligned, int64_t count) {
  Schedule schedule;
  int widest = 1, written = 0, read = 0;
  for (int k = 0; k < operands; ++k) {
    if (has(single, k)) continue;
    widest = std::max<int>(widest, sizes[k]);
    if (k < outputs) {
      written = std::max<int>(written, sizes[k]);
    } else {
      read += sizes[k];
    }
  }
  schedule.broadcast = single;
  schedule.width = std::min(16 / widest, aligned);
  schedule.threads = tuning().pointwise_threads;
  // How many vectors a thread takes when there are enough elements to fill the device anyway.
  if (count >= tuning().pointwise_large) {
    schedule.unroll =
        std::clamp(tuning().pointwise_bytes / (std::max(read, written) * schedule.width), 1, 8);
  }
  return schedule;
}

Schedule pointwise_schedule(PointwiseLayout& layout) {
  StridedSpace& space = layout.space;
  sort_dims(space);
  coalesce(space);
  Schedule schedule;
  schedule.walk = Walk::strided;
  schedule.rank = space.rank;
  schedule.wide = !is_narrow(space);
  const int largest = *std::max_element(layout.sizes, layout.sizes + space.operands);
  if (const int side = transposed_dim(layout, schedule.transposed); side >= 0) {
    const int inner = space.rank - 1;
    move_dim(space, side, inner - 1);
    schedule.walk = Walk::tiled;
    const bool fits = largest <= 4 && std::popcount(schedule.transposed) == 1;
    schedule.tile = fits ? tuning().tile : kSmallTile;
    schedule.threads = tuning().tile_threads;
    return schedule;
  }
  schedule.threads = tuning().pointwise_threads;
  schedule.unroll = space.count() >= tuning().pointwise_large ? tuning().strided_unroll : 1;
  schedule.width = within_bounds(vector_width(space, layout.data, layout.sizes, 16 / largest),
                                 layout.bound, space, nullptr);
  if (schedule.width > 1) {
    for (int k = layout.outputs; k < space.operands; ++k) {
      if (space.stride[k][space.rank - 1] == 0) schedule.broadcast |= 1u << k;
    }
  }
  return schedule;
}

int64_t blocks_of(const Schedule& schedule, const StridedSpace& space) {
  if (schedule.walk != Walk::tiled) {
    return ceil_div(space.count() / schedule.width, int64_t{schedule.threads} * schedule.unroll);
  }
  int64_t blocks = 1;
  for (int d = 0; d < space.rank; ++d) {
    blocks *= d < space.rank - 2 ? space.size[d] : ceil_div(space.size[d], schedule.tile);
  }
  return blocks;
}

namespace {

// Of `loads` that a thread has to do, how many are in flight: more where few blocks share a
// multiprocessor, which would wait for memory. What is loaded stays in registers.
int column_unroll(int64_t loads, int64_t elements, int64_t blocks, int multiprocessors) {
  constexpr int kLoaded = 128, kLeast = 32;  // elements
  const int64_t each =
      std::max(kLeast, kLoaded / static_cast<int>(ceil_div(blocks, multiprocessors)));
  const int64_t most = std::max<int64_t>(1, std::min(loads, each / elements));
  return static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(most)));
}

bool varies(const StridedSpace& space, int operand) {
  return std::any_of(space.stride[operand], space.stride[operand] + space.rank,
                     [](int64_t stride) { return stride != 0; });
}

// If both kinds of dimensions have more than one element, neighbouring threads go along the
// elements that are neighbours in memory. Operands that vary along both vote, weighted by their
// element size; the first one decides a tie.
bool goes_by_columns(const ReductionLayout& layout) {
  if (layout.kept.count() <= 1 || layout.reduced.count() <= 1) return layout.kept.count() > 1;
  const auto by_columns = [&layout](int operand) {
    const int64_t kept_step = std::abs(layout.kept.stride[operand][layout.kept.rank - 1]);
    const int64_t reduced_step = std::abs(layout.reduced.stride[operand][layout.reduced.rank - 1]);
    return kept_step != 0 && (reduced_step == 0 || kept_step < reduced_step);
  };
  int balance = 0, lead = 0;
  for (int k = layout.reduced.operands - 1; k >= 0; --k) {
    if (!varies(layout.kept, k) || !varies(layout.reduced, k)) continue;
    lead = k;
    balance += by_columns(k) ? layout.sizes[k] : -layout.sizes[k];
  }
  return balance != 0 ? balance > 0 : by_columns(lead);
}

// The number of inputs that vary along a row, but for those in `except`.
int count_of_elements(const ReductionLayout& layout, std::uint32_t except = 0) {
  int count = 0;
  for (int k = 0; k < layout.inputs; ++k) {
    count += layout.sizes[k] > 0 && varies(layout.reduced, k) && !(except >> k & 1);
  }
  return std::max(count, 1);
}

// Sets the width: what every operand that has neighbours along the vectors can be read or written
// in. Results are written one by one.
void set_width(Schedule& schedule, const ReductionLayout& layout) {
  const bool by_columns = schedule.walk == Walk::columns;
  const StridedSpace& along = by_columns ? layout.kept : layout.reduced;
  const StridedSpace& across = by_columns ? layout.reduced : layout.kept;
  const int inner = along.rank - 1;
  std::uint8_t sizes[StridedSpace::kMaxOperands];
  int largest = 1;
  bool any = false;
  for (int k = 0; k < along.operands; ++k) {
    // By rows, an input with one element a row is not loaded in vectors.
    const bool of_elements = (by_columns && k < layout.inputs) ||
                             (k < layout.reduced.operands && varies(layout.reduced, k));
    sizes[k] = of_elements ? layout.sizes[k] : std::uint8_t{0};
    largest = std::max<int>(largest, sizes[k]);
    any |= sizes[k] > 0 && along.stride[k][inner] == 1;
  }
  if (!any) return;
  // Accumulators of an index are large, and columns keep `width` of them a thread in shared memory.
  schedule.width =
      vector_width(along, layout.data, sizes,
                   layout.ordered && by_columns ? std::min(8, 16 / largest) : 16 / largest);
  // Vectors must start at multiples of their size in every row: strides of the other space count as
  // well.
  for (int k = 0; k < along.operands; ++k) {
    if (sizes[k] == 0 || along.stride[k][inner] != 1) continue;
    for (int d = 0; d < across.rank; ++d) {
      while (across.size[d] > 1 && across.stride[k][d] % schedule.width != 0) schedule.width /= 2;
    }
  }
  schedule.width = within_bounds(schedule.width, layout.bound, along, &across);
  // Columns have their accumulators in shared memory.
  const int64_t of_one = by_columns ? layout.partial * tuning().column_threads : 0;
  while (schedule.width > 1 && of_one * schedule.width > kSharedBytes) schedule.width /= 2;
  if (schedule.width == 1) return;
  for (int k = 0; k < along.operands; ++k) {
    if (along.stride[k][inner] == 0) schedule.broadcast |= 1u << k;
  }
}

// Elements that a thread keeps at most, and those beyond which more threads share a row.
constexpr int kMostKept = 64, kEnoughKept = 32;

// Of rows that are passed over again, each thread keeps what it loads while that fits its
// registers. `vectors` of a row are shared by `threads`.
void keep_rows(Schedule& schedule, const ReductionLayout& layout, int64_t vectors, int threads) {
  constexpr int kLoaded = 32;  // elements
  const int64_t loads = ceil_div(vectors, threads);
  schedule.keeps = loads * schedule.width * count_of_elements(layout, schedule.shared) <= kMostKept;
  schedule.unroll = schedule.keeps ? power_of_two_from(loads)
                                   : std::clamp(kLoaded / schedule.width, 1, schedule.unroll);
  schedule.exact = schedule.keeps && vectors == int64_t{schedule.unroll} * threads;
}

// The number of blocks of a cluster that share a column: enough to fill the device, as long as each
// thread keeps enough loads to amortize the join. 1: no cluster.
int column_cluster(int64_t blocks, int64_t loads, DeviceShape device) {
  const Tuning& tuned = tuning();
  int cluster = 1;
  while (2 * cluster <= device.cluster && loads >= 2 * cluster * tuned.cluster_least &&
         blocks * cluster < int64_t{device.multiprocessors} * tuned.cluster_blocks)
    cluster *= 2;
  return cluster;
}

// Whether the kernel also writes elements: it computes on each what it then sums.
bool writes_elements(const ReductionLayout& layout) {
  for (int k = layout.inputs; k < layout.reduced.operands; ++k) {
    if (varies(layout.reduced, k)) return true;
  }
  return false;
}

// Columns of a kernel that also writes elements. Arithmetic has latency to hide, so many blocks
// share each column, and a second kernel joins their sums. A gradient of gelu takes so many
// registers that three blocks fit on a multiprocessor, and a fourth would be a wave of its own.
int64_t schedule_written_columns(ReductionSchedule& schedule, const ReductionLayout& layout,
                                 DeviceShape device) {
  constexpr int64_t kBlocks = 3;                                         // of a multiprocessor
  constexpr int kLanes = 32, kFewLanes = 16, kUnroll = 4, kLoaded = 64;  // kLoaded: elements
  const int64_t kept = layout.kept.count() / schedule.width, reduced = layout.reduced.count();
  const int64_t blocks = device.multiprocessors * kBlocks;
  schedule.threads = tuning().column_threads;
  const int64_t each = kept * reduced / (blocks * schedule.threads);
  schedule.lanes = std::min(each >= kUnroll ? kLanes : kFewLanes, power_of_two_from(kept));
  schedule.blocks = ceil_div(kept, schedule.lanes);
  const int down = schedule.threads / schedule.lanes;
  const int64_t rounds = ceil_div(reduced, down);
  schedule.parts = std::clamp<int64_t>(blocks / schedule.blocks, 1, ceil_div(rounds, 2));
  // An input that has one element for a vector hardly takes registers, and more loads are in flight
  // without it.
  const int elements = schedule.width * count_of_elements(layout, schedule.broadcast);
  const int64_t loads =
      std::min<int64_t>(ceil_div(rounds, schedule.parts), std::max(1, kLoaded / elements));
  schedule.unroll = static_cast<int>(
      std::bit_floor(static_cast<std::uint64_t>(std::min<int64_t>(loads, kUnroll))));
  schedule.part = down;
  return rounds;
}

// Each of these gives the rounds that one block has to do: of one load by columns, of `unroll` by
// rows.
int64_t schedule_columns(ReductionSchedule& schedule, const ReductionLayout& layout,
                         DeviceShape device) {
  constexpr int64_t kManyElements = 1 << 20;
  const Tuning& tuned = tuning();
  const int64_t kept = layout.kept.count(), reduced = layout.reduced.count();
  if (layout.passes == 1 && writes_elements(layout) && kept * reduced >= kManyElements)
    return schedule_written_columns(schedule, layout, device);
  schedule.threads = tuned.column_threads;
  // With few elements to reduce, threads are better used side by side.
  const int below = power_of_two_from(ceil_div(reduced, tuned.column_least));
  schedule.lanes = std::min(std::max(tuned.column_lanes, schedule.threads / below),
                            power_of_two_from(kept / schedule.width));
  schedule.lanes = std::min(schedule.lanes, schedule.threads);
  // Tensors that fit in the cache are read in narrow strips, down to a sector of 32 bytes, by as
  // many blocks as keep half of the device busy, or most of it in clusters: that costs less than a
  // second kernel.
  const std::uint8_t* const end = layout.sizes + layout.inputs;
  const std::uint8_t* const loaded = std::find_if(layout.sizes, end, [](int n) { return n > 0; });
  const int size = loaded == end ? 1 : *loaded;
  const int sector = std::max(1, 32 / (schedule.width * size));
  if (kept * reduced * size <= tuned.column_strips << 20) {
    while (schedule.lanes > sector &&
           kept / schedule.width * device.cluster <
               schedule.lanes * int64_t{device.multiprocessors} * (device.cluster > 1 ? 7 : 4) / 8)
      schedule.lanes /= 2;
  }
  schedule.blocks = ceil_div(kept / schedule.width, schedule.lanes);
  const int down = schedule.threads / schedule.lanes;
  const int64_t loads = ceil_div(reduced, down);
  if (layout.passes == 1) schedule.cluster = column_cluster(schedule.blocks, loads, device);
  schedule.unroll =
      column_unroll(ceil_div(loads, schedule.cluster), schedule.width * count_of_elements(layout),
                    schedule.blocks * schedule.cluster, device.multiprocessors);
  if (layout.passes > 1) keep_rows(schedule, layout, reduced, down);
  schedule.part = down;
  return loads;
}

// The inputs that all rows share, as the scale and shift of a norm, if only one input varies by
// row, or all have 16 bits. Where a thread does not keep them it keeps more of the others: fewer
// threads take a row, and execute fewer instructions.
std::uint32_t shared_inputs(const ReductionLayout& layout) {
  std::uint32_t shared = 0;
  int others = 0, largest = 0;
  for (int k = 0; k < layout.inputs; ++k) {
    if (layout.sizes[k] == 0 || !varies(layout.reduced, k)) continue;
    if (varies(layout.kept, k)) {
      ++others;
      largest = std::max<int>(largest, layout.sizes[k]);
    } else {
      shared |= 1u << k;
    }
  }
  return others == 1 || (others > 0 && largest <= 2) ? shared : 0;
}

int64_t schedule_rows(ReductionSchedule& schedule, const ReductionLayout& layout,
                      int multiprocessors) {
  const Tuning& tuned = tuning();
  const int64_t kept = layout.kept.count(), vectors = layout.reduced.count() / schedule.width;
  schedule.threads = tuned.row_threads;
  schedule.lanes = vectors > tuned.row_warp_vectors || (kept < multiprocessors && vectors > 32)
                       ? schedule.threads
                       : std::min(32, power_of_two_from(vectors));
  schedule.unroll = tuned.row_unroll;
  if (layout.passes > 1) {
    schedule.shared = shared_inputs(layout);
    // A row gets more warps while a thread would keep many elements; with 32 of them and not 64,
    // twice as many blocks share a multiprocessor. Their barriers wait for fewer rows in blocks of
    // half as many threads; still smaller blocks would not keep a long row.
    const auto kept_by = [&](int lanes) {
      return ceil_div(vectors, lanes) * schedule.width * count_of_elements(layout, schedule.shared);
    };
    while (schedule.lanes < std::min<int64_t>(schedule.threads, vectors) &&
           kept_by(schedule.lanes) > kEnoughKept)
      schedule.lanes *= 2;
    keep_rows(schedule, layout, vectors, schedule.lanes);
    if (schedule.keeps && 2 * schedule.lanes <= schedule.threads) schedule.threads /= 2;
    if (!schedule.keeps) schedule.shared = 0;
  }
  schedule.blocks = ceil_div(kept, schedule.threads / schedule.lanes);
  schedule.part = schedule.lanes * schedule.unroll;
  return ceil_div(vectors, schedule.part);
}

constexpr int kMostThreads = 512, kKeptBytes = 96;  // of rows with columns; bytes of a thread

// Rows whose columns are reduced, too. The accumulators of all blocks go through memory, so there
// are as many blocks as the device runs at once, and each takes many rows.
void schedule_rows_with_columns(ReductionSchedule& schedule, const ReductionLayout& layout,
                                int multiprocessors) {
  constexpr int kLeastThreads = 256, kResident = 512;  // of a block; of a multiprocessor
  constexpr int kAccumulators = 64;                    // bytes of a thread, for each reduction
  int64_t bytes = 0;                                   // of what a thread loads of a column
  int largest = 1;
  for (int k = 0; k < layout.inputs; ++k) {
    if (layout.sizes[k] == 0 || !varies(layout.reduced, k)) continue;
    if (varies(layout.kept, k)) {
      bytes += layout.sizes[k];
    } else {
      schedule.shared |= 1u << k;
    }
    largest = std::max<int>(largest, layout.sizes[k]);
  }
  while (schedule.width > 2 && schedule.width * bytes > kKeptBytes) schedule.width /= 2;
  const int64_t kept = layout.kept.count(), vectors = layout.reduced.count() / schedule.width;
  schedule.lanes = std::min(32, power_of_two_from(vectors));
  const auto columns = [&] {
    return power_of_two_from(ceil_div(vectors, schedule.lanes)) * schedule.width;
  };
  while (schedule.lanes < std::min<int64_t>(kMostThreads, vectors) &&
         (columns() * std::max(largest, 4) > kAccumulators || columns() * bytes > kKeptBytes / 2))
    schedule.lanes *= 2;
  schedule.threads = std::max(kLeastThreads, schedule.lanes);
  schedule.reduces_columns = schedule.keeps = true;
  schedule.unroll = columns() / schedule.width;
  schedule.exact = vectors == int64_t{schedule.unroll} * schedule.lanes;
  schedule.blocks = std::min(ceil_div(kept, schedule.threads / schedule.lanes),
                             int64_t{multiprocessors} * (kResident / schedule.threads));
  schedule.part = vectors;
}

}  // namespace

bool keeps_columns(int64_t columns, int64_t bytes) {
  return power_of_two_from(ceil_div(columns, kMostThreads)) * bytes <= kKeptBytes;
}

ReductionSchedule reduction_schedule(ReductionLayout& layout, DeviceShape device) {
  sort_dims(layout.kept);
  if (!layout.ordered) sort_dims(layout.reduced);
  coalesce(layout.kept);
  coalesce(layout.reduced);
  ReductionSchedule schedule;
  const bool by_columns = !layout.reduces_columns && goes_by_columns(layout);
  schedule.walk = by_columns ? Walk::columns : Walk::rows;
  schedule.rank = layout.kept.rank;
  schedule.reduced_rank = layout.reduced.rank;
  schedule.wide = !is_narrow(layout.kept) || !is_narrow(layout.reduced);
  set_width(schedule, layout);
  if (layout.reduces_columns) {
    schedule_rows_with_columns(schedule, layout, device.multiprocessors);
    return schedule;
  }
  const int64_t rounds = by_columns ? schedule_columns(schedule, layout, device)
                                    : schedule_rows(schedule, layout, device.multiprocessors);
  const int64_t wanted = int64_t{device.multiprocessors} * tuning().reduce_blocks;
  const int64_t loads = by_columns ? rounds : rounds * schedule.unroll;
  const bool fills = schedule.blocks * schedule.cluster * 8 >= device.multiprocessors * 7;
  int64_t parts = std::max<int64_t>(schedule.parts, schedule.cluster);
  if (layout.passes == 1 && schedule.parts == 1 && !(schedule.cluster > 1 && fills) &&
      schedule.blocks * 2 <= wanted && loads > tuning().reduce_whole) {
    parts = std::clamp<int64_t>(std::min(wanted / schedule.blocks, loads / tuning().reduce_least),
                                1, 65535);
    schedule.cluster = 1;
  }
  schedule.part *= ceil_div(std::max<int64_t>(rounds, 1), parts);
  if (parts == 1) return schedule;
  const int64_t reduced = layout.reduced.count();
  schedule.parts = ceil_div(by_columns ? reduced : reduced / schedule.width, schedule.part);
  if (schedule.cluster > 1) {
    schedule.parts = schedule.cluster;
  } else if (schedule.parts > 1) {
    schedule.join_lanes = schedule.parts > 128 ? 256 : 32;
  }
  return schedule;
}

CpuOrder cpu_order(const StridedSpace& kept, const StridedSpace& reduced, int lead) {
  constexpr int64_t kColumns = 512, kPiece = 1024,
                    kBlock = 1 << 17;  // as ops/cpu/reduction.cpp has them
  CpuOrder order;
  const int inner = reduced.rank - 1;
  if (reduced.stride[lead][inner] != 1) {
    for (int d = 0; d < kept.rank; ++d) {
      if (kept.stride[lead][d] != 1 || kept.size[d] == 1) continue;
      order.by_columns = true;
      order.block = std::max<int64_t>(1, kBlock / std::min(kept.size[d], kColumns));
    }
    order.piece = kPiece;
  }
  if (reduced.rank > 1) order.run = std::max<int64_t>(1, reduced.size[inner]);
  return order;
}

}  // namespace brrr::jit
