// Owns the text of pointwise CUDA kernels: the three walks over memory around one `compute`.
#include <fmt/format.h>

#include "brrr/ops/jit/render.h"

namespace brrr::jit {
namespace {

using pieces::c_name;
using pieces::register_name;

// compute(x0, ..., s0, ..., index, y0, ...): everything between loads and stores.
std::string compute_function(const KernelSpec& spec) {
  std::string text = "BRRR_FN void compute(";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    text += fmt::format("{} x{}, ", register_name(spec.inputs[i].dtype), i);
  }
  for (std::size_t i = 0; i < spec.scalars.size(); ++i)
    text += fmt::format("{} s{}, ", c_name(spec.scalars[i]), i);
  text += "i64 index";
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    text += fmt::format(", {}& y{}", register_name(spec.outputs[i].dtype), i);
  }
  text += ") {\n" + pieces::statements(spec, 0);
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const Operand& output = spec.outputs[i];
    text += fmt::format("  y{} = {};\n", i, pieces::converted(spec, output.value, output.dtype));
  }
  return text + "}\n";
}

std::string head(const KernelSpec& spec, std::string_view last) {
  std::string text = fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}(",
                                 spec.threads, spec.name);
  for (std::size_t i = 0; i < spec.outputs.size(); ++i)
    text += fmt::format("{}* out{}, ", c_name(spec.outputs[i].dtype), i);
  for (std::size_t i = 0; i < spec.inputs.size(); ++i)
    text += fmt::format("const {}* in{}, ", c_name(spec.inputs[i].dtype), i);
  for (std::size_t i = 0; i < spec.scalars.size(); ++i)
    text += fmt::format("{} s{}, ", c_name(spec.scalars[i]), i);
  return text + std::string(last) + ") {\n  in_turn();\n";
}

// A flat kernel reads an operand of one element once: one<i>.
bool is_single(const KernelSpec& spec, std::size_t input) {
  return spec.walk == Walk::flat && spec.inputs[input].access == Access::broadcast;
}

// The input whose bits are all that the kernel writes, or -1.
int plain_copy(const KernelSpec& spec) {
  if (spec.outputs.size() != 1) return -1;
  const Value& value = spec.values[spec.outputs[0].value];
  if (value.kind != Value::Kind::input || value.dtype != spec.outputs[0].dtype) return -1;
  return is_single(spec, static_cast<std::size_t>(value.number)) ? -1 : value.number;
}

// From the packs p<i> of the inputs to the outputs in memory: widen, compute, narrow, store. `pack`
// follows the packs' names, `index` is that of the first element.
std::string compute_vector(const KernelSpec& spec, std::string_view indent, std::string_view pack,
                           std::string_view index, const std::vector<std::string>& addresses,
                           std::string_view width) {
  std::string text;
  if (const int from = plain_copy(spec); from >= 0) {
    return fmt::format("{}store({}, p{}{});\n", indent, addresses[0], from, pack);
  }
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    text += fmt::format("{}{} y{}[{}];\n", indent, register_name(spec.outputs[i].dtype), i, width);
  }
  text += fmt::format("#pragma unroll\n{0}for (int e = 0; e < {1}; ++e) {{\n{0}  compute(", indent,
                      width);
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    text += is_single(spec, i) ? fmt::format("one{}, ", i)
                               : fmt::format("widen(p{}{}.at[e]), ", i, pack);
  }
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) text += fmt::format("s{}, ", i);
  text += fmt::format("{} + e", index);
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) text += fmt::format(", y{}[e]", i);
  text += fmt::format(");\n{}}}\n", indent);
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
    const std::string_view type = c_name(spec.outputs[i].dtype);
    text +=
        fmt::format("{0}Pack<{1}, {2}> q{3};\n{0}narrow_all(y{3}, q{3});\n{0}store({4}, q{3});\n",
                    indent, type, width, i, addresses[i]);
  }
  return text;
}

std::string flat(const KernelSpec& spec) {
  std::string text = fmt::format("constexpr int W = {}, U = {}, THREADS = {};\n", spec.width,
                                 spec.unroll, spec.threads);
  text += head(spec, "i64 count");
  const auto loads = [&spec](std::string_view indent, std::string_view width, std::string_view pack,
                             std::string_view at, bool declare) {
    std::string t;
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (is_single(spec, i)) continue;
      t += fmt::format(
          "{}{}p{}{} = load<{}>(in{} + {});\n", indent,
          declare ? fmt::format("const Pack<{}, {}> ", c_name(spec.inputs[i].dtype), width) : "", i,
          pack, width, i, at);
    }
    return t;
  };
  const auto addresses = [&spec](std::string_view at) {
    std::vector<std::string> list;
    for (std::size_t i = 0; i < spec.outputs.size(); ++i)
      list.push_back(fmt::format("out{} + {}", i, at));
    return list;
  };
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (is_single(spec, i))
      text += fmt::format("  const {} one{} = widen(*in{});\n", register_name(spec.inputs[i].dtype),
                          i, i);
  }
  text +=
      "  const i64 first = i64(blockIdx.x) * (THREADS * U * W);\n"
      "  i64 at = first + i64(threadIdx.x) * W;\n"
      "  if (first + THREADS * U * W <= count) {\n";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (!is_single(spec, i))
      text += fmt::format("    Pack<{}, W> p{}[U];\n", c_name(spec.inputs[i].dtype), i);
  }
  if (!spec.inputs.empty()) {
    text += "#pragma unroll\n    for (int u = 0; u < U; ++u) {\n" +
            loads("      ", "W", "[u]", "at + u * (THREADS * W)", false) + "    }\n";
  }
  text += "#pragma unroll\n    for (int u = 0; u < U; ++u) {\n";
  text += compute_vector(spec, "      ", "[u]", "at + u * (THREADS * W)",
                         addresses("at + u * (THREADS * W)"), "W");
  text += "    }\n    return;\n  }\n";
  text +=
      "#pragma unroll 1\n  for (int u = 0; u < U; ++u, at += THREADS * W) {\n    if (at + W <= "
      "count) {\n";
  text += loads("      ", "W", "", "at", true) +
          compute_vector(spec, "      ", "", "at", addresses("at"), "W");
  if (spec.width > 1) {
    text += "    } else {\n#pragma unroll 1\n      for (i64 one = at; one < count; ++one) {\n";
    text += loads("        ", "1", "", "one", true) +
            compute_vector(spec, "        ", "", "one", addresses("one"), "1");
    text += "      }\n";
  }
  return text + "    }\n  }\n}\n";
}

// Operands of the geometry are outputs, then inputs.
std::string strided(const KernelSpec& spec) {
  const int outputs = static_cast<int>(spec.outputs.size());
  std::string text = fmt::format("constexpr int W = {}, U = {}, THREADS = {}, RANK = {}, N = {};\n",
                                 spec.width, spec.unroll, spec.threads, spec.rank, spec.operands());
  text += head(spec, "const __grid_constant__ Geometry<N> space");
  text +=
      "  const i64 first = i64(blockIdx.x) * (THREADS * U) + threadIdx.x;\n"
      "  i64 offset[U][N];\n";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    text += fmt::format("  Pack<{}, W> p{}[U];\n", c_name(spec.inputs[i].dtype), i);
  }
  text +=
      "#pragma unroll\n"
      "  for (int u = 0; u < U; ++u) {\n"
      "    const i64 at = first + u * THREADS;\n"
      "    if (at < space.count) {\n";
  text += fmt::format("      locate<RANK, {}>(space, at, offset[u]);\n", spec.wide);
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    text += fmt::format("      p{}[u] = {}<W>(in{} + offset[u][{}]);\n", i,
                        spec.inputs[i].access == Access::broadcast ? "spread" : "load", i,
                        outputs + static_cast<int>(i));
  }
  text +=
      "    }\n  }\n"
      "#pragma unroll\n"
      "  for (int u = 0; u < U; ++u) {\n"
      "    if (first + u * THREADS < space.count) {\n";
  std::vector<std::string> addresses;
  for (int i = 0; i < outputs; ++i) addresses.push_back(fmt::format("out{} + offset[u][{}]", i, i));
  text += compute_vector(spec, "      ", "[u]", "i64(0)", addresses, "W");
  return text + "    }\n  }\n}\n";
}

// The last dimension is the outputs' own; transposed inputs have stride 1 in the one before it.
std::string tiled(const KernelSpec& spec) {
  const int outputs = static_cast<int>(spec.outputs.size());
  std::string text = fmt::format("constexpr int TILE = {}, THREADS = {}, RANK = {}, N = {};\n",
                                 spec.tile, spec.threads, spec.rank, spec.operands());
  text += "constexpr int ROWS = THREADS / 32, STEPS = TILE / ROWS, SPANS = TILE / 32;\n";
  text += head(spec, "const __grid_constant__ Geometry<N> space");
  text += fmt::format("  typedef {} Index;\n", spec.wide ? "i64" : "u32");
  text +=
      "  const int x = threadIdx.x % 32, y = threadIdx.x / 32;\n"
      "  const Index wide = space.size[RANK - 1], high = space.size[RANK - 2];\n"
      "  const Index across = (wide + TILE - 1) / TILE, down = (high + TILE - 1) / TILE;\n"
      "  Index rest = blockIdx.x;\n"
      "  const Index left = rest % across * TILE;\n"
      "  rest /= across;\n"
      "  const Index top = rest % down * TILE;\n"
      "  rest /= down;\n"
      "  i64 base[N] = {};\n"
      "#pragma unroll\n"
      "  for (int d = RANK - 3; d >= 0; --d) {\n"
      "    const Index size = space.size[d], at = rest % size;\n"
      "    rest /= size;\n"
      "#pragma unroll\n"
      "    for (int k = 0; k < N; ++k) base[k] += i64(at) * space.stride[k][d];\n"
      "  }\n";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i].access != Access::transposed) continue;
    // A row's length is an odd number of banks, so a column read touches each bank once.
    const std::size_t size = size_of(spec.inputs[i].dtype);
    text += fmt::format("  __shared__ {} turned{}[TILE][TILE + {}];\n",
                        c_name(spec.inputs[i].dtype), i, size >= 4 ? 1 : 4 / size);
  }
  const auto loop = [&text](std::string_view body) {
    text +=
        "#pragma unroll\n  for (int step = 0; step < STEPS; ++step) {\n#pragma unroll\n    for "
        "(int span = 0; span < SPANS; ++span) {\n";
    text += body;
    text += "    }\n  }\n";
  };
  std::string body =
      "      const int row = y + step * ROWS, column = x + span * 32;\n"
      "      if (left + row < wide && top + column < high) {\n";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i].access != Access::transposed) continue;
    const int k = outputs + static_cast<int>(i);
    body += fmt::format(
        "        turned{0}[row][column] = in{0}[base[{1}] + i64(left + row) * "
        "space.stride[{1}][RANK - 1] + i64(top + column) * "
        "space.stride[{1}][RANK - 2]];\n",
        i, k);
  }
  loop(body + "      }\n");
  text += "  __syncthreads();\n";
  body =
      "      const int row = y + step * ROWS, column = x + span * 32;\n"
      "      if (top + row < high && left + column < wide) {\n";
  const auto place = [](int k) {
    return fmt::format(
        "base[{0}] + i64(top + row) * space.stride[{0}][RANK - 2] + i64(left + column) * "
        "space.stride[{0}][RANK - 1]",
        k);
  };
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    body += fmt::format(
        "        Pack<{}, 1> p{};\n        p{}.at[0] = ", c_name(spec.inputs[i].dtype), i, i);
    body += spec.inputs[i].access == Access::transposed
                ? fmt::format("turned{}[column][row];\n", i)
                : fmt::format("in{}[{}];\n", i, place(outputs + static_cast<int>(i)));
  }
  std::vector<std::string> addresses;
  for (int i = 0; i < outputs; ++i) addresses.push_back(fmt::format("out{} + {}", i, place(i)));
  loop(body + compute_vector(spec, "        ", "", "i64(0)", addresses, "1") + "      }\n");
  return text + "}\n";
}

}  // namespace

std::string render_pointwise(const KernelSpec& spec) {
  std::string text = pieces::functions(spec) + compute_function(spec);
  switch (spec.walk) {
    case Walk::flat: return text + flat(spec);
    case Walk::tiled: return text + tiled(spec);
    default: return text + strided(spec);
  }
}

}  // namespace brrr::jit
