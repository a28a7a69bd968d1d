// What the walks over rows and over columns of CPU kernels share (render_cpu.cpp,
// render_cpu_columns.cpp).
#pragma once

#include <string>
#include <string_view>

#include <brrr/ops/jit/render_cpu_tile.h>

namespace brrr::jit::cpu_text {

// Whether a value is the place of a row's first element.
bool is_arg(const Body& body, int value);
// Accumulators are as eager has them on the CPU.
std::string_view accumulator_name(const BodyValue& value);
std::string accumulator(const Body& body, int r);
// Pointers, scalars and sinks under the names of statements.
std::string unpacked(const Body& body);
// Results of a pass for one row, from accumulators whose names `element` follows.
std::string results(const Body& body, const pieces::RowPass& pass, std::string_view element);
// `what` once for every operand, with the operand's number in place of each @.
std::string each_operand(const Body& body, std::string_view what);
bool writes_rows(const Body& body);

// The statements of a pass on its accumulators.
struct Accumulation {
  std::string declared;  // before all blocks
  std::string started;   // at the start of a block,
  std::string begun;     // of a run,
  std::string taken;     // at each tile (rows) or element (columns),
  std::string merged;    // and at the end of a block
};

// A tile is a range of adjacent rows; each step takes one element of every row.
std::string columns(const Body& body);
// Tiles of as many adjacent rows as the source knows, in one run of the kept space, and their rest.
std::string whole_columns(const Body& body, const CpuWalk& walk);

}  // namespace brrr::jit::cpu_text
