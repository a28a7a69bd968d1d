// Groups of calls that read elements by index (gather, index_select), add to one element of a line
// (scatter_add), draw random numbers or check values. Besides the elements of their operands they
// need addresses and coordinates.
#pragma once

#include <span>

#include <brrr/dispatch/op_info.h>
#include <brrr/graph/fusion_kernel.h>

namespace brrr::graph {

bool is_indexed(const OpInfo& op);
// Whether a call gathers whole rows. On the CPU its own kernel copies them; a fused one would look
// up each element.
bool gathers_rows(const Node& node);
// Whether a kernel of such a call reports bad indices or values.
bool may_report(const Node& node);
// Whether this gather, scatter, draw or check can be part of a fused kernel.
bool is_fusable_indexed(const Node& node);
// The group of this one call.
Group indexed_group(const Node& node, int number);
// Appends the value of the call's result. `operands`: the values of its inputs; for an addressed
// input the number of the body's input.
int indexed_value(const Group& group, FusedKernel& kernel, BodyReads& reads, const Node& node,
                  const Member& member, std::span<const int> operands);

}  // namespace brrr::graph
