// Owns the text of reductions on CUDA: rows, columns, and the join of their parts. Every order of
// combination is fixed by the geometry, so a result has the same bits in every run.
#include <fmt/format.h>

#include "brrr/ops/jit/render.h"
#include "brrr/tensor/error.h"

namespace brrr::jit {
namespace {

using pieces::c_name;
using pieces::register_name;

std::vector<int> reductions_of(const KernelSpec& spec) {
  std::vector<int> list;
  for (std::size_t i = 0; i < spec.values.size(); ++i) {
    const Value::Kind kind = spec.values[i].kind;
    if (kind == Value::Kind::reduction || kind == Value::Kind::arg)
      list.push_back(static_cast<int>(i));
  }
  return list;
}

bool is_arg(const KernelSpec& spec, int value) {
  return spec.values[value].kind == Value::Kind::arg;
}

// struct Partial: an accumulator for every reduction, and what is done with it.
std::string partial(const KernelSpec& spec) {
  std::string fields, start, join, shuffle;
  for (int r : reductions_of(spec)) {
    const std::string_view type = register_name(spec.values[r].type);
    fields += fmt::format("  {} a{};\n", type, r);
    shuffle += fmt::format("  result.a{0} = shuffle_down(p.a{0}, by, width);\n", r);
    if (is_arg(spec, r)) {
      // An index past every element stands for nothing seen yet.
      fields += fmt::format("  i64 i{};\n", r);
      start += fmt::format("  result.a{0} = {1}(0);\n  result.i{0} = highest<i64>();\n", r, type);
      join += fmt::format(
          "  if (stands_before{0}<{1}>(q.a{0}, q.i{0}, p.a{0}, p.i{0})) {{\n    p.a{0} = q.a{0};\n "
          "   p.i{0} = q.i{0};\n  }}\n",
          r, type);
      shuffle += fmt::format("  result.i{0} = shuffle_down(p.i{0}, by, width);\n", r);
    } else {
      start += fmt::format("  result.a{0} = identity{0}<{1}>();\n", r, type);
      join += fmt::format("  p.a{0} = combine{0}<{1}>(p.a{0}, q.a{0});\n", r, type);
    }
  }
  std::string text;
  for (int r : reductions_of(spec)) {
    if (!is_arg(spec, r)) continue;
    // NaN stands before everything else; of equals the first one counts.
    text += fmt::format(
        "template <class T>\nBRRR_FN bool stands_before{0}(T a, i64 i, T b, i64 j) {{\n"
        "  const bool none = (i == highest<i64>()) | (j == highest<i64>()), nan = a != a, other = "
        "b != b, lower = i < j;\n"
        "  const bool first = before{0}<T>(a, b) | (!before{0}<T>(b, a) & lower);\n"
        "  return none ? lower : nan | other ? nan & (!other | lower) : first;\n}}\n",
        r);
  }
  text += fmt::format("struct Partial {{\n{}}};\n", fields);
  text +=
      fmt::format("BRRR_FN Partial start() {{\n  Partial result;\n{}  return result;\n}}\n", start);
  text += fmt::format("BRRR_FN void join(Partial& p, const Partial& q) {{\n{}}}\n", join);
  text += fmt::format(
      "BRRR_FN Partial partial_below(const Partial& p, int by, int width) {{\n  Partial "
      "result;\n{}  return result;\n}}\n",
      shuffle);
  return text;
}

// take(p, x0, ..., s0, ..., index): one element enters.
std::string take(const KernelSpec& spec) {
  std::string text = "BRRR_FN void take(Partial& p";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i)
    text += fmt::format(", {} x{}", register_name(spec.inputs[i].dtype), i);
  for (std::size_t i = 0; i < spec.scalars.size(); ++i)
    text += fmt::format(", {} s{}", c_name(spec.scalars[i]), i);
  text += ", i64 index) {\n" + pieces::statements(spec, 0);
  for (int r : reductions_of(spec)) {
    const Value& value = spec.values[r];
    const std::string_view type = register_name(value.type);
    const std::string element = pieces::converted(spec, value.operands[0], value.type);
    if (is_arg(spec, r)) {
      // A thread meets its elements in order, so a tie stays with the one that it has.
      text += fmt::format(
          "  const bool wins{0} = (p.i{0} == highest<i64>()) | before{0}<{1}>({2}, p.a{0}) | (({2} "
          "!= {2}) & (p.a{0} == p.a{0}));\n"
          "  p.a{0} = wins{0} ? {2} : p.a{0};\n  p.i{0} = wins{0} ? index : p.i{0};\n",
          r, type, element);
    } else {
      text +=
          fmt::format("  p.a{0} = combine{0}<{1}>(p.a{0}, map{0}<{1}>({2}));\n", r, type, element);
    }
  }
  return text + "}\n";
}

std::string scalar_parameters(const KernelSpec& spec) {
  std::string text;
  for (std::size_t i = 0; i < spec.scalars.size(); ++i)
    text += fmt::format("{} s{}, ", c_name(spec.scalars[i]), i);
  return text;
}
std::string output_parameters(const KernelSpec& spec) {
  std::string text;
  for (std::size_t i = 0; i < spec.outputs.size(); ++i)
    text += fmt::format("{}* out{}, ", c_name(spec.outputs[i].dtype), i);
  return text;
}

// finish(p, out..., s..., offset of each output, elements): a result leaves.
std::string finish(const KernelSpec& spec) {
  std::string text =
      "BRRR_FN void finish(const Partial& p, " + output_parameters(spec) + scalar_parameters(spec);
  text += "const i64* offset, i64 elements) {\n";
  for (int r : reductions_of(spec)) {
    const Value& value = spec.values[r];
    const std::string_view type = register_name(value.type);
    if (is_arg(spec, r)) {
      text += fmt::format("  const i64 r{0} = p.i{0};\n", r);
    } else {
      std::string result =
          fmt::format("finish{0}<{1}>(p.a{0}, static_cast<{1}>(elements))", r, type);
      if (spec.strict && is_half(value.dtype))
        result = fmt::format("rounded<{}>({})", c_name(value.dtype), result);
      text += fmt::format("  const {} r{} = {};\n", type, r, result);
    }
  }
  text += pieces::statements(spec, 1);
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const Operand& output = spec.outputs[i];
    text += fmt::format("  out{0}[offset[{0}]] = narrow<{1}>({2});\n", i, c_name(output.dtype),
                        pieces::converted(spec, output.value, output.dtype));
  }
  return text + "}\n";
}

std::string finish_call(const KernelSpec& spec, std::string_view partial, std::string_view offset) {
  std::string text = fmt::format("finish({}, ", partial);
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) text += fmt::format("out{}, ", i);
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) text += fmt::format("s{}, ", i);
  return text + fmt::format("{}, elements);", offset);
}

// Partials of LANES neighbouring threads become one in the first of them. All threads of the block
// take part.
constexpr std::string_view kAcrossLanes = R"(
template <int LANES>
BRRR_FN void across_lanes(Partial& p) {
#pragma unroll
  for (int by = (LANES < 32 ? LANES : 32) / 2; by > 0; by /= 2) {
    const Partial other = partial_below(p, by, LANES < 32 ? LANES : 32);
    join(p, other);
  }
  if constexpr (LANES > 32) {
    constexpr int kWarps = LANES / 32;
    __shared__ Partial of_warps[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) of_warps[warp] = p;
    __syncthreads();
    if (warp % kWarps == 0) {
      p = lane < kWarps ? of_warps[warp + lane] : start();
#pragma unroll
      for (int by = kWarps / 2; by > 0; by /= 2) {
        const Partial other = partial_below(p, by, 32);
        join(p, other);
      }
    }
  }
}
)";

std::string head(const KernelSpec& spec) {
  std::string text = fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}(",
                                 spec.threads, spec.name);
  text += output_parameters(spec);
  for (std::size_t i = 0; i < spec.inputs.size(); ++i)
    text += fmt::format("const {}* in{}, ", c_name(spec.inputs[i].dtype), i);
  text += scalar_parameters(spec);
  return text +
         "Partial* partials, const __grid_constant__ Geometry<IN + OUT> kept,\n    const "
         "__grid_constant__ Geometry<IN> reduced, "
         "i64 part, i64 elements) {\n  in_turn();\n";
}

// The reduced space is one dimension whose stride is known only at run time: each operand is walked
// by a pointer.
bool walks_by_pointer(const KernelSpec& spec) {
  return spec.walk == Walk::columns && spec.reduced_rank == 1;
}

// Loads of element (or vector) i + u * STEP of the reduced space into p<k>[u].
std::string loads(const KernelSpec& spec, std::string_view indent) {
  std::string text;
  if (spec.reduced_rank > 1) {
    text += fmt::format("{0}i64 at[IN];\n{0}locate<REDUCED, {1}>(reduced, i + u * STEP, at);\n",
                        indent, spec.wide);
  }
  for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
    const bool broadcast = spec.inputs[k].access == Access::broadcast;
    std::string place = fmt::format("in{0} + base[{0}] + at[{0}]", k);
    if (walks_by_pointer(spec)) {
      place = fmt::format("from{0} + u * hop{0}", k);
    } else if (spec.reduced_rank == 1) {
      place = spec.width > 1 && !broadcast
                  ? fmt::format("in{0} + base[{0}] + (i + u * STEP) * W", k)
                  : fmt::format("in{0} + base[{0}] + (i + u * STEP) * reduced.stride[{0}][0]", k);
    }
    text += fmt::format("{}p{}[u] = {}<W>({});\n", indent, k, broadcast ? "spread" : "load", place);
  }
  return text;
}

std::string take_call(const KernelSpec& spec, std::string_view partial, std::string_view index) {
  std::string text = fmt::format("take({}", partial);
  for (std::size_t k = 0; k < spec.inputs.size(); ++k)
    text += fmt::format(", widen(p{}[u].at[e])", k);
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) text += fmt::format(", s{}", i);
  return text + fmt::format(", {});", index);
}

// The loop over reduced elements i, i + STEP, ... below `end`, U at a time; the last round asks
// before it loads.
std::string loop(const KernelSpec& spec, std::string_view partial, std::string_view index) {
  std::string packs, text, hops;
  for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
    packs += fmt::format("    Pack<{}, W> p{}[U];\n", c_name(spec.inputs[k].dtype), k);
    if (!walks_by_pointer(spec)) continue;
    text += fmt::format(
        "  const {0}* from{1} = in{1} + base[{1}] + i * reduced.stride[{1}][0];\n"
        "  const i64 hop{1} = STEP * reduced.stride[{1}][0];\n",
        c_name(spec.inputs[k].dtype), k);
    hops += fmt::format("    from{0} += U * hop{0};\n", k);
  }
  const auto round = [&](bool asks) {
    const std::string_view condition = asks ? "if (i + u * STEP < end) " : "";
    text +=
        packs + fmt::format("#pragma unroll\n    for (int u = 0; u < U; ++u) {}{{\n", condition);
    text += loads(spec, "      ");
    text +=
        fmt::format("    }}\n#pragma unroll\n    for (int u = 0; u < U; ++u) {}{{\n", condition);
    text += fmt::format("#pragma unroll\n      for (int e = 0; e < W; ++e) {}\n    }}\n",
                        take_call(spec, partial, index));
  };
  text += "#pragma unroll 1\n  for (; i + (U - 1) * STEP < end; i += U * STEP) {\n";
  round(false);
  text += hops + "  }\n  if (i < end) {\n";
  round(true);
  return text + "  }\n";
}

std::string constants(const KernelSpec& spec) {
  return fmt::format(
      "constexpr int W = {}, U = {}, THREADS = {}, LANES = {}, RANK = {}, REDUCED = {}, IN = {}, "
      "OUT = {};\n",
      spec.width, spec.unroll, spec.threads, spec.lanes, spec.rank, spec.reduced_rank,
      spec.inputs.size(), spec.outputs.size());
}

std::string rows(const KernelSpec& spec) {
  std::string text = "constexpr int STEP = LANES;\n" + head(spec);
  text += fmt::format(
      "  const int lane = threadIdx.x % LANES;\n"
      "  const i64 row = i64(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;\n"
      "  // Threads past the last row repeat it: shuffles want whole warps.\n"
      "  const i64 mine = row < kept.count ? row : kept.count - 1;\n"
      "  i64 base[IN + OUT];\n"
      "  locate<RANK, {}>(kept, mine, base);\n"
      "  i64 i = i64(blockIdx.y) * part + lane;\n"
      "  const i64 end = i - lane + part < reduced.count ? i - lane + part : reduced.count;\n"
      "  Partial p[U];\n"
      "#pragma unroll\n"
      "  for (int u = 0; u < U; ++u) p[u] = start();\n",
      spec.wide);
  text += loop(spec, "p[u]", "(i + u * STEP) * W + e");
  text +=
      "#pragma unroll\n"
      "  for (int half = 1; half < U; half *= 2) {\n"
      "#pragma unroll\n"
      "    for (int u = 0; u + half < U; u += 2 * half) join(p[u], p[u + half]);\n"
      "  }\n"
      "  across_lanes<LANES>(p[0]);\n"
      "  if (lane == 0 && row < kept.count) {\n"
      "    if (gridDim.y > 1) {\n"
      "      partials[row * gridDim.y + blockIdx.y] = p[0];\n"
      "    } else {\n";
  return text + "      " + finish_call(spec, "p[0]", "base + IN") + "\n    }\n  }\n}\n";
}

// Outputs e of a vector lie a W-th of the geometry's stride apart.
constexpr std::string_view kOffsets =
    "#pragma unroll\n{0}for (int k = 0; k < OUT; ++k) offset[k] = {1}[k] + e * (kept.stride[IN + "
    "k][RANK - 1] / W);\n";

std::string columns(const KernelSpec& spec) {
  std::string text = "constexpr int STEP = THREADS / LANES;\n" + head(spec);
  text += fmt::format(
      "  const int x = threadIdx.x % LANES, y = threadIdx.x / LANES;\n"
      "  const i64 column = i64(blockIdx.x) * LANES + x;\n"
      "  const i64 mine = column < kept.count ? column : kept.count - 1;\n"
      "  i64 base[IN + OUT];\n"
      "  locate<RANK, {}>(kept, mine, base);\n"
      "  i64 i = i64(blockIdx.y) * part + y;\n"
      "  const i64 end = i - y + part < reduced.count ? i - y + part : reduced.count;\n"
      "  Partial p[W];\n"
      "#pragma unroll\n"
      "  for (int e = 0; e < W; ++e) p[e] = start();\n",
      spec.wide);
  text += loop(spec, "p[e]", "i + u * STEP");
  text +=
      "  __shared__ Partial shared[THREADS * W];\n"
      "#pragma unroll\n"
      "  for (int e = 0; e < W; ++e) shared[e * THREADS + threadIdx.x] = p[e];\n"
      "#pragma unroll 1\n"
      "  for (int half = STEP / 2; half > 0; half /= 2) {\n"
      "    __syncthreads();\n"
      "    if (y < half) {\n"
      "#pragma unroll\n"
      "      for (int e = 0; e < W; ++e) join(shared[e * THREADS + threadIdx.x], shared[e * "
      "THREADS + threadIdx.x + half * LANES]);\n"
      "    }\n"
      "  }\n"
      "  if (y > 0 || column >= kept.count) return;\n"
      "#pragma unroll\n"
      "  for (int e = 0; e < W; ++e) {\n"
      "    const Partial total = shared[e * THREADS + threadIdx.x];\n"
      "    if (gridDim.y > 1) {\n"
      "      partials[(column * W + e) * gridDim.y + blockIdx.y] = total;\n"
      "    } else {\n"
      "      i64 offset[OUT];\n";
  text += fmt::format(kOffsets, "      ", "(base + IN)");
  return text + "      " + finish_call(spec, "total", "offset") + "\n    }\n  }\n}\n";
}

// The second stage: LANES threads combine the parts of a result.
std::string join_kernel(const KernelSpec& spec, std::string_view suffix, int lanes) {
  std::string text =
      fmt::format("extern \"C\" __global__ void __launch_bounds__(256) {}_{}(", spec.name, suffix);
  text += output_parameters(spec) + scalar_parameters(spec);
  text +=
      "const Partial* partials, const __grid_constant__ Geometry<IN + OUT> kept, i32 parts, i64 "
      "elements) {\n  in_turn();\n";
  const std::string_view width = spec.walk == Walk::columns ? "W" : "1";
  text += fmt::format(
      "  const int lane = threadIdx.x % {0};\n"
      "  const i64 result = i64(blockIdx.x) * (256 / {0}) + threadIdx.x / {0}, results = "
      "kept.count * {1};\n"
      "  const i64 mine = result < results ? result : results - 1;\n"
      "  Partial p = start();\n"
      "#pragma unroll 4\n"
      "  for (i32 i = lane; i < parts; i += {0}) join(p, partials[mine * parts + i]);\n"
      "  across_lanes<{0}>(p);\n"
      "  if (lane > 0 || result >= results) return;\n"
      "  i64 base[IN + OUT], offset[OUT];\n"
      "  locate<RANK, {2}>(kept, mine / {1}, base);\n"
      "  const i64 e = mine % {1};\n",
      lanes, width, spec.wide);
  if (spec.walk == Walk::columns) {
    text += fmt::format(kOffsets, "  ", "(base + IN)");
  } else {
    text += "#pragma unroll\n  for (int k = 0; k < OUT; ++k) offset[k] = base[IN + k] + e;\n";
  }
  return text + "  " + finish_call(spec, "p", "offset") + "\n}\n";
}

}  // namespace

std::size_t partial_size(const KernelSpec& spec) {
  std::size_t size = 0, alignment = 1;
  const auto field = [&](std::size_t bytes) {
    size = (size + bytes - 1) / bytes * bytes + bytes;
    alignment = std::max(alignment, bytes);
  };
  for (int r : reductions_of(spec)) {
    field(size_of(register_dtype(spec.values[r].type)));
    if (is_arg(spec, r)) field(8);
  }
  return (size + alignment - 1) / alignment * alignment;
}

std::string render_reduction(const KernelSpec& spec) {
  std::string text = pieces::functions(spec) + partial(spec) + take(spec) + finish(spec);
  text += kAcrossLanes;
  text += constants(spec);
  text += spec.walk == Walk::rows ? rows(spec) : columns(spec);
  text += fmt::format("static_assert(sizeof(Partial) == {}, \"scratch memory\");\n",
                      partial_size(spec));
  text += join_kernel(spec, "join_warp", 32);
  text += join_kernel(spec, "join_block", 256);
  return text;
}

}  // namespace brrr::jit
