// Owns the source of pointwise CUDA kernels: the three walks over memory around one `compute`.
#include <fmt/format.h>

#include "brrr/ops/jit/render.h"

namespace brrr::jit {
namespace {

using namespace pieces;

bool is_guarded(const Body& body) { return is_guarded(body, passes_of(body)[0]); }

// compute(elements..., constants..., y0, ..., guard): everything between loads and stores.
std::string compute_function(const Body& body, const Schedule& schedule) {
  std::string text = draw_caches(body, schedule) +
                     (is_guarded(body) ? "template <class Guard>\n" : "") +
                     "BRRR_FN void compute(" + element_parameters(body) + constant_parameters(body);
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    text += fmt::format("{}{}& y{}", i ? ", " : "", register_name(body.outputs[i].dtype), i);
  }
  text += is_guarded(body) ? ", Guard& guard" : "";
  text += ") {\n" + statements(body, passes_of(body)[0].elements);
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    const Body::TensorOperand& output = body.outputs[i];
    text += fmt::format("  y{} = {};\n", i, converted(body, output.value, output.dtype));
  }
  return text + "}\n";
}

bool has_bit(std::uint32_t bits, const Body& body, std::size_t input) {
  return bits >> (body.outputs.size() + input) & 1;
}

// A flat kernel reads an operand of one element once: one<i>.
bool is_single(const Body& body, const Schedule& schedule, std::size_t input) {
  return schedule.walk == Walk::flat && has_bit(schedule.broadcast, body, input);
}
// Whether an input comes in packs p<i>.
bool is_packed(const Body& body, const Schedule& schedule, std::size_t input) {
  return !is_address(body, input) && !is_single(body, schedule, input);
}

// The input whose bits are all that the kernel writes, or -1.
int plain_copy(const Body& body, const Schedule& schedule) {
  if (body.outputs.size() != 1 || !body.checks.empty()) return -1;
  const BodyValue& value = body.values[static_cast<std::size_t>(body.outputs[0].value)];
  if (value.kind != BodyValue::Kind::input || value.dtype != body.outputs[0].dtype) return -1;
  return is_single(body, schedule, static_cast<std::size_t>(value.number)) ? -1 : value.number;
}

// A load of `width` elements, where the input has them. The schedule keeps a vector on one side of
// a bound, so its first element's coordinates decide.
std::string bounded(const Body& body, std::size_t input, const std::string& load,
                    std::string_view width, const NameOf& coordinate) {
  if (body.inputs[input].bounds.empty()) return load;
  return fmt::format("{} ? {} : Pack<{}, {}>()", within_bounds(body, input, coordinate), load,
                     c_name(body.inputs[input].dtype), width);
}

// The addresses of a vector's elements, in outputs and in inputs that are read by address, and the
// coordinates of its first element.
struct Places {
  NameOf output, address, coordinate;
};

// From the packs p<i> of the inputs to the outputs in memory: widen, compute, narrow, store. `pack`
// follows the packs' names. Element e of the vector is `e` further in each place.
std::string compute_vector(const Body& body, const Schedule& schedule, std::string_view indent,
                           std::string_view pack, const Places& places, std::string_view width) {
  if (const int from = plain_copy(body, schedule); from >= 0) {
    return fmt::format("{}store({}, p{}{});\n", indent, places.output(0), from, pack);
  }
  std::string text;
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    text += fmt::format("{}{} y{}[{}];\n", indent, register_name(body.outputs[i].dtype), i, width);
  }
  if (!draws_of_elements(body).empty()) text += fmt::format("{}DrawCaches caches;\n", indent);
  std::string loop = fmt::format("{2}\n{0}for (int e = 0; e < {1}; ++e) {{\n{0}  compute(", indent,
                                 width, unrolled(body, schedule.width));
  loop += element_arguments(
      body,
      [&](std::size_t i) {
        return is_single(body, schedule, i) ? fmt::format("one{}", i)
                                            : fmt::format("widen(p{}{}, e)", i, pack);
      },
      places.address, places.coordinate);
  loop += constant_arguments(body);
  for (std::size_t i = 0; i < body.outputs.size(); ++i)
    loop += fmt::format("{}y{}[e]", i ? ", " : "", i);
  loop += fmt::format("{});\n{}}}\n", is_guarded(body) ? ", guard" : "", indent);
  text +=
      is_guarded(body)
          ? fmt::format("{0}Guard guard;\n{1}{0}if (guard.fails()) {{\n{0}Exact guard;\n{1}{0}}}\n",
                        indent, loop)
          : loop;
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    const std::string_view type = c_name(body.outputs[i].dtype);
    text +=
        fmt::format("{0}Pack<{1}, {2}> q{3};\n{0}narrow_all(y{3}, q{3});\n{0}store({4}, q{3});\n",
                    indent, type, width, i, places.output(i));
  }
  return text;
}

std::string flat(const Body& body, const Schedule& schedule) {
  const auto loads = [&](std::string_view indent, std::string_view width, std::string_view pack,
                         std::string_view at, bool declare) {
    std::string text;
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      if (!is_packed(body, schedule, i)) continue;
      text += fmt::format(
          "{}{}p{}{} = load<{}>(in{} + {});\n", indent,
          declare ? fmt::format("const Pack<{}, {}> ", c_name(body.inputs[i].dtype), width) : "", i,
          pack, width, i, at);
    }
    return text;
  };
  const auto places = [](std::string_view at) {
    return Places{[at](std::size_t i) { return fmt::format("out{} + {}", i, at); },
                  [](std::size_t i) { return fmt::format("in{}", i); },
                  [at](std::size_t) { return fmt::format("{} + e", at); }};
  };
  std::string text, packs;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    const DType dtype = body.inputs[i].dtype;
    if (is_packed(body, schedule, i))
      packs += fmt::format("    Pack<{}, W> p{}[U];\n", c_name(dtype), i);
    if (is_single(body, schedule, i) && !is_address(body, i))
      text += fmt::format("  const {} one{} = widen(*in{});\n", register_name(dtype), i, i);
  }
  text +=
      "  const i64 first = i64(block.x()) * (THREADS * U * W);\n"
      "  i64 at = first + i64(threadIdx.x) * W;\n"
      "  if (first + THREADS * U * W <= count) {\n";
  constexpr std::string_view kAt = "at + u * (THREADS * W)";
  if (!packs.empty()) {
    text += packs + "#pragma unroll\n    for (int u = 0; u < U; ++u) {\n" +
            loads("      ", "W", "[u]", kAt, false) + "    }\n";
  }
  text += fmt::format("{}\n    for (int u = 0; u < U; ++u) {{\n",
                      unrolled(body, schedule.width * schedule.unroll)) +
          compute_vector(body, schedule, "      ", "[u]", places(kAt), "W") +
          "    }\n    return;\n  }\n";
  text +=
      "#pragma unroll 1\n  for (int u = 0; u < U; ++u, at += THREADS * W) {\n    if (at + W <= "
      "count) {\n";
  text += loads("      ", "W", "", "at", true) +
          compute_vector(body, schedule, "      ", "", places("at"), "W");
  if (schedule.width > 1) {
    text += "    } else {\n#pragma unroll 1\n      for (i64 one = at; one < count; ++one) {\n";
    text += loads("        ", "1", "", "one", true) +
            compute_vector(body, schedule, "        ", "", places("one"), "1");
    text += "      }\n";
  }
  return text + "    }\n  }\n";
}

// The geometry's operands are outputs, inputs, coordinates.
std::string strided(const Body& body, const Schedule& schedule) {
  const std::size_t outputs = body.outputs.size(), reads = outputs + body.inputs.size();
  std::string text =
      "  const i64 first = i64(block.x()) * (THREADS * U) + threadIdx.x;\n"
      "  i64 offset[U][N];\n";
  std::string loads;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (is_address(body, i)) continue;
    text += fmt::format("  Pack<{}, W> p{}[U];\n", c_name(body.inputs[i].dtype), i);
    const std::string load =
        fmt::format("{}<W>(in{} + offset[u][{}])",
                    has_bit(schedule.broadcast, body, i) ? "spread" : "load", i, outputs + i);
    loads += fmt::format("      p{}[u] = {};\n", i, bounded(body, i, load, "W", [&](std::size_t n) {
                           return fmt::format("offset[u][{}]", reads + n);
                         }));
  }
  text += fmt::format(
      "#pragma unroll\n"
      "  for (int u = 0; u < U; ++u) {{\n"
      "    const i64 at = first + u * THREADS;\n"
      "    if (at < space.count) {{\n"
      "      locate<RANK, {}>(space, at, offset[u]);\n"
      "{}    }}\n  }}\n"
      "{}\n"
      "  for (int u = 0; u < U; ++u) {{\n"
      "    if (first + u * THREADS < space.count) {{\n",
      schedule.wide, loads, unrolled(body, schedule.width * schedule.unroll));
  const auto element = [&](std::size_t operand) {
    return schedule.broadcast >> operand & 1
               ? fmt::format("offset[u][{}]", operand)
               : fmt::format("offset[u][{0}] + e * (space.stride[{0}][RANK - 1] / W)", operand);
  };
  const Places places{
      [](std::size_t i) { return fmt::format("out{0} + offset[u][{0}]", i); },
      [&](std::size_t i) { return fmt::format("in{} + {}", i, element(outputs + i)); },
      [&](std::size_t i) { return element(reads + i); }};
  return text + compute_vector(body, schedule, "      ", "[u]", places, "W") + "    }\n  }\n";
}

// The place of a block's tile: `left` and `top` in the last two dimensions, `base` in the others.
constexpr std::string_view kTileOfBlock = R"(
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  const Index wide = space.size[RANK - 1], high = space.size[RANK - 2];
  const Index across = (wide + TILE - 1) / TILE, down = (high + TILE - 1) / TILE;
  Index rest = block.x();
  const Index left = rest % across * TILE;
  rest /= across;
  const Index top = rest % down * TILE;
  rest /= down;
  i64 base[N] = {};
#pragma unroll
  for (int d = RANK - 3; d >= 0; --d) {
    const Index size = space.size[d], at = rest % size;
    rest /= size;
#pragma unroll
    for (int k = 0; k < N; ++k) base[k] += i64(at) * space.stride[k][d];
  }
  Tiles& tiles = *static_cast<Tiles*>(memory);
)";

bool is_transposed(const Schedule& schedule, std::size_t output) {
  return schedule.transposed >> output & 1;
}

// The loop of a block's threads over the positions of a tile.
std::string over_tile(std::string_view statements) {
  return fmt::format(
      "#pragma unroll\n  for (int step = 0; step < STEPS; ++step) {{\n#pragma unroll\n"
      "    for (int span = 0; span < SPANS; ++span) {{\n"
      "      const int row = y + step * ROWS, column = x + span * 32;\n{}      }}\n    }}\n  "
      "}}\n",
      statements);
}

// Where operand k has the element of that row and column of the tile, and of the transposed tile.
std::string in_tile(std::size_t k) {
  return fmt::format(
      "base[{0}] + i64(top + row) * space.stride[{0}][RANK - 2] + i64(left + column) * "
      "space.stride[{0}][RANK - 1]",
      k);
}
std::string across_tile(std::size_t k) {
  return fmt::format(
      "base[{0}] + i64(left + row) * space.stride[{0}][RANK - 1] + i64(top + column) * "
      "space.stride[{0}][RANK - 2]",
      k);
}
constexpr std::string_view kInTile = "      if (top + row < high && left + column < wide) {\n",
                           kAcrossTile = "      if (left + row < wide && top + column < high) {\n";

std::string load_transposed(const Body& body, const Schedule& schedule) {
  const std::size_t outputs = body.outputs.size(), reads = outputs + body.inputs.size();
  std::string loads;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (!has_bit(schedule.transposed, body, i)) continue;
    const std::string load = fmt::format("load<1>(in{} + {})", i, across_tile(outputs + i));
    const NameOf coordinate = [&](std::size_t n) { return across_tile(reads + n); };
    loads += fmt::format("        tiles.of{0}[row][column] = ({1}).at[0];\n", i,
                         bounded(body, i, load, "1", coordinate));
  }
  return loads.empty() ? "" : over_tile(std::string(kAcrossTile) + loads) + "  __syncthreads();\n";
}

std::string store_transposed(const Body& body, const Schedule& schedule) {
  std::string stores;
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    if (is_transposed(schedule, i))
      stores += fmt::format("        out{0}[{1}] = tiles.to{0}[column][row];\n", i, across_tile(i));
  }
  return stores.empty() ? ""
                        : "  __syncthreads();\n" + over_tile(std::string(kAcrossTile) + stores);
}

// Operands have stride 1 in the last dimension, transposed ones in the one before it: these pass
// through tiles in shared memory.
std::string tiled(const Body& body, const Schedule& schedule) {
  const std::size_t outputs = body.outputs.size(), reads = outputs + body.inputs.size();
  std::string loads;
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (is_address(body, i)) continue;
    const std::string type = fmt::format("Pack<{}, 1>", c_name(body.inputs[i].dtype));
    const NameOf coordinate = [&](std::size_t n) { return in_tile(reads + n); };
    loads +=
        has_bit(schedule.transposed, body, i)
            ? fmt::format("        {0} p{1};\n        p{1}.at[0] = tiles.of{1}[column][row];\n",
                          type, i)
            : fmt::format(
                  "        const {} p{} = {};\n", type, i,
                  bounded(body, i, fmt::format("load<1>(in{} + {})", i, in_tile(outputs + i)), "1",
                          coordinate));
  }
  const Places places{
      [&](std::size_t i) {
        return is_transposed(schedule, i) ? fmt::format("&tiles.to{}[row][column]", i)
                                          : fmt::format("out{} + {}", i, in_tile(i));
      },
      [&](std::size_t i) { return fmt::format("in{} + {}", i, in_tile(outputs + i)); },
      [&](std::size_t i) { return in_tile(reads + i); }};
  return fmt::format("  typedef {} Index;{}", schedule.wide ? "i64" : "u32", kTileOfBlock) +
         load_transposed(body, schedule) +
         over_tile(std::string(kInTile) + loads +
                   compute_vector(body, schedule, "        ", "", places, "1")) +
         store_transposed(body, schedule);
}

// Shared memory of a tiled kernel: a tile for each transposed operand.
std::string tiles(const Body& body, const Schedule& schedule) {
  std::string text = "struct Tiles {\n";
  const auto add = [&](std::string_view name, std::size_t i, DType dtype) {
    text += fmt::format("  {} {}{}[TILE][TILE + {}];\n", c_name(dtype), name, i,
                        tile_padding(static_cast<std::int64_t>(size_of(dtype))));
  };
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (has_bit(schedule.transposed, body, i)) add("of", i, body.inputs[i].dtype);
  }
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    if (is_transposed(schedule, i)) add("to", i, body.outputs[i].dtype);
  }
  return text + "};\n";
}

}  // namespace

std::string render_pointwise(const Body& given, const Schedule& schedule) {
  const Body body = with_guarded_functions(given);
  std::string text = functions(body) + compute_function(body, schedule);
  Kernel kernel{.threads = schedule.threads};
  if (schedule.walk == Walk::tiled) {
    text += fmt::format(
        "constexpr int TILE = {}, THREADS = {}, ROWS = THREADS / 32, STEPS = TILE / ROWS, SPANS = "
        "TILE / 32;\n",
        schedule.tile, schedule.threads);
    text += tiles(body, schedule);
    kernel.memory = "Tiles";
  } else {
    text += fmt::format("constexpr int W = {}, U = {}, THREADS = {};\n", schedule.width,
                        schedule.unroll, schedule.threads);
  }
  if (schedule.walk == Walk::flat) {
    kernel.last = {{"i64", "count"}};
    kernel.statements = flat(body, schedule);
  } else {
    text += fmt::format("constexpr int RANK = {}, N = {};\n", schedule.rank,
                        body.outputs.size() + body.reads());
    kernel.last = {{"Geometry<N>", "space", true}};
    kernel.statements =
        schedule.walk == Walk::tiled ? tiled(body, schedule) : strided(body, schedule);
  }
  return of_body(body, text + kernel_of(body, kernel));
}

}  // namespace brrr::jit
