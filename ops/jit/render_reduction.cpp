// Owns the source of CUDA kernels with reductions: rows, columns, rows with columns, and the join
// of their parts. Every order of combination is fixed by the geometry, so a result has the same
// bits in every run.
//
// A kernel passes over the elements of a row once for each reduction that waits for another, and
// once more where elements are written that depend on results. Threads that share a row all know
// its results (`row`); what they load stays in registers where the schedule says so, else it is
// loaded again.
//
// If columns are reduced beside rows, each block takes many rows, one set after the other. A thread
// has the same columns in all of them, and keeps their accumulators in registers.
#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/row_loops.h"
#include "brrr/tensor/error.h"

namespace brrr::jit {
namespace {

using namespace pieces;

// Whether outputs have strides in the reduced space: one is written per element, or per column.
bool writes_along_rows(const Body& body) {
  return std::any_of(
      body.outputs.begin(), body.outputs.end(),
      [](const Body::TensorOperand& output) { return output.scope >= Body::Scope::column; });
}

// Combines the partials of LANES neighbouring threads in the first of them; `shared` has 32
// elements. All threads of the block take part.
constexpr std::string_view kAcrossLanes = R"(
template <int LANES, class P>
BRRR_FN void across_lanes(P& p, P* shared) {
#pragma unroll
  for (int by = (LANES < 32 ? LANES : 32) / 2; by > 0; by /= 2) {
    const P other = of_lane<true>(p, by, LANES < 32 ? LANES : 32);
    join(p, other);
  }
  if constexpr (LANES > 32) {
    constexpr int kWarps = LANES / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) shared[warp] = p;
    __syncthreads();
    if (warp % kWarps == 0) {
      if (lane < kWarps) {
        p = shared[warp + lane];
      } else {
        start(p);
      }
#pragma unroll
      for (int by = kWarps / 2; by > 0; by /= 2) {
        const P other = of_lane<true>(p, by, 32);
        join(p, other);
      }
    }
  }
}
)";
// The same in all of them, in the same order. One barrier is enough where calls alternate between
// two parts of shared memory.
constexpr std::string_view kInAllLanes = R"(
template <int HALF, int N, class P>
BRRR_FN void join_halves(P (&parts)[N]) {
  if constexpr (HALF > 0) {
#pragma unroll
    for (int i = 0; i < HALF; ++i) join(parts[i], parts[i + HALF]);
    join_halves<HALF / 2>(parts);
  }
}
template <int LANES, class P>
BRRR_FN void in_all_lanes(P& p, P* shared) {
  constexpr int kLanes = LANES < 32 ? LANES : 32, kWarps = LANES / kLanes;
#pragma unroll
  for (int by = kLanes / 2; by > 0; by /= 2) {
    const P other = of_lane<true>(p, by, kLanes);
    join(p, other);
  }
  if constexpr (kWarps > 1) {
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) shared[warp] = p;
    __syncthreads();
    P parts[kWarps];
#pragma unroll
    for (int i = 0; i < kWarps; ++i) parts[i] = shared[warp / kWarps * kWarps + i];
    join_halves<kWarps / 2>(parts);
    p = parts[0];
  } else {
    p = of_lane<false>(p, 0, kLanes);
  }
}
)";

// --- Kernels ------------------------------------------------------------------------------------

// Each block leaves its accumulators of all columns in scratch memory.
constexpr std::string_view kLeaveColumns = R"(
  if constexpr (THREADS > LANES) {
    // The first row of a block combines those of the others, in order.
    ColumnPartial* shared = static_cast<ColumnPartial*>(memory);
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int e = 0; e < W; ++e) {
        __syncthreads();
        shared[threadIdx.x] = columns[u][e];
        __syncthreads();
        if (threadIdx.x >= LANES) continue;
#pragma unroll
        for (int other = LANES; other < THREADS; other += LANES) join(columns[u][e], shared[threadIdx.x + other]);
      }
    }
    if (threadIdx.x >= LANES) return;
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (i + u * STEP >= end) continue;
#pragma unroll
    for (int e = 0; e < W; ++e) partials[i64(block.x()) * elements + (i + u * STEP) * W + e] = columns[u][e];
  }
)";

std::string constants(const Body& body, const Schedule& schedule) {
  return fmt::format(
      "constexpr int W = {}, U = {}, THREADS = {}, LANES = {}, RANK = {}, REDUCED = {}, READ = {}, "
      "OUT = {}, EACH = {}, STEP = {};\n",
      schedule.width, schedule.unroll, schedule.threads, schedule.lanes, schedule.rank,
      schedule.reduced_rank, body.reads(), body.outputs.size(),
      body.reads() + (writes_along_rows(body) ? body.outputs.size() : 0),
      schedule.walk == Walk::rows ? "LANES" : "THREADS / LANES");
}

// The statements of the one thread that has the sums of a row, or of a block's part of it.
std::string ending(const Body& body, const Schedule& schedule, const std::string& partial,
                   std::string_view number, std::string_view row, std::string_view offset,
                   const std::string& offsets = "") {
  const std::vector<RowPass> passes = passes_of(body);
  const std::string leaving = "    " + leave_call(body, row, offset);
  if (passes.back().reductions.empty()) return offsets + leaving;
  const std::string results = offsets + "    " + finish_call(body, row, partial) + leaving;
  if (passes.size() > 1 || schedule.cluster > 1 || schedule.reduces_columns) return results;
  return fmt::format(
      "    if (block.parts() > 1) {{\n      partials[{} * block.parts() + block.y()] = {};\n    }} "
      "else {{\n{}    "
      "}}\n",
      number, partial, results);
}

constexpr std::string_view kLine =
    "  // Threads past the last row repeat it: shuffles want whole warps.\n"
    "  const i64 mine = line < kept.count ? line : kept.count - 1;\n"
    "  i64 base[READ + OUT];\n"
    "  locate<RANK, {}>(kept, mine, base);\n";

// The statements of row `line`, of the elements from `first` to `end`. With reductions of columns
// the row has been loaded, and `load_next` loads the block's next one.
std::string row(const Body& body, const Schedule& schedule, const std::vector<RowPass>& passes,
                std::string_view load_next = "") {
  const RowLoops loops(body, schedule);
  const std::string begin = "  " + begin_call(body, "row", "base");
  std::string text = schedule.reduces_columns ? "  Row row = next;\n" : "  Row row;\n" + begin;
  if (schedule.keeps) text += "  const i64 i = first;\n" + loops.load_once(passes);
  if (schedule.reduces_columns) text += std::string(load_next) + begin;
  for (std::size_t n = 0; n < passes.size(); ++n) {
    const bool reduces = !passes[n].reductions.empty();
    if (reduces) {
      text += fmt::format(
          "  Partial{0} p{0}_[U];\n#pragma unroll\n  for (int u = 0; u < U; ++u) "
          "start(p{0}_[u]);\n",
          n);
    }
    text += loops.pass(n, passes[n], fmt::format("p{}_[u]", n), "row", "(i + u * STEP) * W + e");
    if (!reduces) continue;
    text += fmt::format(
        "#pragma unroll\n"
        "  for (int half = 1; half < U; half *= 2) {{\n"
        "#pragma unroll\n"
        "    for (int u = 0; u + half < U; u += 2 * half) join(p{0}_[u], p{0}_[u + half]);\n"
        "  }}\n"
        "  {1}<LANES>(p{0}_[0], {2});\n",
        n, n + 1 < passes.size() ? "in_all_lanes" : "across_lanes",
        schedule.lanes > 32 ? fmt::format("static_cast<Memory*>(memory)[{}].of{}", n % 2, n)
                            : fmt::format("static_cast<Partial{}*>(nullptr)", n));
    if (n + 1 < passes.size()) text += "  " + finish_call(body, "row", fmt::format("p{}_[0]", n));
  }
  const std::size_t last = passes.size() - 1;
  return text + "  if (lane == 0 && line < kept.count) {\n" +
         ending(body, schedule, fmt::format("p{}_[0]", last), "line", "row", "base + READ") +
         "  }\n";
}

std::string rows(const Body& body, const Schedule& schedule, const std::vector<RowPass>& passes) {
  return "  const int lane = threadIdx.x % LANES;\n"
         "  const i64 line = i64(block.x()) * (THREADS / LANES) + threadIdx.x / LANES;\n" +
         fmt::format(kLine, schedule.wide) +
         "  const i64 first = i64(block.y()) * part + lane;\n"
         "  const i64 end = first - lane + part < reduced.count ? first - lane + part : "
         "reduced.count;\n" +
         row(body, schedule, passes);
}

std::string rows_with_columns(const Body& body, const Schedule& schedule,
                              const std::vector<RowPass>& passes) {
  const RowLoops loops(body, schedule);
  std::string text =
      "  const int lane = threadIdx.x % LANES;\n"
      "  const i64 first = lane, end = reduced.count;\n"
      "  const i64 i = first;\n"
      "  ColumnPartial columns[U][W];\n"
      "#pragma unroll\n"
      "  for (int u = 0; u < U; ++u) {\n"
      "#pragma unroll\n"
      "    for (int e = 0; e < W; ++e) start(columns[u][e]);\n"
      "  }\n";
  text += "  Row next;\n" + loops.next_packs();
  if (const std::string loaded = loops.load_shared(); !loaded.empty())
    text += "  const i64 base[READ + OUT] = {};  // all rows share what is loaded here\n" + loaded;
  const std::string load_next = fmt::format(kLine, schedule.wide) + loops.load_next() +
                                (has_row_values(body) ? "  " : "") +
                                load_call(body, "next", "base");
  text +=
      "  const i64 hop = i64(block.blocks()) * (THREADS / LANES);\n"
      "  i64 above = i64(block.x()) * (THREADS / LANES);\n"
      "  {\n"
      "  const i64 line = above + threadIdx.x / LANES;\n" +
      load_next +
      "  }\n"
      "#pragma unroll 1\n"
      "  for (; above < kept.count; above += hop) {\n"
      "  const i64 line = above + threadIdx.x / LANES;\n" +
      fmt::format(kLine, schedule.wide) +
      row(body, schedule, passes,
          "  if (above + hop < kept.count) {\n"
          "  const i64 line = above + hop + threadIdx.x / LANES;\n" +
              load_next + "  }\n");
  // The next row's first pass takes the same part of shared memory as this one's last.
  const auto reducing =
      std::ranges::count_if(passes, [](const RowPass& pass) { return !pass.reductions.empty(); });
  if (schedule.lanes > 32 && reducing % 2 == 1) text += "  __syncthreads();\n";
  return text + "  }\n" + std::string(kLeaveColumns);
}

// The second stage of columns: a block combines the partial results of kSide columns.
Kernel join_columns_kernel(const Schedule& schedule) {
  Kernel kernel{.function = "run_join", .suffix = "_join", .reads_inputs = false};
  kernel.last = {{"const ColumnPartial*", "partials"},
                 {"Geometry<EACH>", "reduced", true},
                 {"i32", "parts"},
                 {"i64", "elements"},
                 {"i64", "rows"}};
  kernel.memory = "ColumnPartial[256]";
  kernel.statements = fmt::format(R"(  constexpr int kSide = {};
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  const i64 column = i64(block.x()) * kSide + x;
  ColumnPartial* shared = static_cast<ColumnPartial*>(memory);
  ColumnPartial p;
  start(p);
  if (column < elements) {{
#pragma unroll 8
    for (i32 i = y; i < parts; i += 256 / kSide) join(p, partials[i * elements + column]);
  }}
  shared[threadIdx.x] = p;
  __syncthreads();
#pragma unroll
  for (int half = 128; half >= kSide; half /= 2) {{
    if (threadIdx.x < half) join(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }}
  if (y > 0 || column >= elements) return;
  i64 at[EACH];
  locate<REDUCED, {}>(reduced, column / W, at);
#pragma unroll
  for (int k = READ; k < EACH; ++k) at[k] += column % W * (reduced.stride[k][REDUCED - 1] / W);
)",
                                  kJoinedColumns, schedule.wide);
  return kernel;
}

// Offsets of {3} operands from {2} on, for element e of a vector of rows: each is a W-th of the
// geometry's stride further.
constexpr std::string_view kOffsets =
    "#pragma unroll\n{0}for (int k = 0; k < {3}; ++k) offset[k] = {1}[k] + e * (kept.stride[{2} + "
    "k][RANK - 1] / W);\n";

// The first block of a cluster combines the partial results of the others, in order of their rank.
constexpr std::string_view kAcrossCluster = R"(  cluster_barrier();
  if (block.y() == 0) {{
#pragma unroll 1
    for (int e = y; e < W; e += STEP) {{
      Partial0& total = shared0[e * THREADS + x];
#pragma unroll
      for (u32 other = 1; other < {}; ++other) join(total, in_block(total, other));
    }}
  }}
  cluster_barrier();
  if (block.y() > 0) return;
)";

std::string columns(const Body& body, const Schedule& schedule,
                    const std::vector<RowPass>& passes) {
  const RowLoops loops(body, schedule);
  std::string text = fmt::format(
      "  const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;\n"
      "  const i64 line = i64(block.x()) * LANES + x;\n"
      "  const i64 mine = line < kept.count ? line : kept.count - 1;\n"
      "  i64 base[READ + OUT];\n"
      "  locate<RANK, {}>(kept, mine, base);\n"
      "  const i64 first = i64(block.y()) * part + y;\n"
      "  const i64 end = first - y + part < reduced.count ? first - y + part : reduced.count;\n"
      "  Row row[W];\n",
      schedule.wide);
  if (const std::string begin = begin_call(body, "row[e]", "offset"); !begin.empty()) {
    text += "#pragma unroll\n  for (int e = 0; e < W; ++e) {\n    i64 offset[READ];\n" +
            fmt::format(kOffsets, "    ", "base", "0", "READ") + "    " + begin + "  }\n";
  }
  if (schedule.keeps) text += "  const i64 i = first;\n" + loops.load_once(passes);
  for (std::size_t n = 0; n < passes.size(); ++n) {
    const bool reduces = !passes[n].reductions.empty(), last = n + 1 == passes.size();
    if (reduces) {
      text += fmt::format(
          "  Partial{0} p{0}_[W];\n#pragma unroll\n  for (int e = 0; e < W; ++e) "
          "start(p{0}_[e]);\n",
          n);
    }
    text += loops.pass(n, passes[n], fmt::format("p{}_[e]", n), "row[e]", "i + u * STEP");
    if (!reduces) continue;
    text += fmt::format(
        "  Partial{0}* shared{0} = static_cast<Partial{0}*>(memory);\n"
        "#pragma unroll\n"
        "  for (int e = 0; e < W; ++e) shared{0}[e * THREADS + threadIdx.x] = p{0}_[e];\n"
        "#pragma unroll 1\n"
        "  for (int half = STEP / 2; half > 0; half /= 2) {{\n"
        "    __syncthreads();\n"
        "    if (y < half) {{\n"
        "#pragma unroll\n"
        "      for (int e = 0; e < W; ++e) join(shared{0}[e * THREADS + threadIdx.x], shared{0}[e "
        "* THREADS + threadIdx.x + half * LANES]);\n"
        "    }}\n"
        "  }}\n",
        n);
    if (last) continue;
    text += "  __syncthreads();\n#pragma unroll\n  for (int e = 0; e < W; ++e) " +
            finish_call(body, "row[e]", fmt::format("shared{}[e * THREADS + x]", n)) +
            "  __syncthreads();\n";
  }
  if (schedule.cluster > 1) text += fmt::format(kAcrossCluster, schedule.cluster);
  text +=
      "  if (y > 0 || line >= kept.count) return;\n"
      "#pragma unroll\n  for (int e = 0; e < W; ++e) {\n";
  if (const std::size_t last = passes.size() - 1; !passes[last].reductions.empty())
    text +=
        fmt::format("    const Partial{0} total = shared{0}[e * THREADS + threadIdx.x];\n", last);
  const std::string offsets =
      "    i64 offset[OUT];\n" + fmt::format(kOffsets, "    ", "(base + READ)", "READ", "OUT");
  return text + ending(body, schedule, "total", "(line * W + e)", "row[e]", "offset", offsets) +
         "  }\n";
}

// The second stage: so many lanes combine the parts of a result.
Kernel join_kernel(const Body& body, const Schedule& schedule) {
  const int lanes = schedule.join_lanes;
  const std::string_view width = schedule.walk == Walk::columns ? "W" : "1";
  Kernel kernel{.function = "run_join", .suffix = "_join", .reads_inputs = has_row_values(body)};
  kernel.last = {{"const Partial0*", "partials"},
                 {"Geometry<READ + OUT>", "kept", true},
                 {"i32", "parts"},
                 {"i64", "elements"}};
  if (lanes > 32) kernel.memory = "Partial0[32]";
  kernel.statements = fmt::format(
      "  const int lane = threadIdx.x % {0};\n"
      "  const i64 result = i64(block.x()) * (256 / {0}) + threadIdx.x / {0}, results = "
      "kept.count * {1};\n"
      "  const i64 mine = result < results ? result : results - 1;\n"
      "  Partial0 p;\n"
      "  start(p);\n"
      "#pragma unroll 4\n"
      "  for (i32 i = lane; i < parts; i += {0}) join(p, partials[mine * parts + i]);\n"
      "  across_lanes<{0}>(p, static_cast<Partial0*>(memory));\n"
      "  if (lane > 0 || result >= results) return;\n"
      "  i64 base[READ + OUT];\n"
      "  locate<RANK, {2}>(kept, mine / {1}, base);\n"
      "  const i64 e = mine % {1};\n"
      "#pragma unroll\n"
      "  for (int k = 0; k < READ + OUT; ++k) base[k] += e * (kept.stride[k][RANK - 1] / {1});\n"
      "  Row row;\n",
      lanes, width, schedule.wide);
  kernel.statements += "  " + begin_call(body, "row", "base") + "  " +
                       finish_call(body, "row", "p") + "  " +
                       leave_call(body, "row", "base + READ");
  return kernel;
}

}  // namespace

std::string render_reduction(const Body& given, const Schedule& schedule) {
  Body body = with_guarded_functions(given);
  if (schedule.keeps && schedule.walk == Walk::rows) body = with_inverses(body);
  constexpr int kKept = 64;  // elements
  std::vector<RowPass> passes = passes_of(body);
  if (schedule.keeps) keep_values(body, passes, kKept / (schedule.width * schedule.unroll));
  std::string text = functions(body) + row_functions(body, schedule, passes);
  text += kAcrossLanes;
  if (passes.size() > 1 && schedule.walk == Walk::rows) text += kInAllLanes;
  text += constants(body, schedule) +
          fmt::format("static_assert(sizeof(Partial0) == {}, \"scratch memory\");\n",
                      partial_size_of(body, passes[0].reductions));
  Kernel kernel{.threads = schedule.threads, .cluster = schedule.cluster};
  kernel.last = {{body.reduces_columns() ? "ColumnPartial*" : "Partial0*", "partials"},
                 {"Geometry<READ + OUT>", "kept", true},
                 {"Geometry<EACH>", "reduced", true},
                 {"i64", "part"},
                 {"i64", "elements"}};
  const bool by_columns = schedule.walk == Walk::columns;
  const bool is_joined = body.reduces_columns() && schedule.threads > schedule.lanes;
  if (by_columns || schedule.lanes > 32 || is_joined) {
    kernel.memory = by_columns ? "Memory" : "Memory[2]";
    text += "union Memory {\n";
    for (std::size_t n = 0; n < passes.size(); ++n) {
      if (!passes[n].reductions.empty())
        text += fmt::format("  Partial{0} of{0}[{1}];\n", n, by_columns ? "THREADS * W" : "32");
    }
    if (is_joined) text += "  ColumnPartial of_columns[THREADS];\n";
    text += "};\n";
  }
  kernel.statements = by_columns               ? columns(body, schedule, passes)
                      : body.reduces_columns() ? rows_with_columns(body, schedule, passes)
                                               : rows(body, schedule, passes);
  text += kernel_of(body, kernel);
  if (body.reduces_columns()) {
    Kernel join = join_columns_kernel(schedule);
    join.statements += fmt::format("  leave_column(shared[x], {}{}at + READ, rows);\n",
                                   numbered("out", body.outputs.size()), constant_arguments(body));
    text += kernel_of(body, join);
  }
  if (schedule.join_lanes > 0) text += kernel_of(body, join_kernel(body, schedule));
  return of_body(body, text);
}

}  // namespace brrr::jit
