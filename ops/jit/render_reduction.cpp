// Owns the source of CUDA kernels with reductions: rows, columns, and the join of their parts.
// Every order of combination is fixed by the geometry, so a result has the same bits in every run.
//
// A kernel passes over the elements of a row once for each reduction that waits for another, and
// once more where elements are written that depend on results. Threads that share a row all know
// its results (`row`); what they load stays in registers where the schedule says so, else it is
// loaded again.
#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/render.h"
#include "brrr/tensor/error.h"

namespace brrr::jit {
namespace {

using namespace pieces;

// Whether an output is written for each element, so that it has strides in the reduced space.
bool writes_elements(const Body& body) {
  return std::any_of(
      body.outputs.begin(), body.outputs.end(),
      [](const Body::TensorOperand& output) { return output.scope == Body::Scope::element; });
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
// And then in all of them.
constexpr std::string_view kToLanes = R"(
template <int LANES, class P>
BRRR_FN void to_lanes(P& p, P* shared) {
  if constexpr (LANES > 32) {
    const int warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % LANES == 0) shared[warp] = p;
    __syncthreads();
    p = shared[warp / (LANES / 32) * (LANES / 32)];
    __syncthreads();
  } else {
    p = of_lane<false>(p, 0, LANES);
  }
}
)";

// --- Loops over the elements of a row -----------------------------------------------------------

// Writes the loops of one kernel: the loads of vector i + u * STEP of the reduced space, and what
// the passes do with them.
class Loops {
 public:
  Loops(const Body& body, const Schedule& schedule) : body_(body), schedule_(schedule) {}

  std::string packs(std::string_view indent) const {
    std::string text;
    for_packed([&](std::size_t k) {
      text += fmt::format("{}Pack<{}, W> p{}[U];\n", indent, c_name(body_.inputs[k].dtype), k);
    });
    return text;
  }

  // Loads all vectors of a row into p<k>[U], and declares the values that are live between passes.
  std::string load_once(const std::vector<RowPass>& passes) const {
    std::string declarations;
    for (const RowPass& pass : passes) {
      for (const int v : pass.live_out)
        declarations += fmt::format("  {} k{}[U][W];\n", register_name(body_.value(v).dtype), v);
    }
    return packs("  ") + declarations +
           fmt::format("#pragma unroll\n  for (int u = 0; u < U; ++u) {}{{\n{}{}  }}\n",
                       within_row(), located("    "), loads("    ", ~schedule_.shared));
  }

  // One pass. `partial` is what element e of vector u enters, `index` its place in the row.
  std::string pass(std::size_t number, const RowPass& pass, std::string_view partial,
                   std::string_view row, std::string_view index) const {
    const std::string visited = vector(number, pass, partial, row, index);
    if (schedule_.keeps) {
      const std::string loaded = loads("    ", schedule_.shared);  // what no visit reads is dropped
      return fmt::format(
          "#pragma unroll\n  for (int u = 0; u < U; ++u) {}{{\n{}{}{}  }}\n", within_row(),
          pass.outputs.empty() && loaded.empty() ? "" : located("    "), loaded, visited);
    }
    std::string text = "  {\n  i64 i = first;\n", hops;
    for_moving([&](std::size_t operand, std::string_view type, std::string_view name,
                   std::string_view constant) {
      text += fmt::format(
          "  {3}{0}* at_{1} = {1} + base[{2}] + i * reduced.stride[{2}][0];\n"
          "  const i64 hop_{1} = STEP * reduced.stride[{2}][0];\n",
          type, name, operand, constant);
      hops += fmt::format("    at_{0} += U * hop_{0};\n", name);
    });
    const bool locates = visited.find("at[") != std::string::npos;
    const auto round = [&](std::string_view condition) {
      text += packs("    ") +
              fmt::format("#pragma unroll\n    for (int u = 0; u < U; ++u) {}{{\n", condition) +
              located("      ") + loads("      ") +
              fmt::format("    }}\n{}\n    for (int u = 0; u < U; ++u) {}{{\n{}{}    }}\n",
                          unrolled(body_, schedule_.width * schedule_.unroll), condition,
                          locates ? located("      ") : "", visited);
    };
    text += "#pragma unroll 1\n  for (; i + (U - 1) * STEP < end; i += U * STEP) {\n";
    round("");
    text += hops + "  }\n  if (i < end) {\n";
    round(kWithinRow);
    return text + "  }\n  }\n";
  }

 private:
  static constexpr std::string_view kWithinRow = "if (i + u * STEP < end) ";
  std::string_view within_row() const { return schedule_.exact ? "" : kWithinRow; }

  bool by_columns() const { return schedule_.walk == Walk::columns; }
  // The reduced space is one dimension whose stride is known only at run time: each operand is
  // walked by a pointer.
  bool walks_by_pointer() const {
    return by_columns() && schedule_.reduced_rank == 1 && !schedule_.keeps;
  }
  bool is_broadcast(std::size_t operand) const { return schedule_.broadcast >> operand & 1; }

  template <class F>
  void for_packed(F f) const {
    for (std::size_t k = 0; k < body_.inputs.size(); ++k) {
      if (!is_of_rows(body_, k) && !is_address(body_, k)) f(k);
    }
  }
  template <class F>
  void for_moving(F f) const {
    if (!walks_by_pointer()) return;
    for_packed([&](std::size_t k) {
      f(k, c_name(body_.inputs[k].dtype), fmt::format("in{}", k), "const ");
    });
    for (std::size_t o = 0; o < body_.outputs.size(); ++o) {
      if (body_.outputs[o].scope == Body::Scope::element)
        f(body_.reads() + o, c_name(body_.outputs[o].dtype), fmt::format("out{}", o), "");
    }
  }

  // at[k]: the offset of vector i + u * STEP in every operand.
  std::string located(std::string_view indent) const {
    if (schedule_.reduced_rank == 1) return "";
    return fmt::format("{0}i64 at[EACH];\n{0}locate<REDUCED, {1}>(reduced, i + u * STEP, at);\n",
                       indent, schedule_.wide);
  }

  // The offset of the vector within its row.
  std::string offset(std::size_t operand) const {
    if (schedule_.reduced_rank > 1) return fmt::format("at[{}]", operand);
    return !by_columns() && schedule_.width > 1 && !is_broadcast(operand)
               ? "(i + u * STEP) * W"
               : fmt::format("(i + u * STEP) * reduced.stride[{}][0]", operand);
  }
  std::string address(std::string_view name, std::size_t operand) const {
    return walks_by_pointer() ? fmt::format("at_{0} + u * hop_{0}", name)
                              : fmt::format("{} + base[{}] + {}", name, operand, offset(operand));
  }
  // The offset of the vector's first element, from the operand's beginning.
  std::string first_element(std::size_t operand) const {
    return fmt::format("base[{}] + {}", operand,
                       schedule_.reduced_rank > 1
                           ? fmt::format("at[{}]", operand)
                           : fmt::format("(i + u * STEP) * reduced.stride[{}][0]", operand));
  }
  // And of its element e.
  std::string element(std::size_t operand) const {
    if (is_broadcast(operand)) return first_element(operand);
    return fmt::format("{1} + e * ({2}.stride[{0}][{3} - 1] / W)", operand, first_element(operand),
                       by_columns() ? "kept" : "reduced", by_columns() ? "RANK" : "REDUCED");
  }

  // Of inputs, as bits.
  std::string loads(std::string_view indent, std::uint32_t inputs = ~0u) const {
    std::string text;
    for_packed([&](std::size_t k) {
      if (!(inputs >> k & 1)) return;
      std::string load = fmt::format("{}<W>({})", is_broadcast(k) ? "spread" : "load",
                                     address(fmt::format("in{}", k), k));
      // The schedule keeps a vector on one side of a bound.
      const std::string within = within_bounds(
          body_, k, [&](std::size_t n) { return first_element(body_.inputs.size() + n); });
      if (!within.empty())
        load = fmt::format("{} ? {} : Pack<{}, W>()", within, load, c_name(body_.inputs[k].dtype));
      text += fmt::format("{}p{}[u] = {};\n", indent, k, load);
    });
    return text;
  }

  std::string visits_of(std::size_t number, const RowPass& pass, std::string_view partial,
                        std::string_view row, std::string_view index) const {
    std::string text =
        fmt::format("{}\n      for (int e = 0; e < W; ++e) visit{}(",
                    schedule_.keeps ? "#pragma unroll" : unrolled(body_, schedule_.width), number);
    if (!pass.reductions.empty()) text += fmt::format("{}, ", partial);
    text += fmt::format("{}, ", row);
    text += element_arguments(
        body_, [](std::size_t k) { return fmt::format("widen(p{}[u], e)", k); },
        [&](std::size_t k) { return fmt::format("in{} + {}", k, element(k)); },
        [&](std::size_t k) { return element(body_.inputs.size() + k); });
    text += constant_arguments(body_) + std::string(index);
    for (const int v : pass.live_in) text += fmt::format(", k{}[u][e]", v);
    for (const int v : pass.live_out) text += fmt::format(", k{}[u][e]", v);
    for (const int o : pass.outputs) text += fmt::format(", y{}[e]", o);
    return text + (is_guarded(body_, pass) ? ", guard);\n" : ");\n");
  }

  // Statements before a vector enters the accumulators, and those that undo it. By columns each
  // element of a vector has an accumulator.
  std::pair<std::string, std::string> saved_partials(std::size_t number, const RowPass& pass,
                                                     std::string_view partial) const {
    if (pass.reductions.empty()) return {};
    if (schedule_.walk == Walk::rows) {
      return {fmt::format("      const Partial{} before = {};\n", number, partial),
              fmt::format("      {} = before;\n", partial)};
    }
    constexpr std::string_view kEach = "#pragma unroll\n      for (int e = 0; e < W; ++e) ";
    return {fmt::format("      Partial{} before[W];\n{}before[e] = {};\n", number, kEach, partial),
            fmt::format("{}{} = before[e];\n", kEach, partial)};
  }

  std::string vector(std::size_t number, const RowPass& pass, std::string_view partial,
                     std::string_view row, std::string_view index) const {
    std::string text;
    for (const int o : pass.outputs) {
      text += fmt::format("      {} y{}[W];\n",
                          register_name(body_.outputs[static_cast<std::size_t>(o)].dtype), o);
    }
    if (!draws_of_elements(body_).empty()) text += "      DrawCaches caches;\n";
    const std::string visits = visits_of(number, pass, partial, row, index);
    if (is_guarded(body_, pass)) {
      const auto [before, restored] = saved_partials(number, pass, partial);
      text += fmt::format(
          "{}      Guard guard;\n{}      if (guard.fails()) {{\n{}      Exact guard;\n{}      }}\n",
          before, visits, restored, visits);
    } else {
      text += visits;
    }
    for (const int o : pass.outputs) {
      const auto at = static_cast<std::size_t>(o);
      text += fmt::format(
          "      Pack<{0}, W> q{1};\n      narrow_all(y{1}, q{1});\n      if (line < kept.count) "
          "store({2}, "
          "q{1});\n",
          c_name(body_.outputs[at].dtype), o, address(fmt::format("out{}", o), body_.reads() + at));
    }
    return text;
  }

  const Body& body_;
  const Schedule& schedule_;
};

// --- Kernels ------------------------------------------------------------------------------------

std::string constants(const Body& body, const Schedule& schedule) {
  return fmt::format(
      "constexpr int W = {}, U = {}, THREADS = {}, LANES = {}, RANK = {}, REDUCED = {}, READ = {}, "
      "OUT = {}, EACH = {}, STEP = {};\n",
      schedule.width, schedule.unroll, schedule.threads, schedule.lanes, schedule.rank,
      schedule.reduced_rank, body.reads(), body.outputs.size(),
      body.reads() + (writes_elements(body) ? body.outputs.size() : 0),
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
  if (passes.size() > 1 || schedule.cluster > 1) return results;
  return fmt::format(
      "    if (block.parts() > 1) {{\n      partials[{} * block.parts() + block.y()] = {};\n    }} "
      "else {{\n{}    "
      "}}\n",
      number, partial, results);
}

std::string rows(const Body& body, const Schedule& schedule, const std::vector<RowPass>& passes) {
  const Loops loops(body, schedule);
  std::string text = fmt::format(
      "  const int lane = threadIdx.x % LANES;\n"
      "  const i64 line = i64(block.x()) * (THREADS / LANES) + threadIdx.x / LANES;\n"
      "  // Threads past the last row repeat it: shuffles want whole warps.\n"
      "  const i64 mine = line < kept.count ? line : kept.count - 1;\n"
      "  i64 base[READ + OUT];\n"
      "  locate<RANK, {}>(kept, mine, base);\n"
      "  const i64 first = i64(block.y()) * part + lane;\n"
      "  const i64 end = first - lane + part < reduced.count ? first - lane + part : "
      "reduced.count;\n"
      "  Row row;\n",
      schedule.wide);
  text += "  " + begin_call(body, "row", "base");
  if (schedule.keeps) text += "  const i64 i = first;\n" + loops.load_once(passes);
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
        "  across_lanes<LANES>(p{0}_[0], static_cast<Partial{0}*>(memory));\n",
        n);
    if (n + 1 < passes.size()) {
      text += fmt::format("  to_lanes<LANES>(p{0}_[0], static_cast<Partial{0}*>(memory));\n  ", n) +
              finish_call(body, "row", fmt::format("p{}_[0]", n));
    }
  }
  const std::size_t last = passes.size() - 1;
  return text + "  if (lane == 0 && line < kept.count) {\n" +
         ending(body, schedule, fmt::format("p{}_[0]", last), "line", "row", "base + READ") +
         "  }\n";
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
  const Loops loops(body, schedule);
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
                 {"Geometry<READ + OUT>", "kept"},
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
  if (passes.size() > 1) text += kToLanes;
  text += constants(body, schedule) +
          fmt::format("static_assert(sizeof(Partial0) == {}, \"scratch memory\");\n",
                      partial_size_of(body, passes[0]));
  Kernel kernel{.threads = schedule.threads, .cluster = schedule.cluster};
  kernel.last = {{"Partial0*", "partials"},
                 {"Geometry<READ + OUT>", "kept"},
                 {"Geometry<EACH>", "reduced"},
                 {"i64", "part"},
                 {"i64", "elements"}};
  const bool by_columns = schedule.walk == Walk::columns;
  if (by_columns || schedule.lanes > 32) {
    kernel.memory = "Memory";
    text += "union Memory {\n";
    for (std::size_t n = 0; n < passes.size(); ++n) {
      if (!passes[n].reductions.empty())
        text += fmt::format("  Partial{0} of{0}[{1}];\n", n, by_columns ? "THREADS * W" : "32");
    }
    text += "};\n";
  }
  kernel.statements = by_columns ? columns(body, schedule, passes) : rows(body, schedule, passes);
  text += kernel_of(body, kernel);
  if (schedule.join_lanes > 0) text += kernel_of(body, join_kernel(body, schedule));
  return of_body(body, text);
}

}  // namespace brrr::jit
