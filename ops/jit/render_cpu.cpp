// Owns the source of CPU kernels: functions of a range of elements or rows, which compute a tile of
// elements at a time (render_cpu_tile.h). Most reductions know their tile's size: whole rows, or so
// many adjacent ones. The others take tiles of any size, in any layout.
#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/cpu_lanes.h"
#include "brrr/ops/jit/render_cpu_walks.h"

namespace brrr::jit {
namespace cpu_text {

using namespace pieces;
using Kind = BodyValue::Kind;

bool is_arg(const Body& body, int value) { return body.value(value).kind == Kind::arg; }

std::string_view accumulator_name(const BodyValue& value) {
  return array_name(value.cpu_accumulator);
}

std::string unpacked(const Body& body) {
  std::string text;
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    text += fmt::format("  {0}* out{1} = static_cast<{0}*>(a.outputs[{1}]);\n",
                        c_name(body.outputs[i].dtype), i);
  }
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    text += fmt::format("  const {0}* in{1} = static_cast<const {0}*>(a.inputs[{1}]);\n",
                        c_name(body.inputs[i].dtype), i);
  }
  for (std::size_t i = 0; i < body.scalars.size(); ++i) {
    text += fmt::format("  const {0} s{1} = scalar_of<{0}>(a, {1});\n", c_name(body.scalars[i]), i);
  }
  for (std::size_t i = 0; i < body.checks.size(); ++i)
    text += fmt::format("  const FaultSink sink{0} = {{a.fault, {0}}};\n", i);
  return text;
}

std::string accumulator(const Body& body, int r) {
  const BodyValue& value = body.value(r);
  return is_arg(body, r) ? fmt::format("Best<R{}, {}>", r, array_name(value.type))
                         : fmt::format("Folded<R{}, {}>", r, accumulator_name(value));
}

std::string results(const Body& body, const RowPass& pass, std::string_view element) {
  std::string text;
  for (const int r : pass.reductions) {
    const BodyValue& value = body.value(r);
    std::string result;
    if (is_arg(body, r)) {
      result = fmt::format("fold{}{}.place", r, element);
    } else {
      const std::string_view type = accumulator_name(value);
      result =
          fmt::format("narrow<{0}>(finish{1}<{2}>(fold{1}{3}.total, static_cast<{2}>(elements)))",
                      register_name(value.type), r, type, element);
      if (is_rounded(body, r)) result = fmt::format("rounded<{}>({})", c_name(value.dtype), result);
    }
    text += fmt::format("  {} = {};\n", name_of_value(body, r), result);
  }
  return text + statements(body, pass.results);
}

std::string each_operand(const Body& body, std::string_view what) {
  std::string text;
  for (std::size_t k = 0; k < body.strided(); ++k) {
    for (const char c : what) {
      if (c == '@') {
        text += std::to_string(k);
      } else {
        text += c;
      }
    }
  }
  return text;
}

bool writes_rows(const Body& body) {
  return std::any_of(
      body.outputs.begin(), body.outputs.end(),
      [](const Body::TensorOperand& output) { return output.scope == Body::Scope::row; });
}

namespace {

std::string pointwise(const Body& body, const CpuWalk& walk) {
  const std::vector<RowPass> passes = passes_of(body);
  const TileSource tile =
      tile_source(body, passes[0], 0, {"space", "place", "", false, false, walk.direct});
  return tile.constants + tile.buffers +
         fmt::format(R"(  const StridedSpace& space = *a.space;
  Coordinates place(space, begin);
  for (i64 first = begin; first < end; first += kTile) {{
  const i64 n = least(kTile, end - first), m = padded(n);
{}  place.advance(space, n);
  }}
)",
                     tile.statements + tile.writes);
}

// struct R<r>: a reduction's functions, for Folded and Best.
std::string reductions(const Body& body) {
  std::string text;
  for (std::size_t r = 0; r < body.values.size(); ++r) {
    if (body.values[r].kind == Kind::reduction) {
      const Expression map = body.values[r].expression;
      const bool in_lanes = suits_lanes(map) && suits_lanes(body.values[r].combine) &&
                            std::ranges::none_of(map.values(), is_comparison, &ScalarValue::op);
      text += fmt::format(R"(struct R{0} {{
  static constexpr bool in_lanes = {1};
  template <class T>
  static BRRR_SCALAR_FN T map(T a) {{ return map{0}<T>(a); }}
  template <class T>
  static BRRR_SCALAR_FN T identity() {{ return identity{0}<T>(); }}
  template <class T>
  static BRRR_SCALAR_FN T combine(T x, T y) {{ return combine{0}<T>(x, y); }}
}};
)",
                          r, in_lanes);
    } else if (body.values[r].kind == Kind::arg) {
      text += fmt::format(R"(struct R{0} {{
  template <class T>
  static BRRR_SCALAR_FN bool before(T a, T b) {{ return before{0}<T>(a, b); }}
}};
)",
                          r);
    }
  }
  return text;
}

// The halves' pieces, as eager converts them.
std::string piece_of(const Body& body, int r) {
  return is_half(body.value(body.value(r).operands[0]).dtype) ? "least(a.piece, 1024)" : "a.piece";
}

// Of a pass over a row: everything but its reductions.
std::string chunks(const Body& body, const TileSource& tile) {
  return fmt::format(
      "  for (i64 at = 0; at < elements; at += kTile) {{\n  const i64 n = least(kTile, elements - "
      "at), m = padded(n);\n  const i64 here[] = {{{}}};\n{}{}  }}\n",
      each_operand(body, "base[@] + at * reduced.inner_stride(@), "), tile.statements, tile.writes);
}

// Rows of a length that the source knows. A row is a tile: its passes leave values to later ones.
std::string whole_rows(const Body& body, const CpuWalk& walk) {
  std::string buffers, text;
  KeptValues known;
  const std::vector<RowPass> passes = passes_of(body);
  for (std::size_t p = 0; p < passes.size(); ++p) {
    const TileSource tile =
        tile_source(body, passes[p], p,
                    {"reduced", "place", walk.in_chunks ? "here" : "base", false, walk.linear,
                     walk.direct, "step", false, walk.in_chunks},
                    known);
    buffers += tile.buffers;
    text += walk.in_chunks ? chunks(body, tile) : tile.statements;
    for (const int r : passes[p].reductions) {
      const std::string& values = tile.reduced.at(r);
      if (is_arg(body, r)) {
        text += fmt::format("  const Place fold{0} = {{best_of<R{0}>({1}, n)}};\n", r, values);
        continue;
      }
      const bool half = is_half(body.value(body.value(r).operands[0]).dtype);
      text += fmt::format("  const Total<{0}> fold{1} = {{folded<R{1}, {0}>({2}, n, {3}, {4})}};\n",
                          accumulator_name(body.value(r)), r, values, walk.run,
                          half ? std::min<std::int64_t>(walk.piece, 1024) : walk.piece);
    }
    text += (walk.in_chunks ? "" : tile.writes) + results(body, passes[p], "");
    if (walk.linear) known = tile.kept;
  }
  const std::size_t reads = body.reads();
  return fmt::format(R"(  constexpr i64 kMost = {0} + kGroup, n = {0}, elements = n;
  const i64 m = padded(n);
{1}  const StridedSpace &kept = *a.space, &reduced = *a.reduced;
  const Coordinates place;
  Coordinates line(kept, begin);
  for (i64 number = begin; number < end;) {{
  const i64 count = least(end - number, line.run(kept));
  i64 base[] = {{{2}}};
  const i64 step[] = {{{3}}};
  line.advance(kept, count);
  number += count;
  for (i64 left = count; left > 0; --left) {{
  Row row;
  begin_row(row, {4}{5}base);
{6}  leave(row, {7}{5}base + {8});
{9}  }}
  }}
)",
                     walk.tile, buffers, each_operand(body, "line.offset(kept, @), "),
                     each_operand(body, "kept.inner_stride(@), "),
                     numbered("in", body.inputs.size()), constant_arguments(body), text,
                     numbered("out", body.outputs.size()), reads,
                     each_operand(body, "  base[@] += step[@];\n"));
}

// Reduces each of the rows of a tile.
std::string fold_of_lines(const Body& body, const CpuWalk& walk, int r, const std::string& values) {
  if (is_arg(body, r)) {
    return fmt::format(
        "  Place fold{0}[kLines];\n  for (i64 line = 0; line < lines; ++line) "
        "fold{0}[line].place = best_of<R{0}>({1} + line * kWidth, kWidth);\n",
        r, values);
  }
  const bool half = is_half(body.value(body.value(r).operands[0]).dtype);
  return fmt::format(
      "  Total<{0}> fold{1}[kLines];\n  fold_rows<R{1}, kWidth>(fold{1}, {2}, lines, {3}, {4});\n",
      accumulator_name(body.value(r)), r, values, walk.run,
      half ? std::min<std::int64_t>(walk.piece, 1024) : walk.piece);
}

// Several short rows in a tile, of one run of the kept space.
std::string lines_of_rows(const Body& body, const CpuWalk& walk) {
  std::string buffers, text;
  KeptValues known;
  const std::vector<RowPass> passes = passes_of(body);
  const std::size_t reads = body.reads();
  const auto each_row = [&](std::string_view call) {
    return fmt::format(
        "  for (i64 line = 0; line < lines; ++line) {{\n  const i64 at[] = {{{}}};\n  {}  }}\n",
        each_operand(body, "base[@] + line * step[@], "), call);
  };
  for (std::size_t p = 0; p < passes.size(); ++p) {
    const RowPass& pass = passes[p];
    const TileSource tile = tile_source(
        body, pass, p, {"reduced", "place", "base", false, walk.linear, walk.direct, "step", true},
        known);
    buffers += tile.buffers;
    text += tile.spread + tile.statements;
    for (const int r : pass.reductions) text += fold_of_lines(body, walk, r, tile.reduced.at(r));
    text += tile.writes;
    if (const std::string of_rows = results(body, pass, "[line]"); !of_rows.empty()) {
      text += fmt::format(
          "  for (i64 line = 0; line < lines; ++line) {{\n  Row& row = rows[line];\n{}  }}\n",
          of_rows);
    }
    known = tile.kept;
  }
  return fmt::format(
      R"(  constexpr i64 kLines = {0}, kWidth = {1}, kMost = kLines * kWidth + kGroup, elements = kWidth;
  Row rows[kLines];
{2}  const StridedSpace &kept = *a.space, &reduced = *a.reduced;
  Coordinates line(kept, begin);
  for (i64 number = begin; number < end;) {{
  i64 left = least(end - number, line.run(kept));
  i64 base[] = {{{3}}};
  const i64 step[] = {{{4}}};
  line.advance(kept, left);
  number += left;
  for (; left > 0; left -= kLines) {{
  const i64 lines = least(left, kLines), n = lines * kWidth, m = padded(n);
{5}{6}{7}{8}  }}
  }}
)",
      walk.lines, walk.tile, buffers, each_operand(body, "line.offset(kept, @), "),
      each_operand(body, "kept.inner_stride(@), "),
      has_row_values(body) ? each_row(begin_call(body, "rows[line]", "at")) : "", text,
      writes_rows(body) ? each_row(leave_call(body, "rows[line]", fmt::format("at + {}", reads)))
                        : "",
      each_operand(body, "  base[@] += lines * step[@];\n"));
}

Accumulation accumulation_of_row(const Body& body, const RowPass& pass, const TileSource& tile) {
  Accumulation text;
  for (const int r : pass.reductions) {
    const std::string& values = tile.reduced.at(r);
    text.declared += fmt::format("  {} fold{};\n", accumulator(body, r), r);
    if (is_arg(body, r)) {
      text.taken +=
          fmt::format("  for (i64 e = 0; e < n; ++e) fold{}.take({}[e], first + e);\n", r, values);
      continue;
    }
    text.started += fmt::format("  {} fold{}_b;\n", accumulator(body, r), r);
    text.begun += fmt::format("  fold{}_b.begin(run_end - first, {});\n", r, piece_of(body, r));
    text.taken += fmt::format("  fold{}_b.take({}, n);\n", r, values);
    text.merged +=
        fmt::format("  if (block) fold{0}.merge(fold{0}_b); else fold{0} = fold{0}_b;\n", r);
  }
  return text;
}

std::string rows(const Body& body) {
  const std::vector<RowPass> passes = passes_of(body);
  std::string text = fmt::format(
      R"(  const StridedSpace &kept = *a.space, &reduced = *a.reduced;
  const i64 elements = reduced.count();
  Coordinates line(kept, begin);
  for (i64 number = begin; number < end; ++number, line.advance(kept, 1)) {{
  i64 base[{0}];
  for (int k = 0; k < {0}; ++k) base[k] = line.offset(kept, k);
  Row row;
  begin_row(row, {1}{2}base);
)",
      body.strided(), numbered("in", body.inputs.size()), constant_arguments(body));
  std::string buffers;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    const RowPass& pass = passes[p];
    const TileSource tile = tile_source(body, pass, p, {"reduced", "place", "base"});
    buffers += tile.buffers;
    const Accumulation of = accumulation_of_row(body, pass, tile);
    text += fmt::format(R"(  Coordinates place{0};
{1}  for (i64 block = 0; block < elements; block += a.block) {{
  const i64 block_end = least(elements, block + a.block);
{2}  for (i64 first = block; first < block_end;) {{
  const i64 run_end = least(block_end, (first / a.run + 1) * a.run);
{3}  while (first < run_end) {{
  const i64 n = least(kTile, run_end - first), m = padded(n);
  Coordinates& place = place{0};
{4}{5}  place.advance(reduced, n);
  first += n;
  }}
  }}
{6}  }}
)",
                        p, of.declared, of.started, of.begun, tile.statements,
                        of.taken + tile.writes, of.merged);
    text += results(body, pass, "");
  }
  return buffers + text +
         fmt::format("  leave(row, {}{}base + {});\n  }}\n", numbered("out", body.outputs.size()),
                     constant_arguments(body), body.reads());
}

// The one row of a body, in blocks that threads share.
std::string blocks_of_row(const Body& body) {
  const RowPass pass = passes_of(body)[0];
  const TileSource tile = tile_source(body, pass, 0, {"reduced", "place", "base"});
  const Accumulation of = accumulation_of_row(body, pass, tile);
  const std::size_t reads = body.reads();
  std::string left, joined;
  for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
    const int r = pass.reductions[i];
    const std::string at = fmt::format("number * {} + {}", pass.reductions.size(), i);
    left += fmt::format("  leave_part(a, {}, fold{}_b.total);\n", at, r);
    joined += fmt::format(
        "  Total<{0}> fold{1} = {{part<{0}>(a, {2})}};\n"
        "  for (i64 number = 1; number * a.block < elements; ++number)\n"
        "    fold{1}.total = combine{1}<{0}>(fold{1}.total, part<{0}>(a, {3}));\n",
        accumulator_name(body.value(r)), r, i, at);
  }
  return fmt::format(R"({0}  const StridedSpace &kept = *a.space, &reduced = *a.reduced;
  const i64 elements = reduced.count();
  const Coordinates line;
  const i64 base[] = {{{1}}};
  Row row;
  begin_row(row, {2}{3}base);
  if (begin < end) {{
  for (i64 number = begin; number < end; ++number) {{
  const i64 block = number * a.block, block_end = least(elements, block + a.block);
  Coordinates place(reduced, block);
{4}  for (i64 first = block; first < block_end;) {{
  const i64 run_end = least(block_end, (first / a.run + 1) * a.run);
{5}  while (first < run_end) {{
  const i64 n = least(kTile, run_end - first), m = padded(n);
{6}{7}  place.advance(reduced, n);
  first += n;
  }}
  }}
{8}  }}
  return;
  }}
{9}{10}  leave(row, {11}{3}base + {12});
)",
                     tile.buffers, each_operand(body, "line.offset(kept, @), "),
                     numbered("in", body.inputs.size()), constant_arguments(body), of.started,
                     of.begun, tile.statements, of.taken + tile.writes, left, joined,
                     results(body, pass, ""), numbered("out", body.outputs.size()), reads);
}

}  // namespace
}  // namespace cpu_text

std::string render_cpu(const Body& body, const CpuWalk& walk) {
  using namespace cpu_text;
  verify(body);
  const bool reduces = body.reduces();
  std::string text = functions(body);
  if (reduces) text += row_struct(body) + leave(body) + reductions(body);
  if (walk.by_columns && walk.tile > 0) {
    text += whole_columns(body, walk);
  } else {
    text += fmt::format("extern \"C\" void {}(const Arguments& a, i64 begin, i64 end) {{\n{}",
                        body.name, unpacked(body));
    if (!reduces) {
      text += pointwise(body, walk);
    } else if (walk.by_columns) {
      text += columns(body);
    } else if (walk.splits) {
      text += blocks_of_row(body);
    } else if (walk.tile == 0) {
      text += rows(body);
    } else {
      text += walk.lines > 1 ? lines_of_rows(body, walk) : whole_rows(body, walk);
    }
    text += "}\n";
  }
  return fmt::format("namespace of_{0} {{\n{1}}}  // namespace of_{0}\n", body.name, text);
}

}  // namespace brrr::jit
