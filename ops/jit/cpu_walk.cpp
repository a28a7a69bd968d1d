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

// The number of adjacent rows in a tile, of which some are left for several threads: it divides all
// of them if it can be a multiple of a group. 0: it does not.
int64_t columns_of_tile(int64_t columns) {
  constexpr int64_t kFew = 64;
  const int64_t most = std::min(kTileElements, std::max(kFew, columns / 2));
  for (int64_t tile = most / kGroup * kGroup; tile > 0; tile -= kGroup) {
    if (columns % tile == 0) return tile;
  }
  return 0;
}

// Threads share blocks of elements; or, where there is work for several, tiles of rows.
void choose_columns(CpuWalk& walk, const StridedSpace& space, int64_t elements, bool splits) {
  constexpr int64_t kWork = 1 << 14;  // elements that are worth another thread
  const int64_t columns = space.inner_size();
  const bool is_whole = columns <= kTileElements;
  walk.splits = splits;
  if (!is_whole || !(walk.splits || elements * space.count() <= kWork))
    walk.tile = columns_of_tile(columns);
  if (walk.tile == 0 && is_whole) walk.tile = columns;
  if (walk.tile == 0 && space.rank == 1) {
    const int64_t tiles = (columns - 1) / kTileElements + 1;
    walk.tile = ((columns - 1) / tiles / kGroup + 1) * kGroup;
    walk.rest = columns % walk.tile;
  }
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
    walk.lines = std::min(kTileElements / walk.tile, across.inner_size());
    if (!walk.by_columns && walk.lines > kGroup) walk.lines -= walk.lines % kGroup;
    // Only lines that follow one another are read where they are.
    if (walk.lines < 1 || (walk.by_columns && walk.tile < along.inner_size())) walk.lines = 1;
    // Several passes share the arrays of all lines, where these fit.
    if (walk.by_columns && walk.tile == along.inner_size() && across.rank == 1 &&
        elements <= order.block && pieces::passes_of(body).size() > 1 &&
        elements * walk.tile * bytes_of_tile(body, false) <= kMostBytesOfTile)
      walk.lines = elements;
    walk.keeps = !walk.by_columns || (elements <= walk.lines && walk.lines > 1);
    each_memory([&](int k) {
      const bool is_contiguous =
          along.inner_stride(k) == 1 && (walk.lines == 1 || across.inner_stride(k) == walk.tile);
      walk.direct |= std::uint32_t{is_contiguous} << k;
    });
  }
  return walk;
}

}  // namespace brrr::jit
