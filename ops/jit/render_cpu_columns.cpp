// The walks of CPU kernels over columns: a tile is a range of adjacent rows, whose elements are
// combined step by step.
#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/cpu_lanes.h"
#include "brrr/ops/jit/render_cpu_walks.h"

namespace brrr::jit::cpu_text {

using namespace pieces;

namespace {

Accumulation accumulation_of_columns(const Body& body, const RowPass& pass,
                                     const TileSource& tile) {
  Accumulation text;
  for (const int r : pass.reductions) {
    const std::string& values = tile.reduced.at(r);
    if (is_arg(body, r)) {
      text.declared += fmt::format("  {} fold{}[kMost];\n", accumulator(body, r), r);
      text.taken +=
          fmt::format("  for (i64 e = 0; e < n; ++e) fold{}[e].take({}[e], j);\n", r, values);
      continue;
    }
    const std::string_view a = accumulator_name(body.value(r));
    text.declared += fmt::format(
        "  Total<{0}> fold{1}[kMost];\n  for (i64 e = 0; e < n; ++e) fold{1}[e].total = "
        "identity{1}<{0}>();\n",
        a, r);
    text.started += fmt::format(
        "  alignas(64) {0} t{1}[kMost];\n  for (i64 e = 0; e < n; ++e) t{1}[e] = "
        "identity{1}<{0}>();\n",
        a, r);
    text.taken += fmt::format(
        "  BRRR_INDEPENDENT_ITERATIONS\n  for (i64 e = 0; e < n; ++e) t{0}[e] = "
        "combine{0}<{1}>(t{0}[e], map{0}<{1}>(static_cast<{1}>({2}[e])));\n",
        r, a, values);
    text.merged += fmt::format(
        "  for (i64 e = 0; e < n; ++e) fold{0}[e].total = block ? "
        "combine{0}<{1}>(fold{0}[e].total, "
        "t{0}[e]) : t{0}[e];\n",
        r, a);
  }
  return text;
}

// The same of a tile of `lines` elements each of as many rows as the source knows.
Accumulation accumulation_of_lines(const Body& body, const RowPass& pass, const TileSource& tile,
                                   const CpuWalk& walk) {
  Accumulation text;
  for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
    const int r = pass.reductions[i];
    const std::string& values = tile.reduced.at(r);
    if (is_arg(body, r)) {
      text.declared += fmt::format("  {} fold{}[kWidth];\n", accumulator(body, r), r);
      text.taken += fmt::format(
          "  for (i64 line = 0; line < lines; ++line) {{\n  for (i64 e = 0; e < kWidth; ++e) "
          "fold{0}[e].take({1}[line * kWidth + e], j + line);\n  }}\n",
          r, values);
      continue;
    }
    const std::string_view a = accumulator_name(body.value(r));
    if (!walk.splits) text.declared += fmt::format("  Total<{}> fold{}[kWidth];\n", a, r);
    text.started += fmt::format(
        "  alignas(64) {0} t{1}[kWidth];\n  for (i64 e = 0; e < kWidth; ++e) t{1}[e] = "
        "identity{1}<{0}>();\n",
        a, r);
    text.taken += fmt::format("  fold_columns<R{0}, kWidth>(t{0}, {1}, lines);\n", r, values);
    text.merged += walk.splits
                       ? fmt::format(
                             "  for (i64 e = 0; e < kWidth; ++e) leave_part(a, (number * {} + {}) "
                             "* kTileWidth "
                             "+ e, t{}[e]);\n",
                             pass.reductions.size(), i, r)
                       : fmt::format(
                             "  for (i64 e = 0; e < kWidth; ++e) fold{0}[e].total = block ? "
                             "combine{0}<{1}>(fold{0}[e].total, t{0}[e]) : t{0}[e];\n",
                             r, a);
  }
  return text;
}

}  // namespace

std::string columns(const Body& body) {
  const std::vector<RowPass> passes = passes_of(body);
  const std::size_t operands = body.strided(), reads = body.reads();
  std::string buffers = fmt::format("  Row rows[kTile];\n  i64 bases[kTile][{}];\n", operands);
  std::string text;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    const RowPass& pass = passes[p];
    const TileSource tile = tile_source(body, pass, p, {"kept", "line", "shift", true});
    buffers += tile.buffers;
    const Accumulation of = accumulation_of_columns(body, pass, tile);
    text += of.declared + fmt::format(R"(  {{
  Coordinates down;
  for (i64 block = 0; block < elements; block += a.block) {{
  const i64 block_end = least(elements, block + a.block);
{1}  for (i64 j = block; j < block_end; ++j, down.advance(reduced, 1)) {{
  i64 shift[{0}];
  for (int k = 0; k < {0}; ++k) shift[k] = down.offset(reduced, k);
{2}{3}  }}
{4}  }}
  }}
  for (i64 e = 0; e < n; ++e) {{
  Row& row = rows[e];
{5}  }}
  for (i64 e = n; e < padded(n); ++e) rows[e] = rows[0];
)",
                                      operands, of.started, tile.statements, of.taken + tile.writes,
                                      of.merged, results(body, pass, "[e]"));
  }
  return buffers + fmt::format(R"(  const StridedSpace &kept = *a.space, &reduced = *a.reduced;
  const i64 elements = reduced.count();
  Coordinates line(kept, begin);
  for (i64 number = begin; number < end; number += kTile) {{
  const i64 n = least(kTile, end - number), m = padded(n);
  Coordinates next = line;
  for (i64 e = 0; e < n; ++e, next.advance(kept, 1)) {{
    for (int k = 0; k < {0}; ++k) bases[e][k] = next.offset(kept, k);
    begin_row(rows[e], {1}{2}bases[e]);
  }}
  for (i64 e = n; e < padded(n); ++e) rows[e] = rows[0];
{3}  for (i64 e = 0; e < n; ++e) leave(rows[e], {4}{2}bases[e] + {5});
  line = next;
  }}
)",
                               operands, numbered("in", body.inputs.size()),
                               constant_arguments(body), text, numbered("out", body.outputs.size()),
                               reads);
}

std::string whole_columns(const Body& body, const CpuWalk& walk) {
  const std::vector<RowPass> passes = passes_of(body);
  const auto each_row = [](std::string_view statements) {
    return statements.empty()
               ? std::string()
               : fmt::format(
                     "  for (i64 e = 0; e < kWidth; ++e) {{\n  Row& row = rows[e];\n{}  }}\n",
                     statements);
  };
  const auto at_row = [&](bool any, std::string_view call) {
    if (!any) return std::string();
    return each_row(fmt::format("  const i64 at[] = {{{}}};\n  {}",
                                each_operand(body, "base[@] + e * kept.inner_stride(@), "), call));
  };
  // A pass over a tile, without its reductions, in chunks of a line.
  const auto each_line = [&](const TileSource& tile) {
    return fmt::format(
        "  for (i64 number = 0, all = lines; number < all; ++number) {{\n  constexpr i64 "
        "lines = 1, n = kWidth;\n  const i64 at = number * kWidth, m = padded(n);\n  const i64 "
        "here[] = {{{}}};\n{}{}  }}\n",
        each_operand(body, "shift[@] + number * step[@], "), tile.statements, tile.writes);
  };
  const std::string steps = each_operand(body, "reduced.inner_stride(@), ");
  std::string buffers, text, joined;
  KeptValues known;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    const RowPass& pass = passes[p];
    const TileSource tile = tile_source(body, pass, p,
                                        {"kept", "line", walk.in_chunks ? "here" : "shift", true,
                                         true, walk.direct, "step", true, walk.in_chunks},
                                        known);
    buffers += tile.buffers;
    const Accumulation of = accumulation_of_lines(body, pass, tile, walk);
    const std::string of_tile =
        walk.in_chunks ? each_line(tile) + of.taken : tile.statements + of.taken + tile.writes;
    const std::string results_of_rows = each_row(results(body, pass, "[e]"));
    if (walk.keeps) {
      text += of.declared + tile.spread + of.started + of_tile + of.merged + results_of_rows;
      known = tile.kept;
      continue;
    }
    const std::string of_block = fmt::format(
        R"(  const i64 block_end = least(elements, block + a.block);
{0}  for (i64 j = block; j < block_end;) {{
  const i64 run_end = least(block_end, j + down.run(reduced));
  i64 shift[] = {{{1}}};
  const i64 step[] = {{{2}}};
  down.advance(reduced, run_end - j);
  while (j < run_end) {{
  const i64 lines = least(kLines, run_end - j), n = lines * kWidth, m = padded(n);
{3}{4}  j += lines;
  }}
  }}
{5})",
        of.started, each_operand(body, "base[@] + down.offset(reduced, @), "), steps, of_tile,
        each_operand(body, "  shift[@] += lines * step[@];\n"), of.merged);
    if (walk.splits) {
      for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
        joined += fmt::format(
            "  Total<{0}> fold{1}[kWidth];\n  for (i64 b = 0; b < blocks; ++b) {{\n  for (i64 e = "
            "0; e < kWidth; ++e) {{\n  const {0} of_block = part<{0}>(a, ((column / kTileWidth * "
            "blocks + b) * {2} + {3}) * kTileWidth + e);\n  fold{1}[e].total = b ? "
            "combine{1}<{0}>(fold{1}[e].total, of_block) : of_block;\n  }}\n  }}\n",
            accumulator_name(body.value(pass.reductions[i])), pass.reductions[i],
            pass.reductions.size(), i);
      }
      text = fmt::format(R"(  const i64 blocks = (elements - 1) / a.block + 1;
  if (number >= 0) {{
  const i64 block = number % blocks * a.block;
{}  Coordinates down(reduced, block);
{}  return;
  }}
{}{})",
                         tile.spread, of_block, joined, results_of_rows);
    } else {
      text += fmt::format(R"({}{}  {{
  Coordinates down;
  for (i64 block = 0; block < elements; block += a.block) {{
{}  }}
  }}
{})",
                          of.declared, tile.spread, of_block, results_of_rows);
    }
  }
  if (walk.keeps) {
    text =
        fmt::format(
            "  const i64 block = 0, j = 0, lines = elements, n = lines * kWidth, m = padded(n);\n"
            "  const i64* shift = base;\n  const i64 step[] = {{{}}};\n",
            steps) +
        text;
  }
  // A part of a tile is one of its blocks. Part -1 combines them.
  return fmt::format(
      R"(constexpr i64 kTileWidth = {0}, kRest = {1}, kLines = {2};
template <i64 kWidth>
static void tile_of_columns(const Arguments& a, i64 column, i64 number) {{
{3}  constexpr i64 kMost = kLines * kWidth + kGroup;
  Row rows[kWidth];
{4}  const StridedSpace &kept = *a.space, &reduced = *a.reduced;
  const i64 elements = reduced.count();
  const Coordinates line(kept, column);
  const i64 base[] = {{{5}}};
{6}{7}{8}}}
static void tile_of(const Arguments& a, i64 column, i64 number) {{
  if (kRest == 0 || column + kTileWidth <= a.space->count()) {{
    tile_of_columns<kTileWidth>(a, column, number);
  }} else {{
    tile_of_columns<kRest == 0 ? kTileWidth : kRest>(a, column, number);
  }}
}}
extern "C" void {9}(const Arguments& a, i64 begin, i64 end) {{
{10}}}
)",
      walk.tile, walk.rest, walk.lines, unpacked(body), buffers,
      each_operand(body, "line.offset(kept, @), "),
      at_row(has_row_values(body), begin_call(body, "row", "at")), text,
      at_row(writes_rows(body), leave_call(body, "row", fmt::format("at + {}", body.reads()))),
      body.name,
      walk.splits ? "  const i64 blocks = (a.reduced->count() - 1) / a.block + 1;\n"
                    "  for (i64 number = begin; number < end; ++number)\n"
                    "    tile_of(a, number / blocks * kTileWidth, number);\n"
                    "  for (i64 column = 0; begin == end && column < a.space->count(); column += "
                    "kTileWidth)\n    tile_of(a, column, -1);\n"
                  : "  for (i64 column = begin; column < end; column += kTileWidth) tile_of(a, "
                    "column, 0);\n");
}

}  // namespace brrr::jit::cpu_text
