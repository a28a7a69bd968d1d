// Chooses how a CPU kernel walks: from layouts and the body, never from values.
#include <algorithm>

#include "brrr/ops/jit/cpu_kernel.h"
#include "brrr/ops/jit/cpu_lanes.h"
#include "brrr/ops/jit/render.h"

namespace brrr::jit {
namespace {

using std::int64_t;

constexpr int64_t kGroup = 8;
constexpr int64_t kMostBytesOfTile = 512
                                     << 10;  // of a tile's arrays, which stay in the second cache

constexpr int64_t kFew = 64;

// The number of adjacent rows in a tile, of which some are left for several threads: it divides all
// of them if a multiple of a group near the largest one can. 0: it does not.
int64_t columns_of_tile(int64_t columns) {
  const int64_t most = std::min({kTileElements, std::max(kFew, columns / 2), columns});
  for (int64_t tile = most / kGroup * kGroup; tile > most / 2; tile -= kGroup) {
    if (columns % tile == 0) return tile;
  }
  return 0;
}

// Threads share blocks of elements; or, where there is work for several, tiles of rows.
void choose_columns(CpuWalk& walk, const StridedSpace& space, int64_t elements, bool splits) {
  constexpr int64_t kWork = 1 << 14;  // elements that are worth another thread
  const int64_t columns = space.inner_size();
  const bool is_whole = columns <= kTileElements,
             is_shared = !is_whole || !(splits || elements * space.count() <= kWork);
  walk.splits = splits;
  if (is_shared) walk.tile = columns_of_tile(columns);
  if (walk.tile == 0 && space.rank == 1 && is_shared && columns >= 2 * kFew) {
    const int64_t tiles = std::max<int64_t>(2, (columns - 1) / kTileElements + 1);
    walk.tile = ((columns - 1) / tiles / kGroup + 1) * kGroup;
    walk.rest = columns % walk.tile;
  }
  if (walk.tile == 0 && is_whole) walk.tile = columns;
  walk.splits &= walk.tile > 0;
}

// The bytes that a tile's arrays have for each of its elements: of what is reduced or kept for
// later passes, where all else is computed in chunks; else at most two for each value.
int64_t bytes_of_tile(const Body& body, bool in_chunks) {
  int64_t bytes = 0;
  const bool keeps = pieces::passes_of(body).size() > 1;
  for (int i = 0; i < static_cast<int>(body.values.size()); ++i) {
    const BodyValue& value = body.value(i);
    const auto size = static_cast<int64_t>(size_of(register_dtype(value.dtype)));
    const bool is_kept =
        keeps && (value.kind != BodyValue::Kind::expression || needs_lanes(body, i));
    bytes += !in_chunks ? 2 * size : is_kept || pieces::is_reduction(value) ? size : 0;
  }
  return bytes;
}

// How many lines a linear tile has.
void choose_lines(CpuWalk& walk, const Body& body, const StridedSpace& along,
                  const StridedSpace& across, bool has_one_block) {
  const int64_t elements = walk.by_columns ? across.count() : walk.tile;
  walk.lines = std::min(kTileElements / walk.tile, across.inner_size());
  if (!walk.by_columns && walk.lines > kGroup) walk.lines -= walk.lines % kGroup;
  // Accumulators of columns take four lines at a time.
  if (walk.by_columns) walk.lines = std::min(std::max<int64_t>(walk.lines, 4), across.inner_size());
  walk.lines = std::max<int64_t>(walk.lines, 1);
  // Several passes share the arrays of all lines, where these fit.
  if (walk.by_columns && walk.tile == along.inner_size() && across.rank == 1 && has_one_block &&
      pieces::passes_of(body).size() > 1 &&
      elements * walk.tile * bytes_of_tile(body, false) <= kMostBytesOfTile)
    walk.lines = elements;
  walk.keeps = !walk.by_columns || (elements <= walk.lines && walk.lines > 1);
  // Lines that do not follow one another, or four of which are no whole groups, are read where
  // they are one by one.
  walk.in_chunks = walk.by_columns
                       ? walk.lines > 1 && (walk.tile < along.inner_size() ||
                                            (walk.tile % 2 && 4 * walk.tile > kTileElements))
                       : walk.tile > kTileElements;
}

}  // namespace

CpuWalk cpu_walk(const Body& body, const StridedSpace& space, const StridedSpace& reduced,
                 const CpuOrder& order) {
  CpuWalk walk;
  walk.by_columns = order.by_columns;
  walk.run = order.run;
  walk.piece = order.piece;
  const int inputs = static_cast<int>(body.inputs.size()),
            outputs = static_cast<int>(body.outputs.size());
  const auto each_memory = [&](auto f) {
    const int first_input = body.reduces() ? 0 : outputs,
              first_output = body.reduces() ? static_cast<int>(body.reads()) : 0;
    for (int i = 0; i < inputs; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!pieces::is_address(body, at) && body.inputs[at].bounds.empty()) f(first_input + i);
    }
    for (int o = 0; o < outputs; ++o) f(first_output + o);
  };
  if (!body.reduces()) {
    each_memory([&](int k) { walk.direct |= std::uint32_t{is_contiguous(space, k)} << k; });
    return walk;
  }
  if (body.has_bounds()) return walk;  // their reads walk through any tile
  const StridedSpace& along = walk.by_columns ? space : reduced;
  const StridedSpace& across = walk.by_columns ? reduced : space;
  const bool passes_once =
      pieces::passes_of(body).size() == 1 &&
      std::none_of(body.values.begin(), body.values.end(),
                   [](const BodyValue& value) { return value.kind == BodyValue::Kind::arg; });
  const int64_t elements = reduced.count();
  if (walk.by_columns) {
    choose_columns(walk, space, elements, elements > order.block && passes_once);
  } else {
    walk.splits = space.count() == 1 && elements > order.block && passes_once;
    if (elements <= order.block &&
        elements * bytes_of_tile(body, reduced.rank == 1) <= kMostBytesOfTile)
      walk.tile = elements;
  }
  walk.linear = walk.tile > 0 && (walk.by_columns || reduced.rank == 1);
  if (walk.linear) {
    choose_lines(walk, body, along, across, elements <= order.block);
    each_memory([&](int k) {
      const bool is_contiguous =
          along.inner_stride(k) == 1 &&
          (walk.lines == 1 || walk.in_chunks || across.inner_stride(k) == walk.tile);
      walk.direct |= std::uint32_t{is_contiguous} << k;
    });
  }
  return walk;
}

}  // namespace brrr::jit
