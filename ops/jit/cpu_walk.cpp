// Chooses how a CPU kernel walks: from layouts and the body, never from values.
#include <algorithm>

#include "brrr/ops/jit/cpu_kernel.h"
#include "brrr/ops/jit/render.h"

namespace brrr::jit {
namespace {

using std::int64_t;

// The number of adjacent rows in a tile: it divides all of them, and leaves some tiles for several
// threads. 0: none does.
int64_t columns_of_tile(int64_t columns) {
  constexpr int64_t kGroup = 8, kFew = 64, kMost = 512;
  const int64_t most = std::min(kMost, std::max(kFew, columns / 2));
  for (int64_t tile = most / kGroup * kGroup; tile > 0; tile -= kGroup) {
    if (columns % tile == 0) return tile;
  }
  return 0;
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
  if (walk.by_columns) {
    walk.tile = columns_of_tile(space.inner_size());
  } else {
    // Arrays of a row stay in the second cache.
    constexpr int64_t kMostElements = 8192, kMostBytes = 256 << 10;
    const auto arrays = static_cast<int64_t>(2 * body.values.size());
    const int64_t elements = reduced.count();
    walk.splits =
        space.count() == 1 && elements > order.block && pieces::passes_of(body).size() == 1 &&
        std::none_of(body.values.begin(), body.values.end(),
                     [](const BodyValue& value) { return value.kind == BodyValue::Kind::arg; });
    if (elements <= kMostElements && elements * arrays * 4 <= kMostBytes) walk.tile = elements;
  }
  walk.linear = walk.tile > 0 && (walk.by_columns || reduced.rank == 1);
  if (walk.linear) {
    each_memory([&](int k) { walk.direct |= std::uint32_t{along.inner_stride(k) == 1} << k; });
  }
  return walk;
}

}  // namespace brrr::jit
