// What attention's kernels ask of their operands. Passes that make or change such calls share it.
#pragma once

#include <brrr/graph/ir.h>

namespace brrr::graph {

// Whether the kernels load and store the rows of a value: adjacent elements, 16 bytes at a time.
bool has_aligned_rows(const Graph& graph, const Value& x);

}  // namespace brrr::graph
